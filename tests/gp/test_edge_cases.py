"""Extreme tasks and wrong input: a right answer, or an InputError that says what is wrong."""

import bad_calls
import numpy as np
import pytest
import torch
from checks import assert_close
from integration import one_vs_each_posterior
from oracle import array
from tasks import make_task, tensor

from polyshot.errors import InputError
from polyshot.gp import (
    RBF,
    Cosine,
    LeastSquaresGP,
    Linear,
    LogisticSoftmaxGP,
    OneVsEachGP,
    elbo,
    fit_variational,
    gibbs,
    marginal_likelihood,
    predict,
    predictive_likelihood,
    propagation_start,
    variational_start,
)
from processes import elsewhere

MODEL = OneVsEachGP()
MODELS = [MODEL, LogisticSoftmaxGP(), LeastSquaresGP()]
NAN, INFINITY = float("nan"), float("inf")


def run(task, model=MODEL, **options):
    """Chain and prediction of a task."""
    options = {"n_chains": 4, "n_steps": 3, "seed": 0} | options
    chain = gibbs(model, tensor(task.K), task.labels, task.n_way, **options)
    rule = "sigmoid" if isinstance(model, OneVsEachGP) else "monte-carlo"
    star = (tensor(task.K_star), tensor(task.k_star_star))
    return chain, predict(model, tensor(task.K), task.labels, chain.draws, *star, rule=rule, seed=0)


def assert_sane(chain, prediction):
    assert torch.isfinite(chain.f).all()
    assert torch.isfinite(prediction.log_probs).all()
    assert torch.isfinite(prediction.scores).all()
    assert_close(array(prediction.log_probs.exp().sum(-1)), np.ones(3), 1e-9)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "task",
    [
        make_task(1, 2),
        make_task(1, 6, y=[5]),
        make_task(6, 5, y=[1, 1, 1, 3, 3, 1]),
        make_task(4, 3, y=[2, 2, 2, 2]),
        make_task(8, 2, kind="duplicates"),
        make_task(8, 3, kind="rank one"),
        make_task(30, 2, kind="rank one", log_scale=8.0),
        make_task(100, 100, y=np.arange(100)),
        make_task(5, 100, y=np.arange(5)),
        make_task(6, 3, log_scale=-20.0),
        make_task(6, 3, log_scale=20.0),
        make_task(6, 3, log_scale=20.0, kind="rank one"),
        make_task(6, 3, log_scale=20.0, kind="duplicates", y=[0, 1, 2, 0, 1, 2]),
    ],
    ids=[
        "one example in all", "one example of six classes", "classes without examples", "one class only", "duplicates",
        "rank one", "rank one and large", "C = N = 100", "C = 100", "tiny", "huge", "huge rank one",
        "huge and contradictory",
    ],
)  # fmt: skip
def test_every_model_answers_every_legal_task(model, task):
    singular = np.linalg.matrix_rank(task.K) < len(task.K)
    if isinstance(model, LogisticSoftmaxGP) and singular and np.abs(task.K).max() > np.exp(6):
        # Where all sigmoids of an example vanish, the Poisson counts are so large that a singular K is not definite.
        with pytest.raises(InputError, match="its scale is too large"):
            run(task, model)
    else:
        assert_sane(*run(task, model))


@pytest.mark.parametrize("log_scale", [-20.0, -5.0, 8.0, 12.0, 20.0])
@pytest.mark.parametrize("kind", ["full", "rank one", "duplicates"])
def test_the_variational_posterior_answers_at_every_scale(log_scale, kind):
    task = make_task(6, 3, log_scale=log_scale, kind=kind, y=[0, 1, 2, 0, 1, 2])
    q = fit_variational(MODEL, tensor(task.K), task.labels, 3)
    K = tensor(task.K).requires_grad_()
    value = elbo(MODEL, K, task.labels, q)
    value.backward()
    assert torch.isfinite(q.tilt).all()
    assert float(value.detach()) < 0
    assert torch.isfinite(K.grad).all()


def test_a_class_without_examples_has_the_exact_posterior():
    task = make_task(1, 3, log_scale=1.0, y=[0])
    options = {"n_chains": 4000, "n_steps": 20}
    chain, prediction = run(task, **options)
    moments = one_vs_each_posterior(task.K, task.y, 3, 40)
    error = 4.5 * array(chain.f[0]).std() / np.sqrt(4000)
    assert np.abs(array(chain.f[0]).mean(0).T.ravel() - moments.mean).max() < error
    # The two classes that were not seen are the same to the model.
    assert_close(array(prediction.log_probs[:, 1].exp()), array(prediction.log_probs[:, 2].exp()), 0.02)


