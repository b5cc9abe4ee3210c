import numpy as np
import pytest
import torch
from tasks import make_task, tensor

from polyshot.errors import InputError
from polyshot.gp import OneVsEachGP, effective_sample_size, gibbs, split_r_hat

STEPS, CHAINS = 4000, 8


def autoregression(rho, steps=STEPS, chains=CHAINS, seed=0):
    """Stationary AR(1) of unit variance; its integrated autocorrelation time is (1 + rho) / (1 - rho)."""
    noise = np.random.default_rng(seed).standard_normal((steps, chains))
    draws = np.empty_like(noise)
    draws[0] = noise[0]
    for t in range(1, steps):
        draws[t] = rho * draws[t - 1] + np.sqrt(1 - rho**2) * noise[t]
    return torch.from_numpy(draws)


def textbook_r_hat(draws):
    """Gelman et al., BDA3, equations 11.3 and 11.4, chain by chain."""
    n = len(draws) // 2
    halves = [half for chain in draws.T for half in (chain[:n], chain[-n:])]
    within = np.mean([half.var(ddof=1) for half in halves])
    between = n * np.var([half.mean() for half in halves], ddof=1)
    return np.sqrt(((n - 1) / n * within + between / n) / within)


@pytest.mark.parametrize("steps", [4, 7, 100])
def test_split_r_hat_is_the_textbooks(steps):
    draws = autoregression(0.5, steps, 3)
    assert float(split_r_hat(draws)) == pytest.approx(textbook_r_hat(draws.numpy()), rel=1e-12)


def test_r_hat_is_near_one_for_independent_draws():
    # R-hat^2 - 1 is about chi-square(15) / 15 / n - 1 / n with n = 2000: beyond 0.002 once in 10,000 seeds.
    assert float(split_r_hat(autoregression(0.0))) == pytest.approx(1, abs=1e-3)


def test_r_hat_sees_a_shifted_chain_and_a_drift():
    draws = autoregression(0.0)
    shifted = draws.clone()
    shifted[:, 0] += 3
    assert float(split_r_hat(shifted)) > 1.3
    assert float(split_r_hat(draws + torch.linspace(0, 3, STEPS)[:, None])) > 1.2


@pytest.mark.parametrize("rho", [-0.4, 0.0, 0.5, 0.9])
def test_the_effective_sample_size_is_that_of_the_known_autocorrelation_time(rho):
    exact = STEPS * CHAINS * (1 - rho) / (1 + rho)
    # Geyer's estimate of the time has a relative error of about sqrt(4 W / (S M)) with a window W of a few times
    # the autocorrelation time: 5 % at rho = 0.9, of which 4.5 are 20 %; 10 % without correlation.
    actual = float(effective_sample_size(autoregression(rho)))
    assert actual == pytest.approx(exact, rel=0.2 if rho > 0.6 else 0.1)


def test_each_scalar_is_judged_on_its_own():
    draws = torch.stack([autoregression(0.0), autoregression(0.9)], -1)[..., None, :]
    assert split_r_hat(draws).shape == effective_sample_size(draws).shape == (1, 2)
    for k in range(2):
        assert float(effective_sample_size(draws)[0, k]) == pytest.approx(
            float(effective_sample_size(draws[..., 0, k]))
        )


def test_shift_and_scale_do_not_matter():
    draws = autoregression(0.5)
    for diagnostic in (split_r_hat, effective_sample_size):
        assert float(diagnostic(1e3 + 7 * draws)) == pytest.approx(float(diagnostic(draws)), rel=1e-9)


def test_a_constant_is_mixed():
    draws = torch.ones(10, 3)
    assert float(split_r_hat(draws)) == 1
    assert float(effective_sample_size(draws)) == 30


def test_chains_stuck_at_different_values_are_not_mixed():
    draws = torch.arange(3.0).expand(10, 3)
    assert float(split_r_hat(draws)) > 1.1
    assert float(effective_sample_size(draws)) < 15


@pytest.mark.parametrize("diagnostic", [split_r_hat, effective_sample_size])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_too_few_steps_are_an_error(diagnostic, steps):
    with pytest.raises(InputError, match="at least 4"):
        diagnostic(torch.zeros(steps, 2))


def test_a_gibbs_chain_mixes_by_both_measures():
    task = make_task(n=5, n_way=3, log_scale=1.0)
    f = gibbs(OneVsEachGP(), tensor(task.K), task.labels, 3, n_chains=20, n_steps=220, burn_in=20, seed=0).f
    assert float(split_r_hat(f).max()) < 1.05
    assert float(effective_sample_size(f).min()) > 400
