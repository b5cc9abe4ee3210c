"""Ways to a posterior: Gibbs chains, the variational posterior, expectation propagation; and chain diagnostics."""
