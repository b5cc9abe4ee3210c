import torch

from polyshot.gp import deformation, graph_laplacian, nearest_neighbours


def points(n, dim=6, seed=0):
    return torch.randn(n, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def kernel(x, z):
    return torch.exp(-torch.cdist(x, z).square() / 12)


def dense_laplacian(K, k):
    """The same graph by loops."""
    n = len(K)
    W = torch.zeros_like(K)
    for i in range(n):
        for j in sorted(range(n), key=lambda j: -K[i, j] if j != i else torch.inf)[:k]:
            W[i, j] = W[j, i] = K[i, j]
    root = W.sum(1).rsqrt()
    return torch.eye(n, dtype=K.dtype) - root[:, None] * W * root


def graph(X, k=4):
    return graph_laplacian(*nearest_neighbours(lambda rows: kernel(X[rows], X), torch.ones(len(X)).double(), k))


def test_the_laplacian_is_that_of_a_loop_over_all_pairs():
    X = points(30)
    torch.testing.assert_close(graph(X).to_dense(), dense_laplacian(kernel(X, X), 4))


def test_the_deformed_kernel_is_that_of_the_dense_formula_also_for_new_points():
    X, x, z = points(30), points(7, seed=1), points(5, seed=2)
    K, M = kernel(X, X), 3.0 * dense_laplacian(kernel(X, X), 4) @ dense_laplacian(kernel(X, X), 4)
    inner = torch.linalg.solve(torch.eye(30).double() + M @ K, M)
    bent = deformation(K, K, graph(X))
    expected = kernel(x, z) - kernel(x, X) @ inner @ kernel(X, z)
    torch.testing.assert_close(bent(kernel(x, z), kernel(x, X), kernel(z, X), 3.0), expected)
    own = 1 - torch.einsum("qi,ij,qj->q", kernel(x, X), inner, kernel(x, X))
    torch.testing.assert_close(bent.diagonal(torch.ones(7).double(), kernel(x, X), 3.0), own)


def test_landmarks_that_span_a_linear_kernel_are_enough():
    X, x = points(40), points(7, seed=1)
    L = graph(X)
    few, all_ = deformation(X @ X[:6].mT, X[:6] @ X[:6].mT, L), deformation(X @ X.mT, X @ X.mT, L)
    torch.testing.assert_close(
        few(x @ x.mT, x @ X[:6].mT, x @ X[:6].mT, 5.0), all_(x @ x.mT, x @ X.mT, x @ X.mT, 5.0), rtol=1e-6, atol=1e-8
    )


def test_points_without_neighbours_of_positive_correlation_are_left_alone():
    X = torch.eye(3, dtype=torch.float64)
    L = graph_laplacian(*nearest_neighbours(lambda rows: X[rows] @ X.mT, torch.ones(3).double(), 2))
    assert not L.to_dense().any()
