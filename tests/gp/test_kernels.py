import numpy as np
import pytest
import torch
from checks import assert_close, central_difference
from oracle import array
from peers import gpytorch

from polyshot.errors import InputError
from polyshot.gp import KERNELS, RBF, ConstantMean, Cosine, DKTCosine, Kernel, Linear, NormalizedRBF, make_kernel

PARAMETERS = {"log_scale": 0.7, "log_lengthscale": -0.3, "nu": 0.4, "log_cosine": -0.5}


def kernel_of(name: str) -> Kernel:
    """With start values unlike the default, in double."""
    kernel = KERNELS[name]().double()
    with torch.no_grad():
        for key, parameter in kernel.named_parameters():
            parameter.fill_(PARAMETERS[key])
    return kernel


def points(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def unit(x):
    return x / np.sqrt(x @ x)


# Equations of Section 4.6 and Appendix C for two vectors, as the paper prints them.
SCALE, ELL = np.exp(0.7), np.exp(-0.3)
DKT_SCALE = np.log1p(np.exp(0.7)) * np.log1p(np.exp(0.4))
FORMULAS = {
    "cosine": lambda x, z: SCALE * unit(x) @ unit(z),
    "linear": lambda x, z: SCALE / len(x) * x @ z,
    "rbf": lambda x, z: SCALE * np.exp(-((x - z) @ (x - z)) / (2 * len(x) * ELL**2)),
    "normalized-rbf": lambda x, z: SCALE * np.exp(-((unit(x) - unit(z)) @ (unit(x) - unit(z))) / (2 * ELL**2)),
    "cosine-rbf": lambda x, z: FORMULAS["rbf"](x, z) + np.exp(-0.5) * unit(x) @ unit(z),
    "dkt-cosine": lambda x, z: DKT_SCALE * unit(x) @ unit(z),
}


@pytest.fixture(params=KERNELS)
def name(request):
    return request.param


@pytest.mark.parametrize("name", FORMULAS)
def test_a_kernel_is_the_formula_of_the_paper(name):
    x, z = points(4, 6), points(3, 6, seed=1)
    expected = [[FORMULAS[name](a, b) for b in z.numpy()] for a in x.numpy()]
    assert_close(array(kernel_of(name)(x, z)), expected, 1e-13)


def test_a_kernel_matrix_is_symmetric_and_positive_semi_definite(name):
    K = kernel_of(name)(points(9, 4))
    assert_close(array(K.mT), array(K), 1e-15)  # the last bit of a matrix product may differ
    assert torch.linalg.eigvalsh(K)[0] > -1e-14 * torch.linalg.eigvalsh(K)[-1]


def test_a_kernel_of_one_set_is_that_of_the_set_with_itself(name):
    x = points(5, 4)
    assert_close(array(kernel_of(name)(x)), array(kernel_of(name)(x, x.clone())), 1e-14)


def test_the_diagonal_is_that_of_the_matrix(name):
    x = points(2, 7, 4)
    kernel = kernel_of(name)
    assert_close(array(kernel.diagonal(x)), array(kernel(x).diagonal(dim1=-2, dim2=-1)), 1e-14)


def test_features_reproduce_the_kernel_where_they_exist(name):
    kernel, x, z = kernel_of(name), points(5, 4), points(2, 4, seed=1)
    if isinstance(kernel, RBF):
        with pytest.raises(InputError, match="no finite feature map"):
            kernel.features(x)
    else:
        assert_close(array(kernel.features(x) @ kernel.features(z).mT), array(kernel(x, z)), 1e-14)


def test_leading_dimensions_are_a_batch(name):
    kernel, x, z = kernel_of(name), points(2, 3, 5, 4), points(2, 3, 6, 4, seed=1)
    for i in range(2):
        for j in range(3):
            assert_close(array(kernel(x, z)[i, j]), array(kernel(x[i, j], z[i, j])), 1e-13)


def test_gradients_of_every_parameter_and_of_the_input_equal_finite_differences(name):
    kernel, x = kernel_of(name), points(4, 3).requires_grad_()
    weight, direction = points(4, 4, seed=2), points(4, 3, seed=3)
    (kernel(x) * weight).sum().backward()
    for parameter in kernel.parameters():

        def moved(t, parameter=parameter):
            with torch.no_grad():
                parameter += t
                value = float((kernel(x) * weight).sum())
                parameter -= t
            return value

        # Fourth-order differences of step 1e-3 are good to 1e-12 of the curvature and 1e-12 of rounding.
        assert float(parameter.grad) == pytest.approx(central_difference(moved, 1e-3), rel=1e-9, abs=1e-10)
    slope = central_difference(lambda t: float((kernel(x.detach() + t * direction) * weight).sum().detach()), 1e-3)
    assert float((x.grad * direction).sum()) == pytest.approx(slope, rel=1e-8, abs=1e-9)


def test_single_precision_stays_single_and_close(name):
    kernel, x = kernel_of(name), points(6, 4)
    single = KERNELS[name]()
    single.load_state_dict(kernel.state_dict())
    K = single(x.float())
    assert K.dtype == torch.float32
    assert_close(array(K), array(kernel(x)), 1e-5)


def test_far_off_data_lose_no_digits_of_the_rbf():
    x = points(6, 4)
    # Adding 1e6 rounds x itself at 1e-10, no more may be lost.
    assert_close(array(RBF().double()(x + 1e6)), array(RBF().double()(x)), 1e-9)


@pytest.mark.parametrize("kernel", [Cosine, DKTCosine])
def test_a_zero_row_has_zero_cosine_and_no_nan_gradient(kernel):
    x = points(3, 4)
    x[1] = 0
    x.requires_grad_()
    K = kernel()(x)
    assert (K[1] == 0).all()
    assert (K[:, 1] == 0).all()
    K.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_no_row_of_the_rbf_depends_on_the_other_rows():
    x, z = points(6, 3), points(4, 3, seed=1)
    far = torch.cat([x, torch.full((1, 3), 1e12, dtype=torch.float64)])
    assert torch.equal(RBF()(far, z)[:-1], RBF()(x, z))


def test_the_rbf_of_single_precision_has_its_diagonal_at_a_short_lengthscale():
    x = 3 * points(20, 64, dtype=torch.float32)
    kernel = RBF(log_lengthscale=-4.0)
    assert torch.equal(kernel(x).diagonal(), kernel.diagonal(x))


def test_a_zero_row_gives_no_nan_in_the_normalized_rbf():
    x = torch.zeros(2, 4, requires_grad=True)
    K = NormalizedRBF()(x)
    K.sum().backward()
    assert torch.isfinite(K).all()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_cosine_similarity_does_not_depend_on_length(size):
    x = points(4, 3)
    assert_close(array(Cosine()(x * size)), array(Cosine()(x)), 1e-14)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("share", [0.9, -0.9])
def test_directions_are_seen_at_the_ends_of_the_numbers_too(dtype, share):
    x = points(5, 3, dtype=dtype)
    size = torch.finfo(dtype).max ** share / 10
    assert_close(array(Cosine()(x * size).detach().double()), array(Cosine()(x).detach().double()), 1e-6)


def test_duplicates_have_exactly_the_full_rbf_covariance():
    x = points(3, 50)[[0, 0, 1, 1, 2]] * 1e3
    K = RBF(log_lengthscale=-3.0)(x).detach()
    # Rounding of squared distances of 1e6 is 1e-10, times exp(6) / 2.
    assert float((K[0, 1] - 1).abs().max()) < 1e-7


def test_the_rbf_is_that_of_gpytorch():
    peer = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    peer.outputscale, peer.base_kernel.lengthscale = np.exp(0.7), np.sqrt(6) * np.exp(-0.3)
    x, z = points(4, 6), points(3, 6, seed=1)
    assert_close(array(kernel_of("rbf")(x, z)), array(peer(x, z).to_dense()), 1e-12)


def test_kernels_are_made_by_name_with_start_values():
    assert isinstance(make_kernel("linear", log_scale=2.0), Linear)
    assert make_kernel("rbf", log_scale=2.0, log_lengthscale=-1.0).log_lengthscale.item() == -1.0
    with pytest.raises(InputError, match=r"unknown kernel 'cosin'; choose from cosine, linear"):
        make_kernel("cosin")


class Polynomial(Kernel):
    """A kernel from outside the package: exp(alpha) (x^T z)^2, by its features x_i x_j."""

    title = "Squared"

    def features(self, x):
        return torch.exp(self.log_scale / 2) * (x[..., :, None] * x[..., None, :]).flatten(-2)


def test_a_kernel_from_outside_works_once_it_is_registered():
    KERNELS.register("squared", Polynomial)
    try:
        kernel = make_kernel("squared", log_scale=1.0)
        x = points(5, 3)
        assert_close(array(kernel(x)), np.e * array(x @ x.mT) ** 2, 1e-6)
        assert_close(array(kernel.diagonal(x)), array(kernel(x).diagonal()), 1e-12)
    finally:
        KERNELS.unregister("squared")


def test_every_kernel_has_a_title_of_its_own():
    titles = [kind.title for kind in KERNELS.values()]
    assert all(titles)
    assert len(set(titles)) == len(titles)


def test_a_constant_mean_is_zero_until_it_is_learned():
    mean = ConstantMean()
    assert mean().item() == 0
    mean().backward()
    assert float(mean.value.grad) == 1
    assert ConstantMean(-1.5)().item() == -1.5
