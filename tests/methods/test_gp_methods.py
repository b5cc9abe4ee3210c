"""The GP methods against GPyTorch and against dense algebra written from the paper's formulas."""

import warnings

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from small_task import N_WAY, SPACE, episode, mean_log_sigmoid
from torch.nn.functional import normalize, softplus

from polyshot.errors import InputError
from polyshot.gp import LogisticSoftmaxGP, OneVsEachGP, gibbs
from polyshot.methods import build_method
from polyshot.task import Episode, LabelledSet, Space


def stacked(e: Episode) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat([e.support.x, e.query.x]).double(), torch.cat([e.support.y, e.query.y])


def comparison_matrix(y: np.ndarray) -> np.ndarray:
    """A with a row e_i (x) (e_y - e_c) for every example and c != y; f is laid out example by example."""
    rows = []
    for i, own in enumerate(y):
        for c in range(N_WAY):
            if c != own:
                row = np.zeros((len(y), N_WAY))
                row[i, own], row[i, c] = 1, -1
                rows.append(row.ravel())
    return np.array(rows)


def central_difference(function, parameter: torch.nn.Parameter, step: float = 1e-4) -> float:
    start = parameter.item()
    values = []
    for sign in (1, -1):
        parameter.data.fill_(start + sign * step)
        values.append(function())
    parameter.data.fill_(start)
    return (values[0] - values[1]) / (2 * step)


def test_dkt_s_loss_is_gpytorch_s_marginal_likelihood_of_the_targets():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import gpytorch
        from linear_operator import to_linear_operator
    method = build_method("dkt", SPACE, options={"log_scale": 0.7, "noise": 0.3}).double()
    method.mean.value.data.fill_(-0.4)
    e = episode()
    x, y = stacked(e)
    covariance = softplus(method.kernel.log_scale) * softplus(method.kernel.nu) * normalize(x) @ normalize(x).T
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.3
    expected = 0.0
    for c in range(N_WAY):
        prior = gpytorch.distributions.MultivariateNormal(
            torch.full((len(y),), -0.4).double(), to_linear_operator(covariance)
        )
        expected += likelihood(prior).log_prob(torch.where(y == c, 1.0, -1.0).double())
    loss = method.loss(e, np.random.default_rng(0))
    assert loss.item() == pytest.approx(-expected.item() / len(y), rel=1e-6)
    loss.backward()
    expected_slopes = torch.autograd.grad(-expected / len(y), [method.kernel.log_scale, method.kernel.nu])
    for parameter, slope in zip([method.kernel.log_scale, method.kernel.nu], expected_slopes, strict=True):
        assert float(parameter.grad) == pytest.approx(float(slope), rel=1e-5)


def test_dkt_s_noise_stays_unless_it_is_to_be_learned():
    assert "raw_noise" not in build_method("dkt", SPACE).state_dict()
    for learn_noise in (False, True):
        method = build_method("dkt", SPACE, options={"noise": 0.2, "learn_noise": learn_noise})
        noise = torch.as_tensor(method.model().likelihood.noise).detach()
        assert noise.item() == pytest.approx(0.2, rel=1e-6)


def test_dkt_learns_its_noise_and_mean_by_the_right_slopes():
    method = build_method("dkt", SPACE, options={"noise": 0.3, "learn_noise": True}).double()
    e = episode()
    method.loss(e, np.random.default_rng(0)).backward()
    for parameter in (method.raw_noise, method.mean.value):
        slope = central_difference(lambda: method.loss(e, np.random.default_rng(0)).item(), parameter)
        assert float(parameter.grad) == pytest.approx(slope, rel=1e-5)


