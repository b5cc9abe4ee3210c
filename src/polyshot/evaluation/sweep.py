"""Train and evaluate many runs; those that are finished are skipped. docs/sweep.md is the guide.

    sweep = read_sweep(Path("grid.toml"))  # of polyshot.evaluation.grid
    for run, failure in sweep.execute("local", n_jobs=4):
        ...

The state of a sweep is that of its run folders and results, and nothing else. So the same call after an interruption,
from another computer, or with more runs in the grid does what is left to do.
"""

import dataclasses
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from polyshot.data import CORRUPTIONS, load_scenario
from polyshot.errors import DataError, InputError, PolyshotError
from polyshot.evaluation.protocols import Changes, ProtocolSettings, plan
from polyshot.evaluation.results import read_result
from polyshot.runs.config import TrainingConfig
from polyshot.runs.folder import RunFolder
from polyshot.runs.launchers import LAUNCHERS, Job

_NAME = re.compile(r"[\w.+=@-]+(/[\w.+=@-]+)*")  # of a run: parts of a path
_OWN = ".sweep"  # in the folder of the sweep: files of launchers


def _at_least(bound: int, default: int | None = None) -> Any:
    return field(default=default, metadata={"at_least": bound})


@dataclass(frozen=True)
class Evaluation:
    """The options of one `polyshot evaluate`, as `[evaluate]` in a grid file gives them.

    Attributes
    ----------
    protocols : list of str
    out : str, optional
        Results go to OUT/NAME OF RUN in the folder of the sweep. By default they go to `results` in the run folder.
    temperature : bool
        Add results with a fitted temperature.
    workers : int
        Processes per evaluation.
    episodes, batches, shots, ways, queries, seed, corruptions, severity, crops
        What differs from the protocols, as in `Changes`.
    """

    protocols: list[str] = field(default_factory=lambda: ["accuracy"])
    out: str | None = None
    temperature: bool = False
    workers: int = _at_least(1, 1)
    episodes: int | None = _at_least(1)
    batches: int | None = _at_least(1)
    shots: int | None = _at_least(1)
    ways: int | None = _at_least(2)
    queries: int = _at_least(1, 15)
    seed: int = _at_least(0, 0)
    corruptions: list[str] = field(default_factory=lambda: list(CORRUPTIONS))
    severity: int = _at_least(1, 5)
    crops: bool = False

    def plan(self, config: TrainingConfig) -> list[ProtocolSettings]:
        """Return the settings of all protocols for a run."""
        changes = Changes(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Changes)})
        return [settings for protocol in self.protocols for settings in plan(protocol, config, changes)]

    @property
    def flags(self) -> list[str]:
        """The options as flags of `polyshot evaluate`; those with their default value are left out."""
        plain = Evaluation()
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("protocols", "out")}
        return _flags({"protocols": self.protocols, **{n: v for n, v in given.items() if v != getattr(plain, n)}})


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run of a sweep: what to train, how to evaluate it, and how far it is.

    Attributes
    ----------
    name : str
        Its folder, relative to that of the sweep.
    values : dict
        Training settings, as a TOML file of `polyshot train` has them.
    config : TrainingConfig
        The same, checked.
    evaluations : tuple of Evaluation
    out : Path
        The folder of the sweep.
    """

    name: str
    values: Mapping[str, Any]
    config: TrainingConfig
    evaluations: tuple[Evaluation, ...]
    out: Path

    @classmethod
    def checked(
        cls, name: str, values: Mapping[str, Any], evaluations: Sequence[Evaluation], out: Path, where: str
    ) -> "PlannedRun":
        """Return the run; an InputError that starts with `where` names anything that is wrong with it."""
        config = TrainingConfig.from_mapping(values, where)
        try:
            load_scenario(config.scenario)
            run = cls(name, dict(values), config, tuple(evaluations), out)
            if not _NAME.fullmatch(name) or ".." in name.split("/"):
                raise InputError(f"{name!r} cannot be the name of a run; use letters, digits and . + = @ - _")
            paths = [path for evaluation in evaluations for path in run.results(evaluation)]
            if twice := sorted({path.name for path in paths if paths.count(path) > 1}):
                raise InputError(f"two [[evaluate]] write the same {', '.join(twice)}; give one of them an `out`")
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        return run

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.out / self.name

    @property
    def log(self) -> Path:
        """What its commands printed."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def log_tail(self, n_lines: int) -> list[str]:
        """Return the last lines of the log."""
        return self.log.read_text("utf-8", "replace").splitlines()[-n_lines:] if self.log.exists() else []

    def results(self, evaluation: Evaluation) -> dict[Path, ProtocolSettings]:
        """Return the result files that an evaluation writes."""
        place = self.folder / "results" if evaluation.out is None else self.out / evaluation.out / self.name
        variants = ("", "-temperature") if evaluation.temperature else ("",)
        return {place / f"{s.name}{end}.json": s for s in evaluation.plan(self.config) for end in variants}

    @property
    def started(self) -> bool:
        """Whether there is a run in its folder; one with another configuration is an InputError."""
        if not (self.folder / "config.json").exists():
            return False
        try:
            before = RunFolder(self.folder).config.as_dict()
        except PolyshotError:  # damaged; training says what to do
            return True
        wanted = {name: value for name, value in self.config.as_dict().items() if value is not None}
        if differ := [f"{k} {before[k]!r} -> {v!r}" for k, v in wanted.items() if before[k] != v]:
            raise InputError(
                f"{self.folder}: holds a run with another configuration ({'; '.join(differ)}); delete the folder, "
                "or name another one with --out"
            )
        return True

    @cached_property
    def trained(self) -> bool:
        """Whether training has ended; a damaged log counts as not ended, because training restores it."""
        if not self.started:
            return False
        run = RunFolder(self.folder)
        try:
            return run.finished or (bool(run.history) and not run.new_method().learns)
        except PolyshotError:
            return False

    @cached_property
    def unfinished(self) -> list[Evaluation]:
        """The evaluations that lack a result of these weights."""
        if not self.trained:
            return list(self.evaluations)
        weights = RunFolder(self.folder).weights_digest
        return [e for e in self.evaluations if not all(_is_result(f, s, weights) for f, s in self.results(e).items())]

    @property
    def state(self) -> str:
        """How far it is: new, interrupted, trained or finished."""
        if self.trained:
            return "trained" if self.unfinished else "finished"
        return "interrupted" if self.started else "new"

    def job(
        self, threads: int = 1, nice: int = 0, root: Path | None = None, tensorboard: Path | None = None,
        plugins: Sequence[str] = (),
    ) -> Job:  # fmt: skip
        """Return the command lines that finish the run.

        Parameters
        ----------
        threads : int
            Threads of each command.
        nice : int
            How much to lower the priority of the commands.
        root : Path, optional
            Folder of the packed data sets.
        tensorboard : Path, optional
            Training writes event files to TENSORBOARD/NAME.
        plugins : sequence of str
            Modules of the user, as for `polyshot --plugin`.
        """
        start = ["nice", "-n", str(nice)] if nice else []
        start += [sys.executable, "-m", "polyshot", *(word for name in plugins for word in ("--plugin", name))]
        end = _flags({} if root is None else {"root": root.resolve()})
        commands = []
        if not self.trained:
            logs = _flags({} if tensorboard is None else {"tensorboard": tensorboard / self.name})
            flags = [*_flags({"out": self.folder, "threads": threads}), *logs, *_flags(self.values)]
            commands.append((*start, "train", *flags, *end))
        for evaluation in self.unfinished:
            out = {} if evaluation.out is None else {"out": (self.out / evaluation.out / self.name).parent}
            commands.append((*start, "evaluate", str(self.folder), *evaluation.flags, *_flags(out), *end))
        return Job(self.name, tuple(commands), self.log, threads)


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep, all checked, in the order in which they start.

    Attributes
    ----------
    out : Path
        Folder of the run folders.
    runs : tuple of PlannedRun
    launchers : dict
        Options of the launchers, by their names.
    """

    out: Path
    runs: tuple[PlannedRun, ...]
    launchers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [run.name for run in self.runs]
        if not names:
            raise InputError("no runs; give [grid], [[run]] or a `folder` of TOML files")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(f"two runs are called {', '.join(twice)}; give each a name of its own")
        known = set(names)
        if inside := sorted(n for n in names if known & {str(p) for p in Path(n).parents}):
            raise InputError(f"the folder of {inside[0]} would be inside the folder of another run; rename one")

    @property
    def waiting(self) -> list[PlannedRun]:
        """The runs that are not finished; a folder that holds another run is an InputError."""
        return [run for run in self.runs if run.state != "finished"]

    def execute(
        self, launcher: str = "local", n_jobs: int | None = None, **options: Any
    ) -> Iterator[tuple[PlannedRun, str | None]]:
        """Finish all runs; yield each as soon as it has ended, with what went wrong, or None.

        Parameters
        ----------
        launcher : str
            Where to run: "local", "slurm" or "ray".
        n_jobs : int, optional
            Runs at the same time. By default, as many as there is room for.
        **options
            For `PlannedRun.job`.
        """
        launch = LAUNCHERS.find(launcher)
        runs = {run.name: run for run in self.waiting}
        jobs = [run.job(**options) for run in runs.values()]
        if jobs:
            for job, failure in launch(jobs, n_jobs, self.out / _OWN, self.launchers.get(launcher, {})):
                yield runs[job.name], failure


def _flags(values: Mapping[str, Any]) -> list[str]:
    """Return settings as flags of a command: lists are repeated, tables are `--option NAME=VALUE`."""
    words: list[str] = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list | dict):
            items = value if isinstance(value, list) else [f"{key}={item}" for key, item in value.items()]
            words += [word for item in items for word in (f"--{flag.removesuffix('s')}", str(item))]
        else:
            words += [f"--{flag}", str(value)]
    return words


def _is_result(path: Path, settings: ProtocolSettings, weights: str) -> bool:
    """Return whether the file is a result with these settings of these weights."""
    if not path.exists():
        return False
    try:
        result = read_result(path)
    except DataError:
        return False
    return (result.settings, result.weights) == (settings, weights)
