"""Paired comparisons of results on the same episodes, and their files comparison.json and comparison.csv."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polyshot.evaluation.comparison import PairedComparison, compare_paired
from polyshot.evaluation.protocols import ProtocolSettings
from polyshot.evaluation.results import Result, to_json
from polyshot.evaluation.typed_json import encode, rounded
from polyshot.system.files import write_atomically
from polyshot.system.sealed import digest
from polyshot.system.text import csv_cell

COMPARISON_FORMAT = "polyshot-comparison-2"


@dataclass(frozen=True)
class ResultComparison:
    """Two results on the same episodes, compared by every measure that both have per episode.

    Attributes
    ----------
    run, against : str
        Labels of the two results; differences are `run` minus `against`.
    scenario : str
    settings : ProtocolSettings
    measures : dict of PairedComparison
        By name of the measure.
    """

    run: str
    against: str
    scenario: str
    settings: ProtocolSettings
    measures: dict[str, PairedComparison]


def compare(result: Result, against: Result, measure: str) -> PairedComparison | None:
    """Compare two results by a measure, result minus against; None without per-episode figures of the same episodes."""
    if (result.settings, result.test_data) != (against.settings, against.test_data):
        return None
    if measure not in result.episodes or measure not in against.episodes:
        return None
    return compare_paired(result.episodes[measure], against.episodes[measure], seed=0)


def compare_results(results: Sequence[Result], against: str) -> list[ResultComparison]:
    """Compare every result with those of the run `against` on the same episodes.

    Temperature-scaled results are also compared with unscaled ones: a calibrated rival is the relevant rival.
    """
    found = []
    for base in (r for r in results if r.run == against):
        for other in (r for r in results if r.run != against):
            pairs = {name: compare(other, base, name) for name in other.episodes}
            measures = {name: pair for name, pair in pairs.items() if pair is not None}
            if measures:
                found.append(ResultComparison(other.label, base.label, base.scenario, base.settings, measures))
    return found


def write_comparisons(folder: Path, results: Sequence[Result], against: str) -> list[ResultComparison]:
    """Write `compare_results` to comparison.json and comparison.csv in the folder; delete both if there are none."""
    found, stem = compare_results(results, against), folder / "comparison"
    if found:
        write_atomically(stem.with_suffix(".csv"), _csv(found).encode())
        content = {"format": COMPARISON_FORMAT, "comparisons": encode(found)}
        write_atomically(stem.with_suffix(".json"), to_json({**content, "sha256": digest(content)}))
    else:
        for suffix in (".json", ".csv"):
            stem.with_suffix(suffix).unlink(missing_ok=True)
    return found


def _csv(comparisons: Sequence[ResultComparison]) -> str:
    """One line per pair and measure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    place = ("protocol", "corruption", "severity", "crops", "ways", "shots")
    head = ["run", "against", "scenario", *place, "measure", "difference", "low", "high", "p_value", "exact"]
    writer.writerow([*head, "episodes"])
    for c in comparisons:
        names = [csv_cell(name) for name in (c.run, c.against, c.scenario)]
        for name, pair in c.measures.items():
            d = pair.difference
            bounds = [rounded(x) if d.bounded else "" for x in (d.low, d.high)]
            numbers = [rounded(d.estimate), *bounds, rounded(pair.p_value), pair.exact, pair.n_episodes]
            writer.writerow([*names, *(getattr(c.settings, key) for key in place), name, *numbers])
    return text.getvalue()
