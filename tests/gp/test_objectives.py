import numpy as np
import pytest
import torch
from checks import assert_close, assert_mean, central_difference
from integration import logistic_softmax_posterior, one_vs_each_posterior
from oracle import Dense, array
from tasks import make_task, tensor

from polyshot.errors import InputError
from polyshot.gp import (
    KERNELS,
    RBF,
    ConstantMean,
    Cosine,
    LeastSquaresGP,
    Linear,
    LogisticSoftmaxGP,
    Logits,
    OneVsEachGP,
    Prior,
    Sites,
    class_log_probs,
    gibbs,
    marginal_likelihood,
    predict,
    predictive_likelihood,
    propagation_start,
    sobol_normal,
    variational_start,
)
from polyshot.gp.inference.gibbs import draw_probes

MODELS = {"one-vs-each": OneVsEachGP(), "logistic-softmax": LogisticSoftmaxGP(), "least-squares": LeastSquaresGP(0.5)}
N_WAY, N_CHAINS, SEED = 3, 4, 7
OPTIONS = {"n_chains": N_CHAINS, "n_steps": 2, "seed": SEED}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]


def episode():
    generator = torch.Generator().manual_seed(0)
    x, x_query = (torch.randn(n, 4, generator=generator).double() for n in (6, 4))
    return x, torch.tensor([0, 1, 2, 0, 1, 1]), x_query, torch.tensor([2, 0, 0, 1])


def sites_of(model, kernel, x, y, mean):
    """The sites that the objective draws: the same chain, run by hand."""
    K = kernel(x).detach().double()
    return gibbs(model, K, y, N_WAY, n_chains=N_CHAINS, n_steps=2, mean=mean, latent=False, seed=SEED).draws


def dense_chains(model, kernel, x, y, mean, sites):
    """One Dense a chain at the kernel's present parameters."""
    K, y = array(kernel(x)), array(y).astype(int)
    own = y[:, None] == np.arange(N_WAY)
    for omega, kappa in zip(array(sites.omega), array(sites.kappa), strict=True):
        b = 2 * own - 2 * kappa if isinstance(model, LogisticSoftmaxGP) else None
        yield Dense(K, y, omega, kappa, mean=float(mean), b=b, coupled=isinstance(model, OneVsEachGP))


def dense_marginal(model, kernel, x, y, mean, sites):
    if isinstance(model, LeastSquaresGP):
        noisy = array(kernel(x)) + 0.5 * np.eye(len(y))
        residual = 2.0 * (array(y)[:, None] == np.arange(N_WAY)) - 1 - float(mean)
        log_det = N_WAY * np.linalg.slogdet(2 * np.pi * noisy)[1]
        return -(np.sum(residual * np.linalg.solve(noisy, residual)) + log_det) / 2
    return np.mean([dense.log_marginal for dense in dense_chains(model, kernel, x, y, mean, sites)])


def dense_predictive(model, kernel, x, y, x_query, y_query, mean, sites, rule, noise, average):
    K_star, k_star_star = array(kernel(x_query, x)), array(kernel.diagonal(x_query))
    chosen = []
    for m, dense in enumerate(dense_chains(model, kernel, x, y, mean, sites)):
        logits = Logits(*(tensor(part)[None] for part in dense.query(K_star, k_star_star, float(mean))))
        chain_noise = None if noise is None else noise[m : m + 1]
        log_probs = array(class_log_probs(logits, model.likelihood, rule, noise=chain_noise))[0]
        chosen.append(log_probs[np.arange(len(log_probs)), array(y_query).astype(int)])
    return (np.log(np.exp(chosen).mean(0)) if average == "probability" else np.mean(chosen, 0)).sum()


