from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from typer.testing import CliRunner

from paper.figures import app
from paper.studies.compared import STUDIED
from paper.studies.likelihood_surfaces import likelihood_surfaces, summarise_surfaces
from polyshot.errors import InputError


@pytest.fixture(scope="module")
def rows():
    return {row["likelihood"]: row for row in summarise_surfaces(likelihood_surfaces(161))}


def test_the_gaussian_posterior_is_the_textbook_one(rows) -> None:
    row = rows["gaussian"]
    assert [row[k] for k in ("mode f1", "mode f2", "mean f1", "mean f2")] == pytest.approx([0.5, -0.5, 0.5, -0.5])
    assert [row["sd f1"], row["sd f2"], row["axis ratio"]] == pytest.approx([0.5**0.5, 0.5**0.5, 1.0])
    # N(1 | 0, 2) N(-1 | 0, 2) for f1 and f2, N(-1 | 0, 1) for f3
    assert row["log evidence"] == pytest.approx(-np.log(4 * np.pi) - 0.5 - np.log(2 * np.pi) / 2 - 0.5)


@pytest.mark.parametrize("name", list(STUDIED))
def test_modes_and_evidence_agree_with_an_optimiser_and_gauss_hermite(name: str, rows) -> None:
    def log_likelihood(f: np.ndarray) -> np.ndarray:
        full = torch.from_numpy(np.concatenate([f, np.zeros((*f.shape[:-1], 1))], -1))
        return STUDIED[name]().log_all(full)[..., 0].numpy()

    best = minimize(lambda f: f @ f / 2 - float(log_likelihood(f)), np.zeros(2), tol=1e-10)
    assert [rows[name]["mode f1"], rows[name]["mode f2"]] == pytest.approx(best.x, abs=1e-3)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1)
    evidence = (np.outer(weights, weights) / (2 * np.pi) * np.exp(log_likelihood(grid))).sum()
    assert rows[name]["log evidence"] == pytest.approx(np.log(evidence), abs=1e-6)


def test_what_the_paper_sees_in_its_two_figures(rows) -> None:
    softmax, gaussian, lsm, ove = (rows[k] for k in ("softmax", "gaussian", "logistic-softmax", "one-vs-each"))
    assert max(gaussian["sd f1"], gaussian["sd f2"]) < min(r["sd f1"] for r in (softmax, lsm, ove))
    assert lsm["sd f1"] * lsm["sd f2"] > softmax["sd f1"] * softmax["sd f2"]
    assert lsm["range of log L"] < softmax["range of log L"]
    assert ove["KL to softmax"] < lsm["KL to softmax"] < gaussian["KL to softmax"]
    assert ove["axis ratio"] > softmax["axis ratio"]
    assert ove["origin / best"] < softmax["origin / best"]


def test_the_command_writes_figure_numbers_and_words(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["likelihoods", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert {p.name for p in tmp_path.iterdir()} == {f"likelihoods.{end}" for end in ("png", "svg", "csv", "json", "md")}
    assert "Closest to softmax's posterior (KL): One-vs-each" in (tmp_path / "likelihoods.md").read_text()


def test_a_grid_too_coarse_for_the_quadrature_is_refused() -> None:
    with pytest.raises(InputError, match="n_points >= 41, not 9"):
        likelihood_surfaces(9)
