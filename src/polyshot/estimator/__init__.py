"""OneVsEachClassifier: the one-vs-each GP with scikit-learn's conventions, for embeddings and a few labels a class."""

from polyshot.estimator.classifier import OneVsEachClassifier

__all__ = ["OneVsEachClassifier"]
