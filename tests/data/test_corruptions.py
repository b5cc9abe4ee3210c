"""Our corruptions against `imagecorruptions`: the blur pixel by pixel, the noises by their distribution."""

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch

from polyshot.data import CORRUPTIONS, ClassSet, corrupt
from polyshot.data.transforms import IMAGENET_STD, NaturalTest, scale_characters

SEVERITIES = range(1, 6)


@pytest.fixture(scope="module")
def oracle() -> Callable[..., np.ndarray]:
    pytest.importorskip("cv2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("imagecorruptions").corrupt


def _picture(height: int, width: int) -> np.ndarray:
    """[h, w, 3], smooth and rough parts, saturated corners."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:height, :width]
    smooth = 127 + 120 * np.sin(y / 7)[..., None] * np.cos(x[..., None] / np.array([5, 9, 14]))
    picture = np.where((x > width // 2)[..., None], rng.integers(0, 256, (height, width, 3)), smooth)
    picture[:6, :6], picture[-6:, -6:] = 0, 255
    return picture.astype(np.uint8)


def _ours(picture: np.ndarray, name: str, severity: int, seed: int = 0) -> np.ndarray:
    x = torch.from_numpy(picture).permute(2, 0, 1)[None]
    return corrupt(x, name, severity, seed)[0].permute(1, 2, 0).numpy()


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("size", [(84, 84), (32, 47)])
def test_defocus_blur_is_the_oracles_within_one_grey_level(
    oracle: Callable[..., np.ndarray], size: tuple[int, int], severity: int
) -> None:
    picture = _picture(*size)
    expected = oracle(picture, severity=severity, corruption_name="defocus_blur")
    found = _ours(picture, "defocus_blur", severity)
    assert abs(found.astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize("severity", SEVERITIES)
def test_defocus_blur_of_small_grey_images_is_opencvs(severity: int) -> None:
    cv2 = pytest.importorskip("cv2")
    from polyshot.data.corruptions import _DISK, disk_kernel

    picture = _picture(28, 28)[:, :, :1]
    kernel = disk_kernel(*_DISK[severity - 1]).numpy()
    expected = np.clip(cv2.filter2D(picture[:, :, 0] / 255.0, -1, kernel), 0, 1) * 255
    found = _ours(picture, "defocus_blur", severity)[:, :, 0]
    assert abs(found.astype(int) - expected.astype(np.uint8).astype(int)).max() <= 1


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", ["gaussian_noise", "impulse_noise"])
@pytest.mark.parametrize("level", [0, 60, 128, 255])
def test_noise_has_the_oracles_distribution(
    oracle: Callable[..., np.ndarray], name: str, severity: int, level: int
) -> None:
    picture = np.full((200, 200, 3), level, np.uint8)
    np.random.seed(0)  # noqa: NPY002
    expected = oracle(picture, severity=severity, corruption_name=name).ravel()
    found = _ours(picture, name, severity).ravel()
    # Kolmogorov-Smirnov for two samples of n: 1.95 sqrt(2 / n) is passed by chance once in a thousand
    bins = np.arange(257)
    distance = np.abs(np.cumsum(np.histogram(found, bins)[0] - np.histogram(expected, bins)[0])).max() / found.size
    assert distance < 1.95 * np.sqrt(2 / found.size)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 84, 84), (1, 1, 1), (3, 5, 40), (2, 9, 7)])
def test_any_size_and_number_of_channels_can_be_corrupted(name: str, shape: tuple[int, int, int]) -> None:
    images = torch.randint(0, 256, (3, *shape), dtype=torch.uint8)
    for severity in SEVERITIES:
        found = corrupt(images, name, severity, seed=1)
        assert found.shape == images.shape
        assert found.dtype == torch.uint8


@pytest.mark.parametrize("name", ["gaussian_noise", "impulse_noise"])
def test_noise_follows_from_the_seed_and_the_images_place(name: str) -> None:
    images = torch.full((4, 1, 28, 28), 128, dtype=torch.uint8)
    once = corrupt(images, name, 5, seed=3)
    assert torch.equal(once, corrupt(images, name, 5, seed=3))
    assert torch.equal(once[:2], corrupt(images[:2], name, 5, seed=3))
    assert not torch.equal(once, corrupt(images, name, 5, seed=4))
    assert not torch.equal(once[0], once[1])


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_worse_severities_change_more(name: str) -> None:
    picture = torch.from_numpy(_picture(60, 60)).permute(2, 0, 1)[None]
    change = [float((corrupt(picture, name, s, 0).float() - picture).abs().mean()) for s in SEVERITIES]
    assert change == sorted(change)
    assert change[0] > 0


def test_a_corrupted_set_corrupts_support_and_query_alike() -> None:
    x = torch.full((6, 1, 28, 28), 128, dtype=torch.uint8)
    clean = ClassSet("grey", x, torch.arange(2).repeat_interleave(3), ("a", "b"), scale_characters)
    noisy = clean.corrupted("impulse_noise", 5, seed=0)
    assert noisy.name == "grey, impulse_noise 5"
    assert torch.equal(clean.x, x)
    for image in noisy.x:
        assert 0.15 < (image != 128).float().mean() < 0.40


def test_crops_are_corrupted_after_resizing_and_cropping() -> None:
    x = torch.from_numpy(_picture(110, 96)).permute(2, 0, 1)[None].repeat(2, 1, 1, 1)
    transform, rng = NaturalTest(84), np.random.default_rng(0)
    clean = ClassSet("birds", x, torch.arange(2), ("a", "b"), transform)
    noisy = clean.corrupted("gaussian_noise", 5, seed=3, crops=True)
    seen = transform.crop(x).round().to(torch.uint8)
    assert torch.equal(noisy.x, corrupt(seen, "gaussian_noise", 5, 3))
    assert noisy.transform(noisy.x, rng).shape == (2, 3, 84, 84)
    difference = clean.transform(x, rng) - noisy.transform(seen, rng)
    assert float(difference.abs().max()) < 0.6 / 255 / min(IMAGENET_STD)  # only rounded to whole grey levels
    characters = ClassSet("grey", x[:, :1, :28, :28], torch.arange(2), ("a", "b"), scale_characters)
    both = [characters.corrupted("defocus_blur", 2, seed=0, crops=crops).x for crops in (False, True)]
    assert torch.equal(*both)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_batch_may_be_empty(name: str) -> None:
    empty = torch.zeros(0, 1, 28, 28, dtype=torch.uint8)
    assert corrupt(empty, name, 1, 0).shape == empty.shape


@pytest.mark.parametrize("level", [0, 100, 255])
def test_blur_leaves_an_even_grey_alone_in_any_batch(level: int) -> None:
    images = torch.full((130, 1, 28, 28), level, dtype=torch.uint8)
    assert torch.equal(corrupt(images, "defocus_blur", 3, 0), images)
