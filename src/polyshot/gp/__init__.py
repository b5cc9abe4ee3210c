"""The mathematics: tensors in, tensors out; knows no image, episode or file.

Shapes are [*batch, M, N, C] throughout: any leading batch of tasks of one shape, M chains, N support examples,
C classes. docs/notation.md maps the paper's symbols to these names.
"""

from polyshot.gp.inference.diagnostics import effective_sample_size, split_r_hat
from polyshot.gp.inference.gibbs import Chain, GibbsState, Prior, draw_latent, draw_prior, gibbs, gibbs_step
from polyshot.gp.inference.propagation import Propagation, fit_propagation, log_evidence
from polyshot.gp.inference.variational import Variational, elbo, fit_variational
from polyshot.gp.kernels import (
    KERNELS,
    RBF,
    ConstantMean,
    Cosine,
    DKTCosine,
    Kernel,
    Linear,
    NormalizedRBF,
    make_kernel,
)
from polyshot.gp.likelihoods import LIKELIHOODS, Gaussian, Likelihood, LogisticSoftmax, OneVsEach, Softmax
from polyshot.gp.models.base import GPModel
from polyshot.gp.models.least_squares import LeastSquaresGP
from polyshot.gp.models.logistic_softmax import LogisticSoftmaxGP
from polyshot.gp.models.one_vs_each import OneVsEachGP
from polyshot.gp.models.posterior import Conditional, Logits, Sites
from polyshot.gp.objectives import marginal_likelihood, predictive_likelihood
from polyshot.gp.polya_gamma import polya_gamma_mean, sample_polya_gamma
from polyshot.gp.probabilities import class_log_probs, predict

__all__ = [
    "KERNELS",
    "LIKELIHOODS",
    "RBF",
    "Chain",
    "Conditional",
    "ConstantMean",
    "Cosine",
    "DKTCosine",
    "GPModel",
    "Gaussian",
    "GibbsState",
    "Kernel",
    "LeastSquaresGP",
    "Likelihood",
    "Linear",
    "LogisticSoftmax",
    "LogisticSoftmaxGP",
    "Logits",
    "NormalizedRBF",
    "OneVsEach",
    "OneVsEachGP",
    "Prior",
    "Propagation",
    "Sites",
    "Softmax",
    "Variational",
    "class_log_probs",
    "draw_latent",
    "draw_prior",
    "effective_sample_size",
    "elbo",
    "fit_propagation",
    "fit_variational",
    "gibbs",
    "gibbs_step",
    "log_evidence",
    "make_kernel",
    "marginal_likelihood",
    "polya_gamma_mean",
    "predict",
    "predictive_likelihood",
    "sample_polya_gamma",
    "split_r_hat",
]
