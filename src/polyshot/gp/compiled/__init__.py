"""Inner loops compiled by numba."""
