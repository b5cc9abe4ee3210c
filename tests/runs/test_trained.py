import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import polyshot
from polyshot.cli import app
from polyshot.data.transforms import NaturalTest, scale_characters
from polyshot.errors import DataError, InputError, TrainingError
from polyshot.runs.inputs import Intake
from polyshot.runs.prediction_files import read_queries
from polyshot.runs.trainer import train
from polyshot.system.versions import package_versions
from polyshot.task import LabelledSet, Space
from small_runs import CHARACTERS, drawings, small, write_characters, write_embeddings

CLASSES = ("ant", "bee", "cow")


@pytest.fixture(scope="module")
def characters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("characters")
    return train(small("protonet", CHARACTERS), folder / "run", write_characters(folder))


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embeddings")
    return train(small("ove-gp", f"embeddings:{write_embeddings(folder / 'own.npz')}"), folder / "run")


def task() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Support images of three classes and their labels, and a query a class, uint8 [n, 28, 28]."""
    images, labels = drawings(3, 4, 7)
    return images[labels.argsort(kind="stable")][np.arange(12) % 4 > 0], np.repeat(CLASSES, 3), images[::4]


def write_images(folder: Path, dark_ink: bool, enlarged: bool = False) -> list[str]:
    """The task as PNGs in folder/support and folder/query; the options of `polyshot predict`."""
    support, names, query = task()
    files = [folder / "support" / name / f"{i}.png" for i, name in enumerate(names)]
    files += [folder / "query" / "sub" / f"{i}.png" for i in range(len(query))]
    for file, pixels in zip(files, [*support, *query], strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        image = 255 - pixels if dark_ink else pixels
        if enlarged:  # grey paper, off the middle
            image = np.pad(60 + np.kron(image // 2, np.ones((3, 3), np.uint8)), ((40, 3), (0, 9)), mode="edge")
        Image.fromarray(image).save(file)
    return ["--support", str(folder / "support"), "--query", str(folder / "query"), "--out", str(folder / "out")]


def predictions(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "out" / "predictions.json").read_text())
    return content


@pytest.mark.parametrize("dark_ink", [False, True])
def test_folders_of_either_polarity_give_what_the_method_itself_gives(
    dark_ink: bool, characters: Path, tmp_path: Path
) -> None:
    result = CliRunner().invoke(app, ["predict", str(characters), *write_images(tmp_path, dark_ink)])
    assert result.exit_code == 0, result.output
    support, names, query = task()
    run = polyshot.load(characters)
    rng = np.random.default_rng(0)
    x, xq = (scale_characters(torch.from_numpy(part)[:, None], rng) for part in (support, query))
    y = torch.tensor([CLASSES.index(name) for name in names])
    expected = run.method.adapt(LabelledSet(x, y), 3, 0)(xq)
    content = predictions(tmp_path)
    entries = content["predictions"]
    probabilities = torch.tensor([[entry["probabilities"][name] for name in CLASSES] for entry in entries])
    torch.testing.assert_close(probabilities, expected.log_probs.exp())
    scores = torch.tensor([entry["out_of_episode_score"] for entry in entries])
    torch.testing.assert_close(scores, -expected.scores.amax(-1))
    assert [entry["query"] for entry in entries] == ["sub/0.png", "sub/1.png", "sub/2.png"]
    assert content["images"] == ("dark ink on light paper, inverted" if dark_ink else "bright ink on dark paper")
    assert content["images"] in result.output
    assert content["configuration"] == run.config.as_dict()
    assert content["packages"] == package_versions()


def test_the_csv_says_the_same_as_the_json_and_the_table(characters: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["predict", str(characters), *write_images(tmp_path, True)])
    with (tmp_path / "out" / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, entry in zip(rows, predictions(tmp_path)["predictions"], strict=True):
        assert list(row) == [
            "query",
            "predicted",
            "confidence",
            "out_of_episode_score",
            "familiarity",
            *(f"p({c})" for c in CLASSES),
        ]
        assert float(row["confidence"]) == entry["confidence"] == max(entry["probabilities"].values())
        assert {c: float(row[f"p({c})"]) for c in CLASSES} == entry["probabilities"]
        assert sum(entry["probabilities"].values()) == pytest.approx(1)
        assert entry["probabilities"][row["predicted"]] == entry["confidence"]
        assert row["query"] in result.output
        assert f"{entry['confidence']:.3f}" in result.output
    assert "minus the largest class score" in result.output


def test_scans_of_another_size_are_stretched_and_centred() -> None:
    pixels = np.full((90, 120), 200, np.uint8)
    pixels[10:50, 70:74] = 80  # a dark stroke on grey paper, off the middle
    intake = Intake.fitting(Space((1, 28, 28), 2), pixels[None])
    (character,) = intake(pixels[None])
    assert intake.dark_ink
    assert character.shape == (1, 28, 28)
    ink = np.argwhere(character[0].numpy() > 0.5)
    assert np.allclose(ink.mean(0), 13.5, atol=0.6)
    assert 22 <= np.ptp(ink[:, 0]) <= 24
    assert character.max() == 1
    assert character[0, :, 0].max() == 0
    assert intake(np.full((1, 50, 50), 200, np.uint8)).max() == 0  # blank paper has no ink


def test_enlarged_scans_are_predicted_alike_in_both_polarities(characters: Path, tmp_path: Path) -> None:
    found = []
    for dark_ink in (False, True):
        folder = tmp_path / str(dark_ink)
        result = CliRunner().invoke(app, ["predict", str(characters), *write_images(folder, dark_ink, enlarged=True)])
        assert result.exit_code == 0, result.output
        found.append([list(entry["probabilities"].values()) for entry in predictions(folder)["predictions"]])
    assert np.allclose(found[0], found[1], atol=0.02)


def test_photographs_are_cropped_resized_and_normalised(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 96, 96), np.uint8)
    intake = Intake.fitting(Space((3, 84, 84), 2), pixels)
    expected = NaturalTest(84)(torch.from_numpy(pixels), np.random.default_rng(0))
    torch.testing.assert_close(intake(pixels), expected)
    torch.testing.assert_close(intake(np.pad(pixels, ((0, 0), (0, 0), (0, 0), (5, 5)))), expected)
    Image.fromarray(pixels[0].transpose(1, 2, 0)).save(tmp_path / "a.png")
    torch.testing.assert_close(intake([tmp_path / "a.png"]), expected[:1])
    torch.testing.assert_close(intake(expected), expected)
    assert intake.note == ""


def test_transparent_pixels_are_white(tmp_path: Path) -> None:
    ink = drawings(1, 1, 0)[0][0]
    rng = np.random.default_rng(0)
    hidden = np.where(ink > 0, 0, rng.integers(0, 256, ink.shape)).astype(np.uint8)  # what no one is to see
    Image.fromarray(np.dstack([hidden, hidden, hidden, ink])).save(tmp_path / "rgba.png")
    Image.fromarray(np.dstack([hidden, ink])).save(tmp_path / "la.png")
    Image.fromarray(np.where(ink > 0, 0, 100).astype(np.uint8)).save(tmp_path / "key.png", transparency=100)
    Image.fromarray(255 - ink).save(tmp_path / "opaque.png")
    files = [tmp_path / f"{name}.png" for name in ("rgba", "la", "key", "opaque")]
    for shape in ((1, 28, 28), (3, 84, 84)):
        intake = Intake.fitting(Space(shape, 2), files)
        *transparent, opaque = intake(files)
        assert intake.dark_ink == (shape[0] == 1)
        assert all(torch.equal(image, opaque) for image in transparent)
    Image.new("RGBA", (84, 84), (0, 100, 200, 51)).save(tmp_path / "veil.png")  # a fifth of the colour, the rest white
    Image.new("RGB", (84, 84), (204, 224, 244)).save(tmp_path / "mixed.png")
    veil, mixed = intake([tmp_path / "veil.png", tmp_path / "mixed.png"])
    assert torch.equal(veil, mixed)


@pytest.mark.parametrize("kind", [str, int, torch.tensor, np.array])
def test_labels_of_any_kind_come_back(kind: Any, embeddings: Path) -> None:
    rng = np.random.default_rng(0)
    x = np.repeat(np.eye(8)[:3], 4, axis=0) + rng.normal(0, 0.05, (12, 8))
    numbers = np.repeat([30, 7, 12], 4)
    y = [kind(number) for number in numbers.tolist()] if kind in (str, int) else kind(numbers)
    adapted = polyshot.load(str(embeddings)).adapt(x, y)
    answer = adapted.predict(torch.eye(8)[:3])
    assert answer.labels == [kind(n) if kind is str else n for n in (30, 7, 12)]
    assert adapted.class_names == tuple(sorted(set(y.tolist() if hasattr(y, "tolist") else y)))
    torch.testing.assert_close(answer.probabilities.sum(-1), torch.ones(3, dtype=answer.probabilities.dtype))
    assert torch.equal(answer.confidence, answer.log_probs.exp().max(-1).values)
    assert torch.equal(answer.out_of_episode, -answer.scores.max(-1).values)


def test_an_npz_of_embeddings_is_predicted_and_long_lists_are_cut(embeddings: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(50, 8)).astype(np.float32)
    np.savez(tmp_path / "s.npz", X=X[:5], labels=[1, 0, 1, -1, 0], class_names=["no", "yes"])
    np.savez(tmp_path / "q.npz", X=X)
    command = ["predict", str(embeddings), "--support", str(tmp_path / "s.npz"), "--query", str(tmp_path / "q.npz")]
    result = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "out"), "--seed", "3"])
    assert result.exit_code == 0, result.output
    assert "40 of 50 queries shown" in result.output
    assert "row 39" in result.output
    assert "row 40" not in result.output
    content = predictions(tmp_path)
    run = polyshot.load(embeddings)
    keep = [0, 1, 2, 4]
    expected = run.method.adapt(LabelledSet(torch.from_numpy(X[keep]), torch.tensor([1, 0, 1, 0])), 2, 3)(
        torch.from_numpy(X)
    )
    assert [e["probabilities"]["yes"] for e in content["predictions"]] == pytest.approx(
        expected.log_probs.exp()[:, 1].tolist()
    )
    assert content["seed"] == 3


def test_many_queries_are_predicted_as_each_alone(embeddings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(2).normal(size=(9, 8))
    adapted = polyshot.load(embeddings).adapt(x[:4], ["a", "b", "a", "b"])
    whole = adapted.predict(x)
    monkeypatch.setattr("polyshot.runs.trained._AT_ONCE", 2)
    torch.testing.assert_close(adapted.predict(x).log_probs, whole.log_probs)


def test_missing_and_unfinished_runs_are_errors(embeddings: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="not a run folder of polyshot"):
        polyshot.load(tmp_path / "nothing")
    (tmp_path / "config.json").write_bytes((embeddings / "config.json").read_bytes())
    with pytest.raises(TrainingError, match=r"no best\.safetensors: no epoch was validated.*`polyshot train --out"):
        polyshot.load(tmp_path)


@pytest.mark.parametrize(
    ("support", "query", "message"),
    [
        ("missing", "query", "missing: no such file"),
        ("support", "missing", "missing: no such file"),
        ("empty", "query", "no sub-folders"),
        ("support", "empty", "holds no images to predict"),
        ("one", "query", "two classes or more; this one has ['ant']"),
        ("support", "broken", "torn.png"),
        ("broken", "query", "torn.png"),
        ("x.npz", "query", "the run takes image files, uint8 images [n, h, w]"),
        ("support", "x.npz", "got torch.float32 [4, 8]"),
        ("support", "none.npz", "one of the fields images, jpeg and X, but it has Y"),
        ("none.npz", "query", "one of the fields images, jpeg and X, but it has Y"),
    ],
)
def test_wrong_input_is_an_error_that_names_it(
    support: str, query: str, message: str, characters: Path, tmp_path: Path
) -> None:
    write_images(tmp_path, True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "one").mkdir()
    (tmp_path / "support" / "ant").rename(tmp_path / "one" / "ant")
    (tmp_path / "broken" / "a").mkdir(parents=True)
    (tmp_path / "broken" / "a" / "torn.png").write_bytes(next((tmp_path / "one").rglob("*.png")).read_bytes()[:60])
    (tmp_path / "broken" / "b").mkdir()
    (tmp_path / "broken" / "b" / "whole.png").write_bytes(next((tmp_path / "one").rglob("*.png")).read_bytes())
    np.savez(tmp_path / "x.npz", X=np.ones((4, 8), np.float32), labels=[0, 1, 0, 1])
    np.savez(tmp_path / "none.npz", Y=np.ones(3))
    names = ["--support", str(tmp_path / support), "--query", str(tmp_path / query), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["predict", str(characters), *names])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_wrong_arrays_are_errors(embeddings: Path, characters: Path, tmp_path: Path) -> None:
    run = polyshot.load(embeddings)
    x, y = np.random.default_rng(0).normal(size=(4, 8)), [0, 1, 0, 1]
    for bad, labels, message in [
        (x[:, :5], y, r"takes embeddings \[n, 8\]; got torch.float64 \[4, 5\]"),
        (["a.png"] * 4, y, r"takes embeddings \[n, 8\]; got image files"),
        (x, [0, 1, 0], "4 support examples and 3 labels"),
        (x, [0, 0, 0, 0], "two classes or more"),
        (x, [0, "one", 0, 1], "all names or all numbers"),
        (x * np.nan, y, "NaN"),
    ]:
        with pytest.raises(InputError, match=message):
            run.adapt(bad, labels)
    adapted = run.adapt(x, y)
    for bad, message in ((x[:, :5], r"takes embeddings \[n, 8\]"), (x[:0], "no query"), (x * np.inf, "infinity")):
        with pytest.raises(InputError, match=message):
            adapted.predict(bad)
    np.savez(tmp_path / "empty.npz", X=np.ones((0, 8), np.float32))
    with pytest.raises(DataError, match="holds no query"):
        read_queries(tmp_path / "empty.npz")
    with pytest.raises(InputError, match=r"uint8 images \[n, h, w\]"):
        polyshot.load(characters).adapt(np.zeros((4, 3, 28, 28), np.uint8), y)
