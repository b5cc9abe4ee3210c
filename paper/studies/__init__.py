"""The paper's comparison of likelihoods (Section 5.1): the computations and the figures made from them."""
