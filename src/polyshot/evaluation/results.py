"""The result of one run under one protocol, as a JSON file.

    result = read_result(Path("RUN/results/accuracy.json"))
    result.summary["accuracy"]  # {"value": 0.97, "low": 0.968, "high": 0.972, "std": 0.001}

`find_results` reads every result among files and folders. Numbers have six significant digits; NaN is null.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from polyshot.errors import DataError
from polyshot.system.files import write_atomically

FORMAT = "polyshot-result-2"
COMPARISON_FORMAT = "polyshot-comparison-1"


@dataclass(frozen=True)
class Result:
    """What one run did under one protocol; every field but `path` is in the file.

    protocol: "accuracy" (which holds calibration too: the same tasks), "corruption" or "out-of-episode".
    run, method, options, scenario, training: what was evaluated; `training` is the run's configuration.
    test_set, test_data: the name of what it was tested on, and ClassSet.digest of it.
    trained_episodes: episodes (or batches) of training until the weights evaluated.
    settings: protocol, batches, episodes (a batch), ways, shots, queries (a class), seed, corruption, severity.
    temperature: None, or {"value", "bound", "episodes"} (fitted on so many validation episodes).
    weights: SHA-256 of best.safetensors.
    episodes: a list a figure, batch after batch: accuracy, log_likelihood, brier; for out-of-episode also auroc (of
    minus the largest logit, the headline), auroc_entropy (of the entropy of the predictive, the total uncertainty) and,
    for methods with a posterior over the logits, auroc_variance (of their total variance).
    summary: {"value", "low", "high"} (95 %; None where there is no interval) of each of these and of ece and mce;
    accuracy has "std" as well, that of the batches' means.
    reliability: edges (one more than bins), count, confidence, accuracy. risk_coverage: coverage, accuracy, area.
    confidence_histogram: edges, right, wrong (counts). All three, and the first figures, are of inside queries only.
    roc: None, or by "score", "entropy" and "variance": false_positive_rate, true_positive_rate (mean over episodes).
    score_histograms: None, or by the same: edges, inside, outside (counts; the end bins hold the rest).
    examples: {"sampler": keyword arguments of EpisodeSampler, "corruption": None or arguments of ClassSet.corrupted,
    "episodes": [{"episode": k, "labels" [Q] (-1 is outside), "probs" [Q][C], "scores" [Q][C]}, ...]}.
    """

    protocol: str
    run: str
    method: str
    options: dict[str, Any]
    scenario: str
    test_set: str
    test_data: str
    training: dict[str, Any]
    trained_episodes: int
    settings: dict[str, Any]
    temperature: dict[str, Any] | None
    packages: dict[str, str]
    seconds: float
    weights: str
    episodes: dict[str, list[float]]
    summary: dict[str, dict[str, float | None]]
    reliability: dict[str, list[Any]]
    risk_coverage: dict[str, Any]
    confidence_histogram: dict[str, list[Any]]
    roc: dict[str, dict[str, list[float]]] | None
    score_histograms: dict[str, dict[str, list[Any]]] | None
    examples: dict[str, Any]
    path: Path | None = None

    @property
    def label(self) -> str:
        """The run's name, and that it is scaled where it is."""
        return self.run + (" (temperature)" if self.temperature else "")


def write_result(path: Path, result: Result) -> None:
    """The whole file, or none."""
    content = {"format": FORMAT} | asdict(result)
    del content["path"]
    write_atomically(path, to_json(content))


def read_result(path: Path) -> Result:
    """A result file; anything else is a DataError."""
    content = _read_json(path)
    names = {f.name for f in fields(Result)} - {"path"}
    if content.get("format") != FORMAT or not names <= content.keys():
        raise DataError(
            f"{path}: no result of this version of polyshot ({FORMAT}); delete it and run `polyshot evaluate`"
        )
    return Result(**{name: content[name] for name in names}, path=path)


def find_results(paths: Sequence[Path]) -> list[Result]:
    """Every result among files and folders: a run, a folder of runs, or an --out folder of `polyshot evaluate`."""
    found: list[Result] = []
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: there is no such file or folder; `polyshot evaluate RUN` writes RUN/results")
        files = [path] if path.is_file() else [f for f in sorted(path.rglob("*.json")) if _format_of(f) == FORMAT]
        if not files:
            raise DataError(f"{path}: holds no results; `polyshot evaluate RUN` writes RUN/results")
        found += [read_result(file) for file in files]
    return list({(result.path or Path()).resolve(): result for result in found}.values())


def to_json(content: dict[str, Any]) -> bytes:
    """One line a key, numbers rounded."""
    lines = [f"{json.dumps(key)}: {json.dumps(rounded(value), allow_nan=False)}" for key, value in content.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def rounded(value: Any) -> Any:
    """Plain lists and numbers: floats with six significant digits, NaN as None."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [rounded(part) for part in value]
    if isinstance(value, (float, np.floating)):
        return None if math.isnan(value) else float(f"{value:.6g}")
    return value.item() if isinstance(value, np.generic) else value


def _format_of(path: Path) -> str | None:
    if not path.is_file() or path.suffix != ".json":
        return None
    with path.open("rb") as file:
        start = file.read(80)
    return next((name for name in (FORMAT, COMPARISON_FORMAT) if f'"format": "{name}"'.encode() in start), None)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a JSON file, or it cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: no result of `polyshot evaluate`")
    return content
