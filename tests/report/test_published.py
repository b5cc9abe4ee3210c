from importlib.resources import files

import pytest

from polyshot.methods import METHODS
from polyshot.report.published import PublishedFigure, published_figure, published_scenarios

LINES = files("polyshot.report").joinpath("published.csv").read_text("utf-8")


def test_the_figures_are_those_of_the_papers_tables() -> None:
    figure = published_figure("accuracy", "cub", 1, "ove-gp", {"objective": "ml", "kernel": "cosine"}, "accuracy")
    assert figure == PublishedFigure(0.6398, 0.0043)
    kernel = {"kernel": "normalized-rbf"}
    figure = published_figure("accuracy", "omniglot-to-emnist", 5, "ove-gp", kernel, "accuracy")
    assert figure == pytest.approx((0.8942, 0.0016))
    figure = published_figure("corruption:defocus_blur", "mini-imagenet", 5, "bayesian-maml-chaser", {}, "brier")
    assert figure == PublishedFigure(1.121, None)


def test_every_line_of_the_file_is_a_figure_of_its_own_and_the_file_names_its_source() -> None:
    lines = LINES.splitlines()
    assert "Snell & Zemel" in lines[0]
    keys = [line.rsplit(",", 2)[0] for line in lines[2:]]
    assert len(keys) == len(set(keys)) == 392


@pytest.mark.parametrize("method", [name for name in METHODS if f",{METHODS[name].title}" in LINES])
@pytest.mark.parametrize("scenario", sorted(published_scenarios()))
@pytest.mark.parametrize("shots", [1, 5])
def test_the_paper_has_every_method_with_its_settings(method: str, scenario: str, shots: int) -> None:
    figure = published_figure("accuracy", scenario, shots, method, METHODS[method].paper_options, "accuracy")
    assert figure is not None
    assert 0.2 < figure.value < 1


@pytest.mark.parametrize(
    ("table", "scenario", "method", "options"),
    [
        ("accuracy", "omniglot-to-chars74k", "ove-gp", {"kernel": "cosine"}),
        ("accuracy", "cub", "ove-gp", {}),
        ("accuracy", "cub", "ove-gp", {"kernel": "dkt-cosine"}),
        ("accuracy", "cub", "dkt", {"kernel": "cosine"}),
        ("corruption:defocus_blur", "cub", "maml", {}),
        ("accuracy", "cub", "a method of my own", {}),
    ],
)
def test_what_the_paper_does_not_have_is_none(table: str, scenario: str, method: str, options: dict[str, str]) -> None:
    assert published_figure(table, scenario, 5, method, options, "accuracy") is None
