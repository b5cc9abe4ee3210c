"""Write the tables of the results pages and of README.md from the committed results, and draw their figures.

    make results-page

Everything between `<!-- results: PLACE TABLE -->` and `<!-- end -->` comes from the files in paper/results/PLACE.
`TABLES` of paper.tables and paper.lab_tables list the kinds of table. A test checks that the pages are what this script
makes.
"""

import re
from collections.abc import Callable
from pathlib import Path

from paper import lab_tables, tables
from paper.lab_tables import METHODS
from paper.studies.output import new_figure, save_figure
from paper.tables import BENCHMARK, FEWEST, HEADLINE, RESULTS, ROOT, label, runs_of
from polyshot.report.reliability import draw_reliability

PAGES = (ROOT / "docs" / "results.md", ROOT / "docs" / "results-notes.md", ROOT / "README.md")
TABLES: dict[str, Callable[[str], str]] = {**tables.TABLES, **lab_tables.TABLES}
FIGURES = ROOT / "docs" / "figures"
DRAWN = (
    "omniglot-to-chars74k/5-shot", "omniglot-to-chars74k/1-shot", "cub-features/5-shot", "cub-features/1-shot",
    "cub-short/5-shot",
)  # fmt: skip
BENCHMARKS = (
    "omniglot-to-emnist/5-shot", "omniglot-to-emnist/1-shot", "cub/5-shot", "cub/1-shot", "mini-imagenet/5-shot",
    "mini-imagenet-to-cub/5-shot",
)  # fmt: skip


def filled(text: str) -> str:
    """The page with every table written again."""

    def fill(match: re.Match[str]) -> str:
        place, kind = match[1], match[2]
        return f"<!-- results: {place} {kind} -->\n{TABLES[kind](place)}\n<!-- end -->"

    return re.sub(r"<!-- results: (\S+) (\S+) -->\n.*?<!-- end -->", fill, text, flags=re.DOTALL)


def draw_diagrams(place: str, stem: Path, names: tuple[str, ...] = METHODS) -> None:
    """Draw the reliability diagrams of all runs; a bin of fewer than FEWEST queries has no dot."""
    results = {run: by["accuracy"] for run, by in runs_of(place, names).items()}
    ours = [run for run in results if run.startswith("ove")]
    save_figure(draw_reliability(results, FEWEST, ours), stem)[1].unlink()


def draw_detection(place: str, stem: Path) -> None:
    """AUROC of finding queries of unknown classes by the method's own score and by the paper's; bootstrap intervals."""
    runs = {run: by for run, by in runs_of(place, BENCHMARK).items() if "out-of-episode" in by}
    figure, (axis,) = new_figure(1, 1, (7.0, 0.9 + 0.42 * len(runs)))
    bars = ((-0.2, "auroc_own", "own score", "#009E73"), (0.2, "auroc", "-max logit", "#BBBBBB"))
    for shift, measure, name, color in bars:
        found = [by["out-of-episode"].summary[measure] for by in runs.values()]
        middle = [i.estimate for i in found]
        ends = [[i.estimate - i.low for i in found], [i.high - i.estimate for i in found]]
        places = [row + shift for row in range(len(runs))]
        axis.barh(places, middle, 0.36, xerr=ends, color=color, label=name, error_kw={"linewidth": 0.8})
    axis.set_yticks(range(len(runs)), [label(*pair) for pair in runs.items()])
    axis.invert_yaxis()
    axis.set(xlim=(0.5, 1.0), xlabel="AUROC")
    figure.legend(loc="outside upper right", ncols=2, frameon=False)
    save_figure(figure, stem)[1].unlink()


def main() -> None:
    """Fill the pages and draw the figures."""
    for page in PAGES:
        page.write_text(filled(page.read_text("utf-8")), "utf-8")
    for place in DRAWN:
        draw_diagrams(place, FIGURES / f"reliability-{place.replace('/', '-')}")
    for place in (place for place in BENCHMARKS if (RESULTS / place).is_dir()):
        draw_detection(place, FIGURES / f"detection-{place.replace('/', '-')}")
        draw_diagrams(place, FIGURES / f"reliability-{place.replace('/', '-')}", HEADLINE)


if __name__ == "__main__":
    main()
