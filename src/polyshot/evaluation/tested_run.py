"""A trained run that is to be evaluated: opened, checked, and with a place for its results."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from polyshot.data import ClassSet, Scenario, load_scenario
from polyshot.errors import DataError, InputError, TrainingError
from polyshot.evaluation.protocols import ProtocolSettings
from polyshot.evaluation.temperature import Temperature
from polyshot.methods import FewShotMethod
from polyshot.runs.config import TrainingConfig
from polyshot.runs.folder import RunFolder
from polyshot.system.versions import package_versions


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
    training_seconds : float
        Processor time of the whole training; NaN if unknown.
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
    training_seconds: float
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
    run = RunFolder(folder)
    config, (method, entry) = run.config, run.load_method()
    history = [] if unfinished else run.history
    if not unfinished and method.learns and not run.finished:
        raise TrainingError(
            f"{folder}: training has reached {history[-1]['episodes'] if history else 0} of {config.total_episodes} "
            f"episodes; `polyshot train --out {folder}` resumes it, and --unfinished evaluates its best weights so far"
        )
    seconds = history[-1].get("processor_seconds", math.nan) if history else math.nan
    results = folder / "results" if out is None else out / folder.name
    try:
        scenario = scenarios.setdefault(config.scenario, load_scenario(config.scenario, root))
    except (InputError, DataError) as error:
        raise type(error)(f"{folder}: {error}") from error
    return TestedRun(folder.name, config, method, entry["episodes"], seconds, run.weights_digest, scenario, results)
