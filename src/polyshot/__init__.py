"""Bayesian few-shot classification with one-vs-each Pólya-Gamma Gaussian processes."""

from polyshot.estimator import OneVsEachClassifier
from polyshot.prediction import load

__all__ = ["OneVsEachClassifier", "load"]
