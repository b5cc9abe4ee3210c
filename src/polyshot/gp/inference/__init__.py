"""Methods of inference: Gibbs chains, the variational posterior, expectation propagation; and chain diagnostics."""