def test_a_tiny_scale_predicts_every_class_alike():
    _, prediction = run(make_task(6, 5, log_scale=-20.0))
    assert_close(array(prediction.log_probs.exp()), np.full((3, 5), 0.2), 1e-6)


def test_a_huge_scale_is_sure_of_the_support():
    task = make_task(6, 3, log_scale=20.0, y=[0, 1, 2, 0, 1, 2])
    chain, _ = run(task, n_steps=20)
    itself = predict(MODEL, tensor(task.K), task.labels, chain.draws, tensor(task.K), tensor(task.K.diagonal().copy()))
    assert (itself.log_probs.argmax(-1) == task.labels).all()


def test_duplicates_with_contradictory_labels_share_their_logits():
    task = make_task(2, 2, log_scale=3.0, kind="duplicates", y=[0, 1])
    chain, _ = run(task, n_chains=50, n_steps=10)
    assert_close(array(chain.f[..., 0, :]), array(chain.f[..., 1, :]), 1e-6)


@pytest.mark.parametrize("kernel", [Cosine(1.0), Linear(1.0), RBF(1.0)])
def test_single_precision_input_gives_the_double_answer_to_its_precision(kernel):
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).double()
    y = torch.arange(6, dtype=torch.int32) % 3
    answers = []
    for part in (x, x.float()):
        K = kernel(part).detach()
        chain = gibbs(
            MODEL, K, y, 3, n_chains=4, n_steps=3, seed=0, root=torch.linalg.cholesky(K.double() + torch.eye(6))
        )
        prediction = predict(MODEL, K, y, chain.draws, K, K.diagonal())
        answers.append([prediction.log_probs.exp(), prediction.scores, chain.f])
    for double, single in zip(*answers, strict=True):
        assert double.dtype == torch.float64
        assert_close(array(single), array(double), 1e-4)


def test_a_single_precision_matrix_has_a_log_marginal():
    task = make_task()
    exact = MODEL.log_marginal(tensor(task.K), task.labels, task.sites)
    single = MODEL.log_marginal(tensor(task.K).float(), task.labels, task.sites)
    assert_close(array(single), array(exact), 1e-5)


def test_a_float32_gram_matrix_that_is_indefinite_by_rounding_is_accepted():
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    K = Linear(3.0)(x).detach()
    assert torch.linalg.eigvalsh(K.double())[0] < 0
    y = torch.arange(40) % 3
    chain = gibbs(MODEL, K, y, 3, n_chains=2, n_steps=3, seed=0)
    assert torch.isfinite(chain.f).all()
    assert torch.isfinite(predict(MODEL, K, y, chain.draws, K, K.diagonal()).log_probs).all()


def test_no_queries_have_no_predictions():
    task = make_task()
    chain, _ = run(task)
    prediction = predict(MODEL, tensor(task.K), task.labels, chain.draws, torch.zeros(0, 5), torch.zeros(0))
    assert prediction.log_probs.shape == prediction.scores.shape == (0, 3)


@pytest.mark.parametrize("model", MODELS)
def test_a_batch_of_no_tasks_is_an_error(model):
    with pytest.raises(InputError, match=r"the batch of shape \(0,\) has no tasks"):
        gibbs(model, torch.zeros(0, 3, 3), torch.zeros(0, 3, dtype=torch.long), 2, n_chains=2, n_steps=2)


def task_parts():
    task = make_task(3, 2, y=[0, 1, 0])
    return tensor(task.K), task.labels, tensor(task.K_star), tensor(task.k_star_star), task.sites


BAD_MATRICES = {
    "the support set is empty": torch.zeros(0, 0),
    "K contains NaN": torch.tensor([[1.0, NAN], [NAN, 1.0]]),
    "K contains NaN or infinity": torch.tensor([[INFINITY, 0.0], [0.0, 1.0]]),
    "K is not positive semi-definite: an entry": -torch.eye(2),
    "K is not positive semi-definite": torch.tensor([[1.0, 2.0], [2.0, 1.0]]),
    "K is not symmetric": torch.tensor([[1.0, 0.9], [0.0, 1.0]]),
}


@pytest.mark.parametrize("message", BAD_MATRICES)
@pytest.mark.parametrize("function", ["gibbs", "fit_variational", "predict"])
def test_a_matrix_that_is_no_covariance_is_an_error(function, message):
    K = BAD_MATRICES[message].double()
    n = len(K)
    y, sites = torch.arange(n), make_task(2, 2, y=[0, 1]).sites
    sites = type(sites)(*(part[:, :n] for part in sites))
    with pytest.raises(InputError, match=message):
        {
            "gibbs": lambda: gibbs(MODEL, K, y, 2, n_chains=2, n_steps=2),
            "fit_variational": lambda: fit_variational(MODEL, K, y, 2),
            "predict": lambda: predict(MODEL, K, y, sites, torch.zeros(1, n), torch.ones(1)),
        }[function]()


