"""The result of one run under one protocol, and its files.

    result = read_result(Path("RUN/results/accuracy.json"))
    result.summary["accuracy"].estimate  # 0.97
    result.episodes["accuracy"]          # array [episodes]

NAME.json has everything but the per-episode figures, which are in NAME.episodes.npz beside it. docs/evaluation.md
describes both.
"""

import hashlib
import io
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from polyshot.data.npz import read_arrays
from polyshot.errors import DataError
from polyshot.evaluation.protocols import ProtocolSettings
from polyshot.evaluation.summaries import Figures
from polyshot.evaluation.temperature import Temperature
from polyshot.evaluation.typed_json import decode, encode, rounded
from polyshot.system.files import write_atomically

FORMAT = "polyshot-result-3"
_START = b'{\n"format": "polyshot-result-'
_AGAIN = "delete it and run `polyshot evaluate` again"


@dataclass(frozen=True, eq=False)
class ExampleEpisode:
    """The predictions for one episode of the first batch.

    Attributes
    ----------
    episode : int
        Its number; with `ProtocolSettings.sampler_arguments(0)` this gives the examples themselves.
    labels : array [Q]
        True classes; -1 for queries of unknown classes.
    probs, scores : array [Q, C]
    """

    episode: int
    labels: Int[np.ndarray, " q"]
    probs: Float[np.ndarray, "q c"]
    scores: Float[np.ndarray, "q c"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Result(Figures):
    """What one run achieved under one protocol; also has everything that `Figures` has.

    Attributes
    ----------
    run : str
        Name of the run folder.
    method : str
    options : dict
        The method's options.
    scenario : str
    training : dict
        The run's training configuration.
    settings : ProtocolSettings
    weights : str
        SHA-256 of best.safetensors.
    test_data : str
        `ClassSet.digest` of the test classes.
    test_set : str
        Name of the test classes.
    trained_episodes : int, optional
        Training episodes (or batches) until the evaluated weights.
    training_seconds : float
        Processor time of the whole training; NaN if unknown.
    temperature : Temperature, optional
        The fitted temperature, if probabilities were scaled.
    packages : dict
        Versions of packages.
    seconds : float
        Computing time of all processes together; NaN if unknown.
    examples : tuple of ExampleEpisode
        A few episodes for the report.
    path : Path, optional
        The file it was read from; not in the file.
    """

    run: str
    method: str
    options: dict[str, Any]
    scenario: str
    training: dict[str, Any]
    settings: ProtocolSettings
    weights: str
    test_data: str
    test_set: str = ""
    trained_episodes: int | None = None
    training_seconds: float = float("nan")
    temperature: Temperature | None = None
    packages: dict[str, str] = field(default_factory=dict)
    seconds: float = float("nan")
    examples: tuple[ExampleEpisode, ...] = ()
    path: Path | None = None

    @property
    def protocol(self) -> str:
        """The protocol's name."""
        return self.settings.protocol

    @property
    def label(self) -> str:
        """The run's name, marked if a temperature was applied."""
        return self.run + (" (temperature)" if self.temperature else "")

    @property
    def seed(self) -> int:
        """The seed of the training."""
        seed: int = self.training.get("seed", 0)
        return seed

    @property
    def folder(self) -> Path | None:
        """The run's folder, or its folder of results elsewhere."""
        if self.path is None:
            return None
        parent = self.path.resolve().parent
        return parent.parent if parent.name == "results" else parent

    def slim(self, measures: Collection[str] | None = None) -> "Result":
        """A copy without curves, histograms and examples; reliability bins stay.

        Parameters
        ----------
        measures : collection of str, optional
            Measures whose per-episode figures are kept; all by default.
        """
        kept = {name: x for name, x in self.episodes.items() if measures is None or name in measures}
        return replace(
            self, episodes=kept, risk_coverage=None, confidence_histogram=None, roc={}, score_histograms={}, examples=()
        )


def write_result(path: Path, result: Result) -> None:
    """Write NAME.json and, for the per-episode figures, NAME.episodes.npz.

    An earlier NAME.json is deleted first and the new one is written last. So a crash leaves no result, but never the
    JSON file of one result beside the per-episode figures of another.
    """
    beside, digest = _episodes_path(path), None
    try:
        path.unlink(missing_ok=True)
        beside.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be replaced ({error.strerror})") from error
    if result.episodes:
        content = _episodes_to_bytes(result.episodes)
        write_atomically(beside, content)
        digest = hashlib.sha256(content).hexdigest()
    inherited = {f.name for f in fields(Figures)}
    names = sorted((f.name for f in fields(Result) if f.name not in ("path", "episodes")), key=inherited.__contains__)
    content_of_json = {"format": FORMAT} | {name: encode(getattr(result, name)) for name in names}
    content_of_json["episodes_sha256"] = digest
    content_of_json["sha256"] = _checksum(content_of_json)
    write_atomically(path, to_json(content_of_json))


def read_result(path: Path) -> Result:
    """Read a result; a file that is damaged, incomplete or something else is a DataError that names it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: not a readable JSON file, perhaps cut short ({error}); {_AGAIN}") from error
    if not isinstance(content, dict) or not str(content.get("format")).startswith("polyshot-result-"):
        raise DataError(f"{path}: not a result of `polyshot evaluate`")
    if content["format"] != FORMAT:
        raise DataError(f"{path}: has the format {content['format']} instead of {FORMAT}; {_AGAIN}")
    if content.pop("sha256", None) != _checksum(content):
        raise DataError(f"{path}: damaged, its content does not match its checksum; {_AGAIN}")
    digest = content.get("episodes_sha256")
    known = {f.name for f in fields(Result)} - {"path", "episodes"}
    result = decode(Result, {name: value for name, value in content.items() if name in known}, str(path))
    if not isinstance(result.training.get("seed", 0), int):
        raise DataError(f"{path}: training: seed must be a whole number; {_AGAIN}")
    episodes = {} if digest is None else _read_episodes(path, digest, result.settings.n_episodes)
    return replace(result, episodes=episodes, path=path)


def find_results(paths: Sequence[Path]) -> list[Result]:
    """Read every result among files and folders: a run, a folder of runs, or an --out folder of `polyshot evaluate`.

    A damaged result is an error; it is never left out. Runs of the same name whose results would be confused are
    called by as much of their path as distinguishes them.
    """
    files: dict[Path, Path] = {}
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: no such file or folder; `polyshot evaluate RUN` writes RUN/results")
        found = [path] if path.is_file() else [f for f in sorted(path.rglob("*.json")) if _is_result(f)]
        if not found:
            raise DataError(f"{path}: contains no results; `polyshot evaluate RUN` writes RUN/results")
        files |= {file.resolve(): file for file in found if file.resolve() not in files}
    return _distinguished([read_result(file) for file in files.values()])


def to_json(content: Mapping[str, Any]) -> bytes:
    """Plain JSON values as text, one line per key."""
    lines = [f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in content.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _checksum(content: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON: sorted keys, no spaces, ASCII."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _episodes_path(path: Path) -> Path:
    return path.with_name(f"{path.stem}.episodes.npz")


def _episodes_to_bytes(episodes: Mapping[str, Float[np.ndarray, " episodes"]]) -> bytes:
    """Six significant digits, as everywhere in a result; float32 holds them exactly."""
    buffer = io.BytesIO()
    arrays = {name: np.array([rounded(x) for x in values.tolist()], np.float32) for name, values in episodes.items()}
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _read_episodes(json_path: Path, digest: str, n_episodes: int) -> dict[str, Float[np.ndarray, " episodes"]]:
    path, again = _episodes_path(json_path), f"delete {json_path.name} and run `polyshot evaluate` again"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); restore it from a copy, or {again}") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise DataError(f"{path}: damaged, or not of the same result as the JSON file beside it; {again}")
    try:
        episodes = {name: np.array([rounded(x) for x in values.tolist()]) for name, values in read_arrays(path).items()}
    except (DataError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not a file of per-episode figures ({error}); {again}") from error
    if wrong := [name for name, values in episodes.items() if values.shape != (n_episodes,)]:
        raise DataError(f"{path}: {wrong[0]} must have {n_episodes} values; {again}")
    return episodes


def _is_result(path: Path) -> bool:
    """Whether a JSON file is a result, judged so that one with a damaged start still counts."""
    if not path.is_file():
        return False
    if _episodes_path(path).is_file():
        return True
    try:
        with path.open("rb") as file:
            return _START.startswith(file.read(len(_START)))
    except OSError:  # read_result says why
        return True


def _distinguished(results: list[Result]) -> list[Result]:
    """Results whose runs share a name, protocol and task get longer names, such as demo/protonet."""
    folders: dict[tuple[object, ...], set[Path]] = {}
    for r in results:
        key = (r.label, r.scenario, r.settings.name, r.settings.ways, r.settings.shots)
        folders.setdefault(key, set()).add(r.folder or Path())
    shared = {folder: group for group in folders.values() if len(group) > 1 for folder in group}
    names = {folder: _short_name(folder, group) for folder, group in shared.items()}
    return [replace(r, run=names[r.folder]) if r.folder in names else r for r in results]


def _short_name(folder: Path, others: Collection[Path]) -> str:
    parts = folder.parts
    for n in range(1, len(parts) + 1):
        if sum(other.parts[-n:] == parts[-n:] for other in others) == 1:
            return "/".join(parts[-n:])
    return str(folder)
