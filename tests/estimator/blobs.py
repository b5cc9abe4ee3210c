import numpy as np


def blobs(n_way=4, n_shot=5, n_query=10, seed=0, dim=32):
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((n_way + 2, dim))
    y, labels = np.repeat(np.arange(n_way), n_shot), np.repeat(np.arange(n_way), n_query)
    X, queries = (centres[k] + generator.standard_normal((len(k), dim)) for k in (y, labels))
    unseen = centres[n_way:].repeat(n_query, 0) + generator.standard_normal((2 * n_query, dim))
    return X, y, queries, labels, unseen
