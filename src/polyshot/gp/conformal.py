"""Full conformal p-values from the least-squares GP, exact in finite samples, without a calibration split.

Vovk, Gammerman & Shafer (2005), "Algorithmic Learning in a Random World". A query gets a candidate label and joins the
N examples. Each of the N + 1 gets a score of how badly its label fits the others, by a rule that treats all of them
alike. If the candidate is the true label and the examples are exchangeable, each rank of the query's score is equally
likely, so p = share of scores at least as large as the query's is at most alpha with probability at most alpha.

Two rules are here. `misfits` uses the leave-one-out mean of GP regression on targets t, +1 for the own class and -1 for
the others. With A = (K + noise I)^-1 it has a closed form (Rasmussen & Williams 2006, equation 5.12), and a candidate
label changes only one row of the targets T, so that one inverse serves all candidates, O(N^3 + C^2 N) per query:

    mu_ik = t_ik - (A T)_ik / A_ii,      misfit_i = max_{k != y_i} mu_ik - mu_{i y_i}

`strangeness` needs no label: the mean squared distance to the three nearest others, measured by the kernel.

For the guarantee K must be made from all N + 1 alike, in a way that does not depend on their order.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from polyshot.gp.models.posterior import cholesky, one_hot

# Any number fixed in advance keeps the guarantee. This one suits a K whose variances are about one.
_NOISE = 0.1
_NEIGHBOURS = 3
_NUMBERS_AT_ONCE = 2**22
# Scores that differ only by rounding count as equal, which can only make p larger.
_EQUAL = 1e-9


def misfits(K: Float[Tensor, "m m"], y: Int[Tensor, "n"], n_way: int) -> Float[Tensor, "c m"]:
    """How badly the labels of N examples and a query, which comes last, fit: a row per candidate label of the query."""
    A = torch.cholesky_inverse(cholesky(K + _NOISE * torch.eye(len(K), dtype=K.dtype, device=K.device)))
    rows = []
    at_once = max(1, _NUMBERS_AT_ONCE // (len(K) * n_way))
    for candidates in torch.split(torch.arange(n_way, device=y.device), at_once):
        own = one_hot(torch.cat([y.expand(len(candidates), -1), candidates[:, None]], 1), n_way)
        T = 2 * own.to(K) - 1
        mu = T - A @ T / A.diagonal()[:, None]
        rows.append(mu.masked_fill(own, -torch.inf).amax(-1) - mu.masked_fill(~own, 0.0).sum(-1))
    return torch.cat(rows)


def strangeness(K: Float[Tensor, "m m"]) -> Float[Tensor, "m"]:
    """Mean squared distance of each example, and of the query, to its three nearest others."""
    variances = K.diagonal()
    distances = variances[:, None] + variances - 2 * K
    distances = distances.masked_fill(torch.eye(len(K), dtype=torch.bool, device=K.device), torch.inf)
    return distances.topk(min(_NEIGHBOURS, len(K) - 1), largest=False).values.mean(-1)


def conformal_p(scores: Float[Tensor, "*c m"], counted: Bool[Tensor, "*c m"] | None = None) -> Float[Tensor, "*c"]:
    """Share of the scores that are at least as large as the last one, the query's, which counts itself.

    `counted` restricts the comparison, for example to examples of the candidate's class (Mondrian).
    """
    as_large = scores >= scores[..., -1:] - _EQUAL
    counted = torch.ones_like(as_large) if counted is None else counted
    return (as_large & counted).sum(-1).double() / counted.sum(-1)
