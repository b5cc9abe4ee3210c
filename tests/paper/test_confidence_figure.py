import json
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from typer.testing import CliRunner

from paper.figures import app
from paper.studies.confidence import confidence_figure, draw_confidences, summarise_confidences
from polyshot.errors import InputError

run = CliRunner().invoke


@pytest.fixture(scope="module")
def shares():
    return {row["likelihood"]: row for row in summarise_confidences(draw_confidences(20_000, seed=1))}


def test_logistic_softmax_has_little_mass_above_two_fifths(shares) -> None:
    assert shares["logistic-softmax"]["share above 0.4"] < 0.05
    assert shares["softmax"]["share above 0.4"] > 0.5


@pytest.mark.parametrize("name", ["gaussian", "one-vs-each"])
def test_gaussian_and_one_vs_each_are_over_confident_a_priori(name: str, shares) -> None:
    assert shares[name]["share above 0.8"] > 8 * shares["softmax"]["share above 0.8"]
    assert shares[name]["mean"] > shares["softmax"]["mean"] + 0.1


def test_two_class_softmax_confidence_has_its_exact_mean() -> None:
    """max p = sigmoid(|d|) with d = f1 - f2 ~ N(0, 2)."""
    exact = quad(lambda d: 2 * norm.pdf(d, scale=np.sqrt(2)) / (1 + np.exp(-d)), 0, 20)[0]
    c = draw_confidences(50_000, n_way=2)["softmax"]
    assert abs(c.mean() - exact) < 4 * c.std() / np.sqrt(len(c))


def test_the_drawn_density_integrates_to_one(tmp_path: Path) -> None:
    confidence_figure(tmp_path, 2_000)
    density = np.genfromtxt(tmp_path / "confidence_density.csv", delimiter=",", names=True)
    for name in density.dtype.names[1:]:
        assert np.trapezoid(density[name], density["confidence"]) == pytest.approx(1, abs=0.01)


def test_the_command_writes_the_same_bytes_twice(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        result = run(app, ["confidence", "--quick", "--seed", "3", "--out", str(tmp_path / folder)])
        assert result.exit_code == 0, result.output
    assert "Logistic softmax is less confident than softmax" in result.output
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert {"confidence.png", "confidence.svg", "confidence.csv", "confidence.json", "confidence.md"} <= names
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert json.loads((tmp_path / "a" / "confidence.json").read_text())["settings"]["seed"] == 3


def test_bad_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 100 draws"):
        draw_confidences(10)
    with pytest.raises(InputError, match="2 classes"):
        draw_confidences(n_way=1)
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        result = run(app, ["confidence", "--out", str(out)])
        assert result.exit_code == 1
        assert result.stderr == f"error: --out {out} is a file or lies inside one; give a folder\n"