@pytest.mark.parametrize("bad", [NAN, INFINITY])
@pytest.mark.parametrize("where", ["K_star", "k_star_star", "mean", "mean_star"])
def test_prediction_refuses_what_is_not_finite(where, bad):
    K, y, K_star, k_star_star, sites = task_parts()
    values = {"K_star": K_star, "k_star_star": k_star_star, "mean": torch.zeros(3, 2), "mean_star": torch.zeros(3, 2)}
    values[where] = values[where].clone()
    values[where].view(-1)[0] = bad
    name = "the prior mean" if where.startswith("mean") else where
    with pytest.raises(InputError, match=f"{name} contains NaN or infinity"):
        predict(MODEL, K, y, sites, values.pop("K_star"), values.pop("k_star_star"), **values)


@pytest.mark.parametrize("bad", [NAN, INFINITY])
@pytest.mark.parametrize("model", MODELS)
def test_a_mean_that_is_not_finite_is_an_error(model, bad):
    K, y, *_ = task_parts()
    with pytest.raises(InputError, match="the prior mean contains NaN or infinity"):
        gibbs(model, K, y, 2, mean=bad, n_chains=2, n_steps=2)


@pytest.mark.parametrize("part", ["support", "query"])
def test_features_that_are_not_finite_are_an_error(part):
    x, x_query = torch.ones(3, 2), torch.ones(2, 2)
    {"support": x, "query": x_query}[part][0, 0] = NAN
    y, y_query = torch.tensor([0, 1, 0]), torch.tensor([0, 1])
    with pytest.raises(InputError, match="contains NaN or infinity"):
        predictive_likelihood(MODEL, Linear(), x, y, x_query, y_query, 2)
    if part == "support":
        with pytest.raises(InputError, match="contains NaN or infinity"):
            marginal_likelihood(MODEL, Linear(), x, y, 2)


@pytest.mark.parametrize(
    ("labels", "n_way", "message"),
    [
        ([0, 1, 2], 2, r"must lie in 0\.\.1, but they range from 0 to 2"),
        ([0, -1, 1], 2, r"must lie in 0\.\.1, but they range from -1 to 1"),
        ([0, 0, 0], 1, "at least two classes"),
        ([0, 0, 0], 0, "at least two classes"),
    ],
)
def test_labels_out_of_range_and_fewer_than_two_classes_are_errors(labels, n_way, message):
    K, y = torch.eye(3).double(), torch.tensor(labels)
    for call in (lambda: gibbs(MODEL, K, y, n_way), lambda: fit_variational(MODEL, K, y, n_way),
                 lambda: marginal_likelihood(MODEL, Linear(), K, y, n_way)):  # fmt: skip
        with pytest.raises(InputError, match=message):
            call()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_chains": 0}, "n_chains=0"),
        ({"n_steps": 0}, "n_steps=0"),
        ({"thin": 0}, "thin=0"),
        ({"burn_in": -1}, "burn_in=-1"),
        ({"n_steps": 3, "burn_in": 3}, "burn_in=3"),
        ({"seed": [1, 2]}, "2 seeds for a batch of 1 tasks"),
        ({"seed": -1}, "a seed is an integer >= 0"),
    ],
)
def test_options_out_of_range_are_errors(options, message):
    K, y, *_ = task_parts()
    with pytest.raises(InputError, match=message):
        gibbs(MODEL, K, y, 2, **options)


@pytest.mark.parametrize("model", MODELS[1:])
@pytest.mark.parametrize("start", [variational_start, propagation_start])
def test_the_warm_starts_are_for_one_vs_each_alone(model, start):
    K, y, *_ = task_parts()
    with pytest.raises(InputError, match="one-vs-each"):
        gibbs(model, K, y, 2, start=start)


def test_no_draws_for_the_monte_carlo_rule_are_an_error():
    K, y, K_star, k_star_star, sites = task_parts()
    with pytest.raises(InputError, match="n_draws must be at least 1, not 0"):
        predict(MODEL, K, y, sites, K_star, k_star_star, rule="monte-carlo", n_draws=0)


@pytest.fixture(scope="module")
def without_checks():
    return elsewhere(bad_calls.outcomes)


@pytest.mark.parametrize("name", bad_calls.CALLS)
def test_wrong_shapes_and_names_are_an_input_error_without_any_type_checker(name, without_checks):
    assert without_checks[name] == "InputError"