def check_gradients(value, parameters, reference):
    """`value` and its gradients equal `reference()`, a function of the parameters, and its finite differences."""
    assert float(value.detach()) == pytest.approx(reference(), rel=1e-8)
    value.backward()
    for parameter in parameters:

        def moved(t, parameter=parameter):
            with torch.no_grad():
                before = parameter.clone()
                parameter.add_(t)
                result = reference()
                parameter.copy_(before)
            return result

        assert float(parameter.grad) == pytest.approx(central_difference(moved, 1e-3), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("kernel_name", KERNELS)
def test_ml_is_the_dense_formula_at_the_same_sites_with_its_gradient(model, kernel_name):
    kernel, mean = KERNELS[kernel_name]().double(), ConstantMean(-0.3).double()
    x, y, _, _ = episode()
    sites = sites_of(model, kernel, x, y, mean().detach())
    value = marginal_likelihood(model, kernel, x, y, N_WAY, mean=mean(), **OPTIONS)
    parameters = [*kernel.parameters(), *mean.parameters()]
    check_gradients(value, parameters, lambda: dense_marginal(model, kernel, x, y, mean.value.detach(), sites))


@pytest.mark.parametrize(
    ("name", "rule"),
    [("one-vs-each", "sigmoid"), ("one-vs-each", "log-sigmoid")] + [(n, "monte-carlo") for n in MODELS],
)
@pytest.mark.parametrize("average", ["probability", "log"])
def test_pl_is_the_dense_formula_at_the_same_sites_with_its_gradient(name, rule, average):
    model, kernel, mean = MODELS[name], RBF(0.5, 0.2).double(), ConstantMean(0.4).double()
    x, y, x_query, y_query = episode()
    rng = np.random.default_rng(SEED)
    chain = gibbs(model, kernel(x).detach(), y, N_WAY, n_chains=N_CHAINS, n_steps=2, mean=0.4, latent=False, seed=rng)
    noise = None
    if rule == "monte-carlo":  # drawn after the chain, from the same generator
        noise = sobol_normal(rng, torch.Size([]), N_CHAINS, 16, N_WAY, x)
    options = {"rule": rule, "average": average, "n_draws": 16, **OPTIONS}
    value = predictive_likelihood(model, kernel, x, y, x_query, y_query, N_WAY, mean=mean(), **options)

    def reference():
        args = (x, y, x_query, y_query, mean.value.detach(), chain.draws, rule, noise, average)
        return dense_predictive(model, kernel, *args)

    check_gradients(value, [*kernel.parameters(), *mean.parameters()], reference)


@pytest.mark.parametrize(("name", "rule"), [("one-vs-each", "log-sigmoid"), ("logistic-softmax", "sigmoid")])
def test_pl_is_the_log_probability_that_a_prediction_by_the_same_chains_gives(name, rule):
    model, kernel = MODELS[name], RBF(0.5, 0.2).double()
    x, y, x_query, y_query = episode()
    value = predictive_likelihood(model, kernel, x, y, x_query, y_query, N_WAY, rule=rule, **OPTIONS)
    sites = sites_of(model, kernel, x, y, 0.0)
    with torch.no_grad():
        prediction = predict(model, kernel(x), y, sites, kernel(x_query, x), kernel.diagonal(x_query), rule=rule)
    expected = prediction.log_probs.gather(-1, y_query[:, None]).sum()
    assert value.item() == pytest.approx(expected.item(), rel=1e-10)
    bound = predictive_likelihood(model, kernel, x, y, x_query, y_query, N_WAY, rule=rule, average="log", **OPTIONS)
    assert bound.item() < value.item()


@pytest.mark.parametrize("name", ["one-vs-each", "logistic-softmax"])
def test_the_gradient_of_ml_is_that_of_the_evidence_on_average(name):
    """Fisher's identity, for the log-scale and for the mean, against quadrature of log p(Y | X)."""
    n_way, nodes, integrate = {
        "one-vs-each": (3, 24, one_vs_each_posterior),
        "logistic-softmax": (2, 24, logistic_softmax_posterior),
    }[name]
    task, model = make_task(2, n_way, y=[0, 1], seed=1), MODELS[name]
    shape = np.array([[0.3, -0.2, 0.1], [0.0, 0.5, -0.4]])[:, :n_way]
    exact = [
        central_difference(lambda t: integrate(np.exp(1 + t) * task.K, task.y, n_way, nodes, shape).log_evidence, 0.05),
        central_difference(
            lambda t: integrate(np.e * task.K, task.y, n_way, nodes, shape * (1 + t)).log_evidence, 0.05
        ),
    ]
    chain = gibbs(
        model,
        tensor(np.e * task.K),
        task.labels,
        n_way,
        n_chains=6000,
        n_steps=25,
        mean=tensor(shape),
        latent=False,
        seed=0,
    )
    log_scale = torch.ones(6000, 1, 1, dtype=torch.float64, requires_grad=True)
    factor = torch.ones(6000, 1, 1, dtype=torch.float64, requires_grad=True)
    # A batch of 6000 tasks of one chain each has a gradient for each chain.
    sites = type(chain.draws)(*(part[:, None] for part in chain.draws))
    labels = task.labels.expand(6000, 2)
    model.log_marginal(log_scale.exp() * tensor(task.K), labels, sites, factor * tensor(shape)).sum().backward()
    assert_mean(array(torch.cat([log_scale.grad, factor.grad], 1))[..., 0], exact, slack=1e-3)


def test_ml_is_the_same_for_float32_features_to_their_precision():
    x, y, _, _ = episode()
    kernel = Linear()
    double, single = (marginal_likelihood(OneVsEachGP(), kernel, part, y, N_WAY, **OPTIONS) for part in (x, x.float()))
    assert double.dtype == single.dtype == torch.float64
    assert float(single.detach()) == pytest.approx(float(double.detach()), rel=1e-4)


def test_gradients_reach_the_features_of_support_and_query():
    x, y, x_query, y_query = episode()
    for value, parts in (
        (lambda: marginal_likelihood(OneVsEachGP(), Linear(), x, y, N_WAY, **OPTIONS), [x]),
        (
            lambda: predictive_likelihood(OneVsEachGP(), Linear(), x, y, x_query, y_query, N_WAY, **OPTIONS),
            [x, x_query],
        ),
    ):
        for part in parts:
            part.grad = None
            part.requires_grad_()
        value().backward()
        assert all(torch.isfinite(part.grad).all() and part.grad.abs().max() > 0 for part in parts)


@pytest.mark.parametrize("label", [-1, N_WAY])
def test_query_labels_out_of_range_are_an_error(label):
    x, y, x_query, y_query = episode()
    y_query[1] = label
    with pytest.raises(InputError, match="query labels"):
        predictive_likelihood(OneVsEachGP(), Linear(), x, y, x_query, y_query, N_WAY)


def test_learning_the_scale_finds_the_maximum_of_the_evidence():
    # Two labels against the kernel's word, one class: the evidence has its maximum at a small scale.
    root = np.array([[1.0, 0.2], [1.0, -0.2], [0.9, 0.1]])
    y = np.array([0, 1, 0])
    kernel = Linear(log_scale=3.0).double()
    optimiser = torch.optim.Adam(kernel.parameters(), lr=0.3)

    def evidence(log_scale):
        return one_vs_each_posterior(np.exp(log_scale) / 2 * root @ root.T, y, 2, 40).log_evidence

    for step in range(80):
        optimiser.zero_grad()
        value = marginal_likelihood(
            OneVsEachGP(), kernel, tensor(root), tensor(y), 2, n_chains=50, n_steps=8, seed=step
        )
        (-value).backward()
        optimiser.step()
    best = max(evidence(s) for s in np.linspace(-6, 4, 41))
    assert evidence(3.0) < best - 0.05
    assert evidence(kernel.log_scale.item()) > best - 0.01


@pytest.mark.parametrize("name", ["one-vs-each", "logistic-softmax"])
def test_sampled_slopes_of_the_log_marginal_have_the_exact_one_as_their_mean(name):
    model, task, n_chains = MODELS[name], make_task(n=6, n_way=3, log_scale=1.0, seed=2), 4000
    K, mean = tensor(task.K), tensor(task.mean)
    sites = gibbs(model, K, task.labels, 3, n_chains=1, n_steps=2, mean=mean, latent=False, seed=0).draws
    many = Sites(*(part.expand(n_chains, -1, -1) for part in sites))
    prior = Prior(K, tensor(task.root), torch.zeros(1, 6, 3, dtype=K.dtype))
    probes = draw_probes(model, prior, task.labels, many.omega, [np.random.default_rng(1)])
    value, a, slopes = model.marginal(K, task.labels, many, mean, probes)
    exact = model.marginal(K, task.labels, sites, mean)
    assert_close(array(value), np.full(n_chains, array(exact.value)), 1e-10)
    assert_close(array(a[:1]), array(exact.a), 1e-10)
    assert_mean(array(slopes), array(exact.slope)[0])


def test_the_sampled_objective_has_the_value_of_the_exact_one_and_another_slope():
    kernel, (x, y, _, _) = RBF().double(), episode()
    results = []
    for slope in ("exact", "sampled"):
        kernel.zero_grad()
        value = marginal_likelihood(OneVsEachGP(), kernel, x, y, N_WAY, slope=slope, **OPTIONS)
        value.backward()
        results.append((value.item(), kernel.log_scale.grad.item()))
    (exact, exact_slope), (sampled, sampled_slope) = results
    assert sampled == pytest.approx(exact, rel=1e-10)
    assert sampled_slope != pytest.approx(exact_slope, rel=1e-3)


def test_ml_grows_with_the_scale_without_end_only_if_the_chains_start_from_a_draw_of_the_prior():
    # Classes differ by less than examples do in six directions that have nothing to do with them.
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(4).repeat_interleave(8)
    shared, of_class, own, directions, rest = (
        torch.randn(n, d, generator=generator).double() for n, d in ((1, 100), (4, 100), (32, 6), (6, 100), (32, 100))
    )
    x = 0.6 * shared + 0.2 * of_class[y] + 0.3 * own @ directions + 0.3 * rest

    def slope(log_scale, start, n_steps=1):
        kernel = Cosine(log_scale).double()
        marginal_likelihood(
            OneVsEachGP(), kernel, x, y, 4, start=start, n_steps=n_steps, n_chains=100, seed=0
        ).backward()
        return kernel.log_scale.grad.item() / len(y)

    assert slope(0.0, variational_start) == pytest.approx(slope(0.0, propagation_start, 30), rel=0.05)
    for log_scale in (6.0, 8.0):
        assert abs(slope(log_scale, propagation_start, 30)) < 0.1
        assert slope(log_scale, "prior") > 0.8
        assert -0.5 < slope(log_scale, variational_start) < -0.05
        assert slope(log_scale, "mean") < -0.5


@pytest.mark.parametrize(("n", "n_way", "nodes"), [(3, 2, 40), (2, 3, 24)])
def test_ml_of_chains_that_start_at_the_mean_is_jensen_s_bound_of_the_evidence(n, n_way, nodes):
    task, model = make_task(n, n_way, log_scale=1.0, seed=1), OneVsEachGP()
    K, options = tensor(task.K), {"n_steps": 1, "start": "mean", "latent": False, "seed": 0}
    sites = gibbs(model, K, task.labels, n_way, n_chains=100_000, **options).draws
    evidence = one_vs_each_posterior(task.K, task.y, n_way, nodes).log_evidence
    ratio = array(model.log_marginal(K, task.labels, sites)) - evidence
    assert_mean(np.exp(ratio), 1.0)
    assert ratio.mean() < -0.01
