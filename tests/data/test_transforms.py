import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from polyshot.data.transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    NaturalTest,
    NaturalTrain,
    color_jitter,
    crop_resize,
    random_boxes,
    scale_characters,
)


def _photos(n: int, side: int) -> torch.Tensor:
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (n, 6, 6, 3), dtype=np.uint8)
    smooth = [np.asarray(Image.fromarray(s).resize((side, side), Image.Resampling.BICUBIC)) for s in small]
    return torch.from_numpy(np.stack(smooth)).permute(0, 3, 1, 2).contiguous()


def _denormalize(x: torch.Tensor) -> torch.Tensor:
    return (x * torch.tensor(IMAGENET_STD)[:, None, None] + torch.tensor(IMAGENET_MEAN)[:, None, None]) * 255


def test_characters_are_scaled_and_nothing_else() -> None:
    x = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    assert torch.allclose(scale_characters(x, np.random.default_rng(0)) * 255, x.float())


@pytest.mark.parametrize("side", [64, 84, 96, 150])
def test_the_test_transform_is_pillows_resize_and_centre_crop(side: int) -> None:
    photos = _photos(3, side)
    found = _denormalize(NaturalTest(84)(photos, np.random.default_rng(0)))
    for photo, ours in zip(photos, found, strict=True):
        image = Image.fromarray(photo.permute(1, 2, 0).numpy()).resize((96, 96), Image.Resampling.BILINEAR)
        expected = np.asarray(image.crop((6, 6, 90, 90))).transpose(2, 0, 1)
        assert np.abs(ours.numpy() - expected).max() <= 1.01


def test_the_jitter_is_pillows_enhancement() -> None:
    photos = _photos(4, 40)
    factors = torch.from_numpy(np.random.default_rng(1).uniform(0.6, 1.4, (3, 4, 1, 1, 1)).astype(np.float32))
    found = color_jitter(photos / 255, factors) * 255
    for i, photo in enumerate(photos):
        image = Image.fromarray(photo.permute(1, 2, 0).numpy())
        enhancers = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
        for enhancer, factor in zip(enhancers, factors[:, i].flatten().tolist(), strict=True):
            image = enhancer(image).enhance(factor)
        assert np.abs(found[i].permute(1, 2, 0).numpy() - np.asarray(image)).max() <= 4


def test_a_crop_of_the_whole_image_changes_nothing_and_a_flip_mirrors() -> None:
    photos = _photos(2, 84) / 255
    box = torch.tensor([[0.5, 0.5, 1, 1]]).repeat(2, 1)
    found = crop_resize(photos, box, torch.tensor([1.0, -1.0]), 84)
    assert torch.allclose(found[0], photos[0], atol=1e-4)
    assert torch.allclose(found[1], photos[1].flip(2), atol=1e-4)


def test_a_crop_shows_its_box() -> None:
    x = torch.linspace(0, 1, 100)[None, None, None].expand(1, 1, 50, 100)
    found = crop_resize(x, torch.tensor([[0.25, 0.5, 0.2, 0.4]]), torch.ones(1), 40)
    assert abs(float(found[0, 0, 0, 0]) - 0.15) < 0.01
    assert abs(float(found[0, 0, 0, -1]) - 0.35) < 0.01


def test_random_boxes_lie_in_the_image_with_inceptions_areas_and_aspects() -> None:
    x, y, w, h = random_boxes(4000, 84, 84, np.random.default_rng(0)).T
    for centre, side in ((x, w), (y, h)):
        assert (centre - side / 2 >= -1e-6).all()
        assert (centre + side / 2 <= 1 + 1e-6).all()
    area, aspect = w * h, w / h
    assert area.min() >= 0.08
    assert area.max() <= 1
    assert aspect.min() > 0.74
    assert aspect.max() < 1.34
    assert 0.4 < area.mean() < 0.55


def test_training_photographs_vary_with_the_generator_alone() -> None:
    photos = _photos(5, 64)
    transform = NaturalTrain(84)
    once, again = (transform(photos, np.random.default_rng(2)) for _ in range(2))
    assert torch.equal(once, again)
    assert once.shape == (5, 3, 84, 84)
    assert not torch.equal(once, transform(photos, np.random.default_rng(3)))
    pixels = _denormalize(once)
    assert pixels.min() > -0.01
    assert pixels.max() < 255.01
