"""Leave-one-out class probabilities of the tied posterior, in closed form: remove an example's own sites."""

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyshot.gp.inference.mixture import SiteMixture
from polyshot.gp.inference.tied_posterior import KernelMatrix, TiedPosterior, TiedPropagation, tied_conditional
from polyshot.gp.inference.tied_propagation import fit_tied_propagation
from polyshot.gp.validation import checked_weights

NUMBERS_AT_ONCE = 2**20
_MOST_ROWS = 300


def leave_one_out_log_probs(
    fit: TiedPropagation, posterior: TiedPosterior, rows: Int[Tensor, "r"]
) -> Iterator[tuple[Int[Tensor, "p"], Float[Tensor, "p c"]]]:
    """Class log-probabilities of some examples, each from all the others: parts of `rows` with their answers.

    The probabilities are the softmax of the mean logits; the parts keep the C x C covariances within bounds.
    """
    n_way = fit.kappa.shape[-1]
    for part in torch.split(rows, max(1, NUMBERS_AT_ONCE // n_way**2)):
        yield part, torch.log_softmax(posterior.leave_one_out(fit.w, fit.kappa, part), -1)


@torch.no_grad()
def leave_one_out_of_all(
    posterior: SiteMixture, example_weights: Float[Tensor, "n"] | None = None
) -> Float[Tensor, "n c"]:
    """Class log-probabilities of every example from all the others.

    Examples are left out as a whole, whatever their weights. A posterior that did not come from tied propagation
    (variational, Gibbs) is replaced by one that does.
    """
    K, y, n_way = posterior.K, posterior.y, posterior.sites.omega.shape[-1]
    if posterior.tied:
        w, kappa = posterior.sites.omega[0].amax(-1), posterior.sites.kappa[0]
        fit, conditional = TiedPropagation(w, kappa, 0.0, 0, True), tied_conditional(K, y, w, kappa)
    else:
        fit, conditional = fit_tied_propagation(K, y, n_way, example_weights=example_weights)
    parts = leave_one_out_log_probs(fit, conditional, torch.arange(len(y), device=y.device))
    return torch.cat([log_probs for _, log_probs in parts])


def leave_one_out_likelihood(
    K: KernelMatrix,
    y: Int[Tensor, "n"],
    n_way: int,
    *,
    power: float = 0.0,
    start: tuple[Float[Tensor, "n"], Float[Tensor, "n c"]] | None = None,
    example_weights: Float[Tensor, "n"] | None = None,
) -> tuple[float, TiedPropagation]:
    """Weighted sum of log p(y_i | all other examples), and the sites it was computed from.

    An example that is one of n in its class has the weight (1 - 1/n)^power; the only example of a class has none. Of
    more than 300 examples, 300 evenly spaced ones stand for all. An example of weight m counts as m examples, of which
    one is left out.
    """
    weights = checked_weights(example_weights, y)
    fit, posterior = fit_tied_propagation(
        K, y, n_way, tolerance=3e-2, max_sweeps=25, start=start, example_weights=example_weights
    )
    copies = weights.clamp(min=1.0)
    one = fit._replace(w=fit.w / copies, kappa=fit.kappa / copies[:, None])
    shots = y.bincount(weights)[y]
    rows = torch.nonzero(shots > 1).flatten()
    some = rows[torch.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).round().long()]
    total = 0.0
    for part, log_probs in leave_one_out_log_probs(one, posterior, some):
        own = log_probs.gather(-1, y[part][:, None]).squeeze(-1)
        total += float(own @ (weights[part] * (1 - 1 / shots[part]) ** power))
    return total * len(rows) / len(some), fit
