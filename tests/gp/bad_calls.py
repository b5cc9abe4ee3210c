"""Calls with wrong shapes or names, for a process without the type and shape checks of the test run.

`outcomes` says there what each of them raises, because users run without the jaxtyping hook.
"""

import numpy as np
import torch

from polyshot.gp import (
    Cosine,
    Logits,
    OneVsEachGP,
    Prior,
    Sites,
    class_log_probs,
    draw_latent,
    fit_propagation,
    fit_tied_propagation,
    fit_variational,
    gibbs,
    marginal_likelihood,
    predict,
    predictive_likelihood,
    sample_polya_gamma,
)

MODEL = OneVsEachGP()
K = torch.eye(3).double()
Y = torch.tensor([0, 1, 0])
SITES = Sites(torch.full((1, 3, 2), 0.2).double(), torch.full((1, 3, 2), 0.5).double())
LOGITS = Logits(torch.zeros(3, 1, 2).double(), torch.eye(2).double().expand(3, 1, 2, 2))
PRIOR = Prior(K, K, torch.zeros(1, 3, 2).double())
X, X_QUERY = torch.randn(3, 4), torch.randn(2, 4)

CALLS = {
    "K not square": lambda: gibbs(MODEL, torch.ones(3, 2), Y, 2),
    "K a vector": lambda: gibbs(MODEL, torch.ones(3), Y, 2),
    "too few labels": lambda: gibbs(MODEL, K, Y[:2], 2),
    "labels a matrix": lambda: gibbs(MODEL, K, Y[:, None], 2),
    "labels one-hot": lambda: gibbs(MODEL, K, torch.eye(2)[Y].long(), 2),
    "labels fractions": lambda: gibbs(MODEL, K, Y + 0.5, 2),
    "batch of labels of another size": lambda: gibbs(MODEL, K.expand(2, 3, 3), Y.expand(4, 3), 2),
    "mean of another size": lambda: gibbs(MODEL, K, Y, 2, mean=torch.zeros(4, 2)),
    "root of another size": lambda: gibbs(MODEL, K, Y, 2, root=torch.ones(4, 2)),
    "variational K not square": lambda: fit_variational(MODEL, torch.ones(3, 2), Y, 2),
    "variational start of another size": lambda: fit_variational(MODEL, K, Y, 2, start=torch.ones(2, 2)),
    "sites of another size": lambda: predict(
        MODEL, K, Y, Sites(SITES.omega[:, :2], SITES.kappa[:, :2]), torch.ones(2, 3), torch.ones(2)
    ),
    "K_star transposed": lambda: predict(MODEL, K, Y, SITES, torch.ones(3, 2), torch.ones(2)),
    "k_star_star of another size": lambda: predict(MODEL, K, Y, SITES, torch.ones(2, 3), torch.ones(3)),
    "features without labels": lambda: marginal_likelihood(MODEL, Cosine(), X, Y[:2], 2),
    "features a vector": lambda: marginal_likelihood(MODEL, Cosine(), X[0], Y, 2),
    "queries without labels": lambda: predictive_likelihood(MODEL, Cosine(), X, Y, X_QUERY, Y, 2),
    "queries of another width": lambda: predictive_likelihood(MODEL, Cosine(), X, Y, X_QUERY[:, :3], Y[:2], 2),
    "an unknown rule": lambda: predict(MODEL, K, Y, SITES, torch.ones(2, 3), torch.ones(2), rule="softmax"),
    "an unknown start": lambda: gibbs(MODEL, K, Y, 2, start="posterior"),
    "an unknown slope": lambda: marginal_likelihood(MODEL, Cosine(), X, Y, 2, slope="rough"),
    "an unknown average": lambda: predictive_likelihood(MODEL, Cosine(), X, Y, X_QUERY, Y[:2], 2, average="mode"),
    "weights a vector": lambda: OneVsEachGP(torch.ones(2)),
    "noise for other chains": lambda: class_log_probs(
        LOGITS, MODEL.likelihood, "monte-carlo", noise=torch.ones(2, 4, 2)
    ),
    "no iterations": lambda: fit_variational(MODEL, K, Y, 2, max_iterations=0),
    "no sweeps": lambda: fit_propagation(MODEL, K, Y, 2, max_sweeps=0),
    "no tied sweeps": lambda: fit_tied_propagation(K, Y, 2, max_sweeps=0),
    "a label beyond the classes": lambda: draw_latent(MODEL, PRIOR, Y + 60, SITES, [np.random.default_rng(0)]),
    "b and c of two sizes": lambda: sample_polya_gamma(torch.ones(2).long(), torch.ones(3)),
}


def outcome(call) -> str:
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "nothing"


def outcomes() -> dict[str, str]:
    return {name: outcome(call) for name, call in CALLS.items()}
