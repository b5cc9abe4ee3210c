"""Bayesian few-shot classification with one-vs-each Pólya-Gamma Gaussian processes."""
