"""A trained run that is to be evaluated: opened, checked, and with a place for its results."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from polyshot.data import ClassSet, Scenario, load_scenario
from polyshot.errors import InputError, TrainingError
from polyshot.evaluation.protocols import ProtocolSettings
from polyshot.evaluation.temperature import Temperature
from polyshot.methods import FewShotMethod
from polyshot.runs.config import TrainingConfig
from polyshot.runs.folder import all_episodes, has_ended, load_method, package_versions, read_history


@dataclass(frozen=True, eq=False)
class TestedRun:
    """A trained run, and where its results go.

    Attributes
    ----------
    name : str
        Name of the run folder.
    config : TrainingConfig
    method : FewShotMethod
        The trained method.
    trained_episodes : int
        Training episodes until its weights.
    weights : str
        SHA-256 of best.safetensors.
    scenario : Scenario
    results : Path
        Folder of its results.
    temperatures : dict
        Temperatures fitted so far, by the settings of their validation episodes.
    """

    __test__ = False  # not a test, whatever pytest thinks of the name

    name: str
    config: TrainingConfig
    method: FewShotMethod
    trained_episodes: int
    weights: str
    scenario: Scenario
    results: Path
    temperatures: dict[ProtocolSettings, Temperature] = field(default_factory=dict)

    def key(self, class_set: ClassSet, settings: ProtocolSettings) -> dict[str, Any]:
        """Everything that predictions depend on."""
        return {
            "settings": asdict(settings),
            "weights": self.weights,
            "class_set": [class_set.name, class_set.digest],
            "packages": package_versions(),
        }

    def result_path(self, settings: ProtocolSettings, scaled: bool) -> Path:
        """The result file of a protocol, plain or temperature-scaled."""
        return self.results / f"{settings.name}{'-temperature' if scaled else ''}.json"

    def part_folder(self, settings: ProtocolSettings) -> Path:
        """Where chunks are kept until all are there."""
        return self.results / f"{settings.name}.part"


def open_runs(
    runs: Sequence[Path], against: Path | None, out: Path | None, root: Path | None, unfinished: bool
) -> list[TestedRun]:
    """Open the runs, the one to compare with first; two of the same name are an InputError."""
    folders = [path.resolve() for path in ([against] if against else []) + list(runs)]
    folders = list(dict.fromkeys(folders)) if against else folders
    names = [folder.name for folder in folders]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"two runs are called {', '.join(twice)}, but comparisons go by name; rename a folder")
    scenarios: dict[str, Scenario] = {}  # runs of one scenario share its data
    return [_open(folder, out, root, unfinished, scenarios) for folder in folders]


def _open(
    folder: Path, out: Path | None, root: Path | None, unfinished: bool, scenarios: dict[str, Scenario]
) -> TestedRun:
    try:
        method, config, entry = load_method(folder)
    except TrainingError as error:
        raise error if str(folder) in str(error) else TrainingError(f"{folder}: {error}") from error
    if not unfinished and method.learns:
        _check_finished(folder, config)
    with (folder / "best.safetensors").open("rb") as file:
        weights = hashlib.file_digest(file, "sha256").hexdigest()
    results = folder / "results" if out is None else out / folder.name
    scenario = scenarios.setdefault(config.scenario, load_scenario(config.scenario, root))
    return TestedRun(folder.name, config, method, entry["episodes"], weights, scenario, results)


def _check_finished(folder: Path, config: TrainingConfig) -> None:
    history = read_history(folder)
    if not has_ended(history, config):
        done = history[-1]["episodes"] if history else 0
        raise TrainingError(
            f"{folder}: training has reached {done} of {all_episodes(config)} episodes; run `polyshot train` again to "
            "finish it, or evaluate its best weights so far with --unfinished"
        )
