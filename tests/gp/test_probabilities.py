import gaussian_sigmoid
import numpy as np
import pytest
import torch
from checks import assert_close, assert_mean
from hypothesis import given
from hypothesis import strategies as st
from oracle import Dense, array
from scipy.special import expit, log_expit, log_softmax
from tasks import make_task, tasks, tensor

from polyshot.errors import InputError
from polyshot.gp import (
    LIKELIHOODS,
    Gaussian,
    LeastSquaresGP,
    Likelihood,
    LogisticSoftmaxGP,
    Logits,
    OneVsEach,
    OneVsEachGP,
    Sites,
    class_log_probs,
    gibbs,
    predict,
)
from polyshot.gp.models import base as model

MODEL = OneVsEachGP()
RULES = ["sigmoid", "log-sigmoid", "monte-carlo"]


def random_logits(n_way, scale, n_query=1, seed=0):
    """One chain; covariances of any correlation."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((1, n_query, n_way, n_way)) * scale
    return Logits(tensor(rng.standard_normal((1, n_query, n_way)) * scale), tensor(root @ np.swapaxes(root, -1, -2)))


@pytest.mark.parametrize("scale", [0.5, 3.0])
@pytest.mark.parametrize("n_way", [2, 4])
def test_each_rule_agrees_with_brute_force_monte_carlo_of_its_own_definition(n_way, scale):
    logits = random_logits(n_way, scale)
    mean, covariance = array(logits.mean)[0, 0], array(logits.covariance)[0, 0]
    f = np.random.default_rng(0).multivariate_normal(mean, covariance, size=400_000)
    psi = f[:, :, None] - f[:, None, :]
    other = ~np.eye(n_way, dtype=bool)
    rules = {
        "sigmoid": np.log(expit(psi).mean(0)),
        "log-sigmoid": log_expit(psi).mean(0),
    }
    for rule, pairs in rules.items():
        expected = np.exp(log_softmax(np.where(other, pairs, 0.0).sum(-1)))
        # Each of C (C - 1) averages has a relative error below 0.3 % (4.5 of the errors of 400,000 draws).
        assert_close(array(class_log_probs(logits, OneVsEach(), rule).exp())[0, 0], expected, 0.01, floor=1.0)
    joint = np.exp(log_softmax(np.where(other, log_expit(psi), 0.0).sum(-1), axis=-1))
    noise = torch.randn(1, 50_000, n_way, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    actual = class_log_probs(logits, OneVsEach(), "monte-carlo", noise=noise).exp()
    # The rule's own 50,000 draws of a number in [0, 1]: 4.5 standard errors are 0.01.
    assert_close(array(actual)[0, 0], joint.mean(0), 0.01, floor=1.0)


@pytest.mark.parametrize("rule", ["sigmoid", "log-sigmoid"])
def test_each_quadrature_is_the_product_over_pairs_written_out(rule):
    logits = random_logits(4, 2.0, n_query=3)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, (4, 4))
    reference = getattr(
        gaussian_sigmoid, {"sigmoid": "log_expected_sigmoid", "log-sigmoid": "expected_log_sigmoid"}[rule]
    )
    for q in range(3):
        m, S = array(logits.mean)[0, q], array(logits.covariance)[0, q]
        pairs = np.array([[reference(m[c] - m[d], S[c, c] + S[d, d] - 2 * S[c, d]) if c != d else 0.0
                           for d in range(4)] for c in range(4)])  # fmt: skip
        for likelihood, w in ((OneVsEach(), 1.0), (OneVsEach(tensor(weights)), weights)):
            actual = class_log_probs(logits, likelihood, rule)
            assert_close(array(actual)[0, q], log_softmax((w * pairs).sum(-1)), 1e-6)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_monte_carlo_takes_any_likelihood_and_a_singular_covariance(name):
    likelihood = LIKELIHOODS[name]()
    # Two perfectly correlated logits and one that is certain.
    covariance = torch.tensor([[4.0, 4.0, 0.0], [4.0, 4.0, 0.0], [0.0, 0.0, 0.0]]).double()[None, None]
    logits = Logits(torch.tensor([[[0.5, -0.5, 0.2]]]).double(), covariance)
    noise = torch.randn(1, 20_000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    actual = class_log_probs(logits, likelihood, "monte-carlo", noise=noise).exp()[0, 0]
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    f = np.array([0.5, -0.5, 0.2]) + 2 * nodes[:, None] * np.array([1.0, 1.0, 0.0])
    exact = weights / weights.sum() @ array(likelihood.log_probs(tensor(f)).exp())
    assert_close(array(actual), exact, 0.015, floor=1.0)  # 4.5 standard errors of 20,000 draws in [0, 1]


@pytest.mark.parametrize("rule", RULES)
@given(task=tasks(), seed=st.integers(0, 100))
def test_probabilities_sum_to_one(rule, task, seed):
    prediction = predict_task(task, rule, seed=seed)
    assert torch.isfinite(prediction.log_probs).all()
    assert_close(array(prediction.log_probs.exp().sum(-1)), np.ones(len(task.root_star)), 1e-10)


def predict_task(task, rule, sites=None, **options):
    sites = task.sites if sites is None else sites
    return predict(
        MODEL, tensor(task.K), task.labels, sites, tensor(task.K_star), tensor(task.k_star_star), rule=rule, **options
    )


def many_sites(task, n_chains=5):
    omega = tensor(task.omega) * torch.linspace(0.3, 3, n_chains, dtype=torch.float64)[:, None, None]
    return Sites(omega, tensor(task.kappa).expand_as(omega))


@pytest.mark.parametrize("rule", ["sigmoid", "log-sigmoid"])
def test_chains_are_averaged_as_probabilities_of_the_dense_logits(rule):
    task = make_task(n=6, n_way=4, log_scale=2.0)
    sites = many_sites(task)
    prediction = predict_task(task, rule, sites, mean=tensor(task.mean), mean_star=0.3)
    probabilities, scores = [], []
    for omega in array(sites.omega):
        dense = Dense(task.K, task.y, omega, task.kappa, mean=task.mean).query(task.K_star, task.k_star_star, 0.3)
        logits = Logits(*(tensor(part)[None] for part in dense))
        probabilities.append(array(class_log_probs(logits, OneVsEach(), rule).exp())[0])
        scores.append(dense[0])
    assert_close(array(prediction.log_probs.exp()), np.mean(probabilities, 0), 1e-8)
    assert_close(array(prediction.scores), np.mean(scores, 0), 1e-8)


@pytest.mark.parametrize("rule", ["sigmoid", "log-sigmoid"])
@given(task=tasks(log_scales=(-3.0, 5.0)), seed=st.integers(0, 100))
def test_permuted_classes_examples_and_queries_permute_the_answer(rule, task, seed):
    rng = np.random.default_rng(seed)
    classes, examples, queries = (rng.permutation(k) for k in (task.n_way, len(task.y), len(task.root_star)))
    base = predict_task(task, rule)
    permuted = task._replace(
        root=task.root[examples],
        root_star=task.root_star[queries],
        y=np.argsort(classes)[task.y[examples]],
        omega=task.omega[np.ix_(examples, classes)],
    )
    answer = predict_task(permuted, rule)
    assert_close(array(answer.log_probs.exp()), array(base.log_probs.exp())[np.ix_(queries, classes)], 1e-9, floor=1.0)
    assert_close(array(answer.scores), array(base.scores)[np.ix_(queries, classes)], 1e-8, floor=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_seeds_reproduce_and_the_number_of_chains_in_memory_does_not_matter(rule, monkeypatch):
    task = make_task(n=6, n_way=4)
    sites = many_sites(task)
    whole = predict_task(task, rule, sites, seed=1)
    assert torch.equal(whole.log_probs, predict_task(task, rule, sites, seed=1).log_probs)
    if rule == "monte-carlo":
        assert not torch.equal(whole.log_probs, predict_task(task, rule, sites, seed=2).log_probs)
    for chains_at_once in (1, 2):
        monkeypatch.setattr(model, "CHUNK_BYTES", chains_at_once * 8 * 4 * 6 * 6)
        assert len(model.chain_chunks(sites)) == -(-5 // chains_at_once)
        part = predict_task(task, rule, sites, seed=1)
        assert_close(array(part.log_probs), array(whole.log_probs), 1e-12)
        assert_close(array(part.scores), array(whole.scores), 1e-12)


def test_the_log_marginal_does_not_depend_on_the_number_of_chains_in_memory(monkeypatch):
    task = make_task(n=6, n_way=4)
    sites, results = many_sites(task), []
    for size in (model.CHUNK_BYTES, 1):
        monkeypatch.setattr(model, "CHUNK_BYTES", size)
        K = tensor(task.K).requires_grad_()
        value = MODEL.log_marginal(K, task.labels, sites)
        (value * torch.arange(5)).sum().backward()
        results.append((array(value), array(K.grad)))
    for whole, part in zip(*results, strict=True):
        assert_close(part, whole, 1e-12)


def test_the_monte_carlo_rule_converges_to_the_exact_predictive_of_the_logistic_softmax():
    task = make_task(n=3, n_way=3, log_scale=1.0)
    chain = gibbs(LogisticSoftmaxGP(), tensor(task.K), task.labels, 3, n_chains=3, n_steps=5, seed=0, latent=False)
    args = (tensor(task.K), task.labels, chain.draws, tensor(task.K_star), tensor(task.k_star_star))
    answers = [
        array(predict(LogisticSoftmaxGP(), *args, rule="monte-carlo", n_draws=200, seed=s).log_probs.exp())
        for s in range(40)
    ]
    logits = LogisticSoftmaxGP().condition(*args[:3]).query(*args[3:])
    deviations = logits.covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    grid = tensor(np.stack(np.meshgrid(*[nodes] * 3), -1).reshape(-1, 3))
    weight = tensor(np.einsum("i,j,k->jik", *[weights / weights.sum()] * 3).ravel())
    f = logits.mean[..., None, :] + deviations[..., None, :] * grid
    exact = torch.einsum("g,mqgc->qc", weight, LIKELIHOODS["logistic-softmax"]().log_probs(f).exp()) / 3
    assert_mean(answers, array(exact), slack=1e-4)


@pytest.mark.parametrize("rule", ["sigmoid", "log-sigmoid"])
def test_the_logistic_softmax_s_rules_are_one_dimensional_expectations(rule):
    logits = random_logits(4, 1.5, n_query=3)
    expected = np.vectorize(
        {"sigmoid": gaussian_sigmoid.log_expected_sigmoid}.get(rule, gaussian_sigmoid.expected_log_sigmoid)
    )(array(logits.mean), array(logits.covariance.diagonal(dim1=-2, dim2=-1)))
    actual = class_log_probs(logits, LIKELIHOODS["logistic-softmax"](), rule)
    assert_close(array(actual), log_softmax(expected, -1), 1e-6)


def test_probabilities_of_very_many_classes_are_finite():
    rng = np.random.default_rng(0)
    n_way = 1200
    logits = Logits(tensor(0.02 * rng.standard_normal((1, 1, n_way))), 1e-4 * torch.eye(n_way).double()[None, None])
    noise = tensor(rng.standard_normal((1, 2, n_way)))
    compiled = class_log_probs(logits, OneVsEach(), "monte-carlo", noise=noise)
    f = array(logits.mean[0, 0]) + 1e-2 * array(noise[0])
    expected = np.log(np.exp([log_softmax(log_expit(g[:, None] - g).sum(1)) for g in f]).mean(0))
    assert_close(array(compiled)[0, 0], expected, 1e-6)


class HalfSoftmax(Likelihood):
    """A likelihood from outside the package."""

    title = "Softmax of f / 2"

    def log_all(self, f):
        return torch.log_softmax(f / 2, -1)


def test_a_likelihood_from_outside_predicts_by_its_own_formula():
    task = make_task(n=4, n_way=3)
    args = (tensor(task.K), task.labels, task.sites, tensor(task.K_star), tensor(task.k_star_star))
    answers = []
    for likelihood in (HalfSoftmax(), Gaussian(noise=4.0)):  # both have the probabilities softmax(f / 2)
        model = OneVsEachGP()
        model.likelihood = likelihood
        answers.append(array(predict(model, *args, seed=0).log_probs))
    assert_close(*answers, 1e-12)
    model.likelihood = HalfSoftmax()
    with pytest.raises(InputError, match="'sigmoid' has no closed form for HalfSoftmax; use rule='monte-carlo'"):
        predict(model, *args, rule="sigmoid")


@pytest.mark.parametrize("model", [OneVsEachGP(), LogisticSoftmaxGP(), LeastSquaresGP()])
def test_the_default_rule_is_the_likelihood_s_own(model):
    task = make_task(n=4, n_way=3)
    sites = gibbs(model, tensor(task.K), task.labels, 3, n_chains=2, n_steps=2, latent=False, seed=0).draws
    args = (model, tensor(task.K), task.labels, sites, tensor(task.K_star), tensor(task.k_star_star))
    default, named = (predict(*args, rule=rule, seed=0).log_probs for rule in (None, model.likelihood.default_rule))
    assert torch.equal(default, named)


def test_a_wrong_rule_is_an_error_that_names_the_right_ones():
    logits = random_logits(3, 1.0)
    for name in ("softmax", "gaussian"):
        with pytest.raises(InputError, match="monte-carlo"):
            class_log_probs(logits, LIKELIHOODS[name](), "sigmoid")
    with pytest.raises(InputError, match="noise"):
        class_log_probs(logits, OneVsEach(), "monte-carlo")


def test_the_variance_of_a_prediction_is_that_of_the_mixture_of_the_chains():
    task = make_task(n=6, n_way=3, seed=4)
    K, y, star, own = tensor(task.K), task.labels, tensor(task.K_star), tensor(task.k_star_star)
    sites = gibbs(MODEL, K, y, 3, n_chains=4, n_steps=3, latent=False, seed=0).draws
    prediction = predict(MODEL, K, y, sites, star, own)
    each = [
        Dense(task.K, task.y, omega, kappa).query(task.K_star, task.k_star_star)
        for omega, kappa in zip(array(sites.omega), array(sites.kappa), strict=True)
    ]
    means = np.array([mean for mean, _ in each])
    second = np.mean([mean**2 + np.diagonal(cov, axis1=-2, axis2=-1) for mean, cov in each], 0)
    assert_close(array(prediction.scores), means.mean(0), 1e-8)
    assert_close(array(prediction.variance), (second - means.mean(0) ** 2).mean(-1), 1e-8)
