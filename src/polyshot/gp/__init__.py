"""The mathematics of GP classification: tensors in, tensors out. It knows no image, episode, file or command.

Shapes are [*batch, M, N, C] throughout: any leading batch of tasks with the same shape, M chains, N support examples,
C classes. docs/notation.md maps the paper's symbols to these names. Everything for use outside is in `__all__`.
"""

from polyshot.gp.arrays import as_array, as_tensor
from polyshot.gp.conformal import conformal_p, misfits, strangeness
from polyshot.gp.graph_kernel import Deformation, deformation, graph_laplacian, nearest_neighbours
from polyshot.gp.inference.diagnostics import effective_sample_size, split_r_hat
from polyshot.gp.inference.feature_propagation import FactoredKernel, FeatureConditional, feature_space_is_cheaper
from polyshot.gp.inference.gibbs import Chain, GibbsState, Prior, Start, draw_latent, draw_prior, gibbs, gibbs_states
from polyshot.gp.inference.leave_one_out import (
    NUMBERS_AT_ONCE,
    leave_one_out_likelihood,
    leave_one_out_log_probs,
    leave_one_out_of_all,
)
from polyshot.gp.inference.mixture import Queries, SiteMixture, grown_sites
from polyshot.gp.inference.propagation import Propagation, fit_propagation, log_evidence, propagation_start
from polyshot.gp.inference.tied_conditional import TiedConditional
from polyshot.gp.inference.tied_posterior import KernelMatrix, TiedPropagation
from polyshot.gp.inference.tied_propagation import fit_tied_propagation
from polyshot.gp.inference.variational import Variational, elbo, fit_variational, variational_start
from polyshot.gp.informative import most_informative
from polyshot.gp.kernels import (
    KERNELS,
    RBF,
    ConstantMean,
    Cosine,
    CosineRBF,
    DKTCosine,
    Kernel,
    Linear,
    NormalizedRBF,
    make_kernel,
    unit_rows,
)
from polyshot.gp.likelihoods import LIKELIHOODS, Gaussian, Likelihood, LogisticSoftmax, OneVsEach, Rule, Softmax
from polyshot.gp.line_search import climb
from polyshot.gp.models.base import CHUNK_BYTES, GPModel, chain_chunks
from polyshot.gp.models.least_squares import LeastSquaresGP
from polyshot.gp.models.logistic_softmax import LogisticSoftmaxGP
from polyshot.gp.models.one_vs_each import OneVsEachConditional, OneVsEachGP
from polyshot.gp.models.posterior import Conditional, Logits, Sites, one_hot, psd_root
from polyshot.gp.none_class import fit_with_none
from polyshot.gp.objectives import Average, SiteSource, Slope, marginal_likelihood, predictive_likelihood
from polyshot.gp.polya_gamma import polya_gamma_mean, sample_polya_gamma
from polyshot.gp.probabilities import class_log_probs, predict, sobol_normal
from polyshot.gp.seeds import Seed, Seeds, as_generator, as_generators
from polyshot.gp.sigmoid_expectations import expected_log_sigmoid, log_expected_sigmoid
from polyshot.gp.validation import check_finite_tensor

__all__ = [
    "CHUNK_BYTES",
    "KERNELS",
    "LIKELIHOODS",
    "NUMBERS_AT_ONCE",
    "RBF",
    "Average",
    "Chain",
    "Conditional",
    "ConstantMean",
    "Cosine",
    "CosineRBF",
    "DKTCosine",
    "Deformation",
    "FactoredKernel",
    "FeatureConditional",
    "GPModel",
    "Gaussian",
    "GibbsState",
    "Kernel",
    "KernelMatrix",
    "LeastSquaresGP",
    "Likelihood",
    "Linear",
    "LogisticSoftmax",
    "LogisticSoftmaxGP",
    "Logits",
    "NormalizedRBF",
    "OneVsEach",
    "OneVsEachConditional",
    "OneVsEachGP",
    "Prior",
    "Propagation",
    "Queries",
    "Rule",
    "Seed",
    "Seeds",
    "SiteMixture",
    "SiteSource",
    "Sites",
    "Slope",
    "Softmax",
    "Start",
    "TiedConditional",
    "TiedPropagation",
    "Variational",
    "as_array",
    "as_generator",
    "as_generators",
    "as_tensor",
    "chain_chunks",
    "check_finite_tensor",
    "class_log_probs",
    "climb",
    "conformal_p",
    "deformation",
    "draw_latent",
    "draw_prior",
    "effective_sample_size",
    "elbo",
    "expected_log_sigmoid",
    "feature_space_is_cheaper",
    "fit_propagation",
    "fit_tied_propagation",
    "fit_variational",
    "fit_with_none",
    "gibbs",
    "gibbs_states",
    "graph_laplacian",
    "grown_sites",
    "leave_one_out_likelihood",
    "leave_one_out_log_probs",
    "leave_one_out_of_all",
    "log_evidence",
    "log_expected_sigmoid",
    "make_kernel",
    "marginal_likelihood",
    "misfits",
    "most_informative",
    "nearest_neighbours",
    "one_hot",
    "polya_gamma_mean",
    "predict",
    "predictive_likelihood",
    "propagation_start",
    "psd_root",
    "sample_polya_gamma",
    "sobol_normal",
    "split_r_hat",
    "strangeness",
    "unit_rows",
    "variational_start",
]
