"""The paper's comparison of likelihoods (Section 5.1): library calls, and the figures that they make."""