def test_dkt_s_scores_are_the_regression_s_posterior_means():
    method = build_method("dkt", SPACE, options={"noise": 0.2})
    e = episode()
    x, y = e.support.x.double(), e.support.y
    with torch.no_grad():
        K, K_star = method.kernel(x), method.kernel(e.query.x.double(), x)
    targets = 2 * torch.nn.functional.one_hot(y, N_WAY).double() - 1
    expected = K_star @ torch.cholesky_solve(targets, torch.linalg.cholesky(K + 0.2 * torch.eye(len(y)).double()))
    torch.testing.assert_close(method.adapt(e.support, N_WAY)(e.query.x).scores, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("average", ["probability", "log", "score"])
def test_ove_s_predictive_likelihood_is_that_of_the_dense_conditional(average):
    options = {"objective": "pl", "log_scale": 1.0, "n_chains": 3, "average": average}
    method = build_method("ove-gp", SPACE, options=options)
    e = episode()
    x, y = e.support.x.double(), e.support.y.numpy()
    with torch.no_grad():
        K, K_star = method.kernel(x), method.kernel(e.query.x.double(), x)
        own = method.kernel.diagonal(e.query.x.double()).numpy()
    omega = gibbs(
        OneVsEachGP(), K, e.support.y, N_WAY, n_chains=3, n_steps=1, latent=False, seed=np.random.default_rng(5)
    ).draws.omega.numpy()
    A = comparison_matrix(y)
    others = np.array([[c != own_class for c in range(N_WAY)] for own_class in y])
    identity = np.eye(N_WAY)
    chosen, sums = np.zeros((len(omega), len(e.query.y))), np.zeros((len(e.query.y), N_WAY))
    for m, chain in enumerate(omega):
        w = chain[others]
        inverse = np.linalg.inv(A @ np.kron(K.numpy(), identity) @ A.T + np.diag(1 / w))
        for q, label in enumerate(e.query.y.numpy()):
            cross = np.kron(K_star[q].numpy(), identity) @ A.T  # [C, comparisons]
            mean = cross @ inverse @ (0.5 / w)
            covariance = own[q] * identity - cross @ inverse @ cross.T
            logs = np.zeros(N_WAY)
            for c in range(N_WAY):
                for other in set(range(N_WAY)) - {c}:
                    contrast = identity[c] - identity[other]
                    logs[c] += mean_log_sigmoid(contrast @ mean, contrast @ covariance @ contrast)
            chosen[m, q] = log_softmax(logs)[label]
            sums[q] += logs / len(omega)
    once = log_softmax(sums, axis=1)[range(len(sums)), e.query.y]  # a class's score is its mean over the chains
    expected = {"probability": np.log(np.exp(chosen).mean(0)), "log": chosen, "score": once}[average]
    loss = method.loss(e, np.random.default_rng(5))
    assert loss.item() == pytest.approx(-expected.mean(), rel=1e-5)


@pytest.mark.parametrize(("name", "start"), [("ove-gp", "prior"), ("ove-gp", "mean"), ("logistic-softmax-gp", "prior")])
def test_the_marginal_likelihood_s_slope_is_that_of_the_dense_gaussian(name, start):
    own = {"slope": "exact", "start": start} if name == "ove-gp" else {}
    options = {"objective": "ml", "log_scale": 0.5, "n_chains": 2} | own
    method = build_method(name, SPACE, options=options).double()
    e = episode()
    x, y = stacked(e)
    model = OneVsEachGP() if name == "ove-gp" else LogisticSoftmaxGP()
    with torch.no_grad():
        settings = {"n_chains": 2, "n_steps": 1, "start": start, "latent": False, "seed": np.random.default_rng(3)}
        sites = gibbs(model, method.kernel(x), y, N_WAY, **settings).draws
    A, chosen = np.eye(len(y) * N_WAY), np.full((len(y), N_WAY), fill_value=True)
    if name == "ove-gp":
        A, chosen = comparison_matrix(y.numpy()), np.arange(N_WAY) != y.numpy()[:, None]

    def dense() -> float:
        with torch.no_grad():
            K = np.kron(method.kernel(x).numpy(), np.eye(N_WAY))
        total = 0.0
        for omega, kappa in zip(sites.omega.numpy(), sites.kappa.numpy(), strict=True):
            seen = omega[chosen] > 0  # a site of no weight says nothing
            w, z = omega[chosen][seen], kappa[chosen][seen] / omega[chosen][seen]
            B = A[seen] @ K @ A[seen].T + np.diag(1 / w)
            total += -np.linalg.slogdet(B)[1] / 2 - z @ np.linalg.solve(B, z) / 2
        return -total / (2 * len(y))

    method.loss(e, np.random.default_rng(3)).backward()
    assert float(method.kernel.log_scale.grad) == pytest.approx(
        central_difference(dense, method.kernel.log_scale), rel=1e-5
    )


def test_propagation_predicts_what_many_long_chains_predict():
    e = episode(n_shot=4, n_query=5)
    predicted = [
        build_method("ove-gp", SPACE, options={"log_scale": 2.0, "rule": "monte-carlo", **options})
        .adapt(e.support, N_WAY)(e.query.x)
        .log_probs.exp()
        for options in ({"inference": "propagation"}, {"inference": "gibbs", "n_chains": 800, "test_steps": 60})
    ]
    torch.testing.assert_close(*predicted, atol=0.02, rtol=0)


def test_the_prediction_s_factor_is_the_one_under_which_validation_queries_are_most_probable():
    method = build_method("ove-gp", SPACE, options={"log_scale": -1.0})
    episodes = [episode(n_shot=3, n_query=4, seed=seed) for seed in range(6)]
    for e in episodes:
        e.query.y[0] = 1  # an error in each, so that too much confidence costs something

    def log_loss() -> float:
        predictions = method.predict_episodes(episodes, range(6))
        right = [p.log_probs.gather(-1, e.query.y[:, None]) for p, e in zip(predictions, episodes, strict=True)]
        return -torch.cat(right).mean().item()

    method.calibrate(episodes)
    found, least = method.log_factor.item(), log_loss()
    assert abs(found) > 0.5
    for other in (found - 0.3, found + 0.3):
        method.log_factor.fill_(other)
        assert log_loss() > least
    method.log_factor.fill_(found)
    method.calibrate(episodes)
    assert method.log_factor.item() == pytest.approx(found, abs=0.05)
    assert "log_factor" in method.state_dict()


def test_without_calibration_there_is_no_factor():
    method = build_method("ove-gp", SPACE, options={"calibrate": False})
    before = method.adapt(episode().support, N_WAY)(episode().query.x).log_probs
    method.calibrate([episode()])
    assert method.log_factor is None
    assert torch.equal(method.adapt(episode().support, N_WAY)(episode().query.x).log_probs, before)


@pytest.mark.parametrize("name", ["dkt", "logistic-softmax-gp", "ove-gp"])
def test_the_kernel_has_its_own_learning_rate(name):
    method = build_method(name, Space((1, 28, 28), 20), options={"kernel_rate": 0.5})
    network, rest = method.parameter_groups(1e-3)
    assert network["lr"] == 1e-3
    assert rest["lr"] == 0.5
    assert {id(p) for p in network["params"]} == {id(p) for p in method.backbone.parameters()}
    assert any(p is method.kernel.log_scale for p in rest["params"])
    assert len(network["params"]) + len(rest["params"]) == len(list(method.parameters()))


@pytest.mark.parametrize("kernel", ["cosine", "linear", "rbf", "normalized-rbf", "dkt-cosine"])
@pytest.mark.parametrize("name", ["dkt", "logistic-softmax-gp", "ove-gp"])
def test_every_gp_method_takes_every_kernel(name, kernel):
    method = build_method(name, SPACE, options={"kernel": kernel})
    e = episode()
    method.loss(e, np.random.default_rng(0)).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in method.kernel.parameters())
    assert torch.isfinite(method.adapt(e.support, N_WAY)(e.query.x).log_probs).all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ove-gp", {"objective": "mll"}, "objective must be ml or pl, not 'mll'"),
        ("dkt", {"noise": -1.0}, r"DKT: noise must be above 0, not -1\.0"),
        ("logistic-softmax-gp", {"kernel": "cosinus"}, "unknown kernel 'cosinus'"),
    ],
)
def test_bad_options_are_refused(name, options, message):
    with pytest.raises(InputError, match=message):
        build_method(name, SPACE, options=options)


def test_the_prediction_s_factor_is_bounded_however_often_it_is_chosen():
    method = build_method("ove-gp", SPACE, options={"rule": "sigmoid"})
    far = torch.eye(N_WAY, SPACE.shape[0]).repeat_interleave(3, 0)
    easy = Episode(*[LabelledSet(far, torch.arange(N_WAY).repeat_interleave(3))] * 2, N_WAY)
    for _ in range(3):
        method.calibrate([easy])
    assert method.log_factor.item() <= 8.0
