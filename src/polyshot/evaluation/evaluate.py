"""Evaluate trained runs on the same episodes: one result file a run and protocol, and paired comparisons.

What is done is not done again: a result of the same settings, weights and data is read; of other weights or data, it is
computed anew; of other settings, it is an error, so that nothing is lost by a slip.
"""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from polyshot.data import ClassSet, Scenario, load_scenario
from polyshot.errors import DataError, InputError, TrainingError
from polyshot.evaluation.comparison import compare_paired
from polyshot.evaluation.outputs import Predictions, predict_all
from polyshot.evaluation.protocols import PROTOCOLS, Changes, Settings, check_images, plan, temperature_settings
from polyshot.evaluation.results import (
    COMPARISON_FORMAT,
    Result,
    find_results,
    read_result,
    rounded,
    to_json,
    write_result,
)
from polyshot.evaluation.summaries import summarise
from polyshot.evaluation.temperature import Temperature, fit_temperature, scale_log_probs
from polyshot.methods import FewShotMethod
from polyshot.runs.config import TrainingConfig
from polyshot.runs.folder import all_episodes, has_ended, load_method, package_versions, read_history
from polyshot.system.files import write_atomically

_N_EXAMPLES = 3


@dataclass(frozen=True, eq=False)
class Run:
    """A trained run, and where its results go."""

    name: str
    config: TrainingConfig
    method: FewShotMethod
    trained_episodes: int
    weights: str
    scenario: Scenario
    results: Path
    temperatures: dict[Settings, Temperature] = field(default_factory=dict)

    def key(self, class_set: ClassSet, settings: Settings) -> dict[str, Any]:
        """What predictions follow from."""
        return {
            "settings": asdict(settings),
            "weights": self.weights,
            "class_set": [class_set.name, class_set.digest],
            "packages": package_versions(),
        }


@dataclass(frozen=True)
class Evaluation:
    """Results in the order of protocols and runs, and the entries of comparison.json (compare_results)."""

    results: list[Result]
    comparisons: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)


def evaluate(
    runs: Sequence[Path],
    protocols: Sequence[str] = ("all",),
    changes: Changes | None = None,
    *,
    temperature: bool = False,
    against: Path | None = None,
    out: Path | None = None,
    root: Path | None = None,
    workers: int = 1,
    unfinished: bool = False,
    quiet: bool = False,
) -> Evaluation:
    """Evaluate every run under every protocol, or read what is done, and compare each run with `against`, or the first.

    `temperature` adds a result of each whose temperature was fitted on validation episodes. Results go to RUN/results,
    or to out/NAME OF RUN. `unfinished` accepts runs that have not trained to their end.
    """
    if workers < 1:
        raise InputError(f"workers is at least 1, not {workers}")
    if not runs and against is None:
        raise InputError("no runs to evaluate; name at least one run folder")
    changes = changes or Changes()
    opened = open_runs(runs, against, out, root, unfinished)
    variants = [False, True] if temperature else [False]
    jobs, notes = _jobs(opened, protocols, changes, variants)
    results = []
    for run, settings in jobs:
        done = [_finished(run, settings, scaled) for scaled in variants]
        if any(result is None for result in done):
            done = _evaluate(run, settings, temperature, workers, quiet)
        shutil.rmtree(_part(run, settings), ignore_errors=True)
        results += [result for result in done if result is not None]
    # All that is on disk, so that a command with another protocol does not lose the comparisons of this one.
    known = [r for run in opened for r in find_results([run.results]) if r.weights == run.weights]
    comparisons = write_comparisons(out or opened[0].results, known, opened[0].name)
    return Evaluation(results, comparisons, notes)


def open_runs(
    runs: Sequence[Path], against: Path | None, out: Path | None, root: Path | None, unfinished: bool
) -> list[Run]:
    """The runs, the one to compare with first; names must tell them apart."""
    folders = [path.resolve() for path in ([against] if against else []) + list(runs)]
    folders = list(dict.fromkeys(folders)) if against else folders
    names = [folder.name for folder in folders]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"two runs are called {', '.join(twice)}: comparisons go by name; rename a folder")
    scenarios: dict[str, Scenario] = {}  # runs of one scenario share its data
    return [_open_run(folder, out, root, unfinished, scenarios) for folder in folders]


def compare_results(results: Sequence[Result], against: str) -> list[dict[str, Any]]:
    """Paired comparisons, run minus `against`, of every two results on the same episodes.

    Scaled results are compared with unscaled ones too: a calibrated rival is the rival. An entry: run, against
    (labels), scenario, protocol, corruption, severity, ways, shots, n_episodes, and `metrics`: by name {"difference"
    (run minus against), "low", "high", "p_value", "exact"}.
    """
    entries = []
    for base in (r for r in results if r.run == against):
        for other in (r for r in results if r.run != against):
            if (other.settings, other.test_data) != (base.settings, base.test_data):
                continue
            metrics = {}
            for name, values in ((n, v) for n, v in other.episodes.items() if n in base.episodes):
                paired = compare_paired(np.array(values), np.array(base.episodes[name]), seed=0)
                d = paired.difference
                metrics[name] = {"difference": d.estimate, "low": d.low, "high": d.high}
                metrics[name] |= {"p_value": paired.p_value, "exact": paired.exact}
            place = {name: base.settings[name] for name in ("protocol", "corruption", "severity", "ways", "shots")}
            entries.append(
                {"run": other.label, "against": base.label, "scenario": base.scenario, **place}
                | {"n_episodes": len(base.episodes["accuracy"]), "metrics": metrics}
            )
    return entries


def write_comparisons(folder: Path, results: Sequence[Result], against: str) -> list[dict[str, Any]]:
    """`compare_results`, and comparison.json of them in the folder; with nothing to compare, none is left there."""
    entries, path = compare_results(results, against), folder / "comparison.json"
    if entries:
        write_atomically(path, to_json({"format": COMPARISON_FORMAT, "comparisons": entries}))
    else:
        path.unlink(missing_ok=True)
    return entries


def _jobs(
    runs: Sequence[Run], protocols: Sequence[str], changes: Changes, variants: Sequence[bool]
) -> tuple[list[tuple[Run, Settings]], list[str]]:
    """All that is to be done; what cannot be done is said before anything is."""
    notes = []
    jobs: dict[tuple[str, str], tuple[Run, Settings]] = {}
    for protocol in (p for name in protocols for p in (PROTOCOLS if name == "all" else (name,))):
        for run in runs:
            test = run.scenario.test
            for settings in plan(protocol, run.config, changes):
                if settings.corruption is not None and test.x.ndim != 4 and "all" in protocols:
                    notes.append(f"{run.name}: no corruption, its examples are embeddings")
                    break
                if settings.corruption is not None:
                    check_images(test)
                shape = tuple(settings.samplers(test)[0][0].support.x.shape[1:])
                if shape != run.method.space.shape:
                    raise DataError(
                        f"{test.name}: examples are of shape {list(shape)}, and {run.name} was trained for "
                        f"{list(run.method.space.shape)}; use the data that it was trained on"
                    )
                for scaled in variants:
                    _finished(run, settings, scaled)
                if True in variants:
                    temperature_settings(settings).samplers(run.scenario.validation)
                jobs[settings.name, run.name] = (run, settings)
    return list(jobs.values()), notes


def _open_run(
    folder: Path, out: Path | None, root: Path | None, unfinished: bool, scenarios: dict[str, Scenario]
) -> Run:
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
    return Run(folder.name, config, method, entry["episodes"], weights, scenario, results)


def _check_finished(folder: Path, config: TrainingConfig) -> None:
    history = read_history(folder)
    if not has_ended(history, config):
        done = history[-1]["episodes"] if history else 0
        raise TrainingError(
            f"{folder}: training has reached {done} of {all_episodes(config)} episodes; `polyshot train` goes on with "
            "it, and --unfinished evaluates its best weights so far"
        )


def _path(run: Run, settings: Settings, scaled: bool) -> Path:
    return run.results / f"{settings.name}{'-temperature' if scaled else ''}.json"


def _part(run: Run, settings: Settings) -> Path:
    return run.results / f"{settings.name}.part"


def _finished(run: Run, settings: Settings, scaled: bool) -> Result | None:
    """The result, if it is there, of these weights and data; one of other settings is not overwritten."""
    path = _path(run, settings, scaled)
    if not path.exists():
        return None
    result, wanted = read_result(path), asdict(settings)
    if differ := [f"{k} {v!r} -> {wanted[k]!r}" for k, v in result.settings.items() if v != wanted[k]]:
        raise InputError(
            f"{path}: holds results with other settings ({', '.join(differ)}); delete it to replace it, or name a "
            "folder for the new ones with --out"
        )
    same = (result.weights, result.test_data) == (run.weights, run.scenario.test.digest)
    return result if same else None


def _evaluate(run: Run, settings: Settings, temperature: bool, workers: int, quiet: bool) -> list[Result | None]:
    """Predict, and write the result: plain, and scaled if asked for."""
    test = run.scenario.test
    corruption = settings.corruption_arguments()
    if corruption:
        test = test.corrupted(**corruption)
    predictions = predict_all(
        run.method, test, settings, _part(run, settings), run.key(test, settings),
        title=f"{settings.name}: {run.name}", workers=workers, quiet=quiet,
    )  # fmt: skip
    results: list[Result | None] = []
    for scaled in [False, True] if temperature else [False]:
        scale = _fitted(run, temperature_settings(settings), workers, quiet) if scaled else None
        path = _path(run, settings, scaled)
        write_result(path, _result(run, settings, predictions, scale))
        results.append(read_result(path))
    return results


def _fitted(run: Run, settings: Settings, workers: int, quiet: bool) -> Temperature:
    if settings in run.temperatures:
        return run.temperatures[settings]
    validation, part = run.scenario.validation, _part(run, settings)
    p = predict_all(
        run.method, validation, settings, part, run.key(validation, settings),
        title=f"temperature: {run.name}", workers=workers, quiet=quiet,
    )  # fmt: skip
    shutil.rmtree(part)
    log_probs, labels = p.log_probs.reshape(-1, p.log_probs.shape[-1]), np.tile(p.labels, len(p.log_probs))
    run.temperatures[settings] = fit_temperature(log_probs, labels)
    return run.temperatures[settings]


def _result(run: Run, settings: Settings, predictions: Predictions, scale: Temperature | None) -> Result:
    value = 1.0 if scale is None else scale.value
    n_examples = min(_N_EXAMPLES, settings.episodes)
    examples = {
        "sampler": settings.sampler_arguments(0),
        "corruption": settings.corruption_arguments(),
        "episodes": [
            {"episode": k, "labels": predictions.labels, "probs": probs, "scores": predictions.scores[k]}
            for k, probs in enumerate(np.exp(scale_log_probs(predictions.log_probs[:n_examples], value)))
        ],
    }
    episodes = temperature_settings(settings).episodes
    return Result(
        protocol=settings.protocol,
        run=run.name,
        method=run.config.method,
        options=run.config.options,
        scenario=run.config.scenario,
        test_set=run.scenario.test.name,
        test_data=run.scenario.test.digest,
        training=asdict(run.config),
        trained_episodes=run.trained_episodes,
        settings=asdict(settings),
        temperature=None if scale is None else asdict(scale) | {"episodes": episodes},
        packages=package_versions(),
        seconds=predictions.seconds,
        weights=run.weights,
        examples=rounded(examples),
        **rounded(summarise(*predictions[:3], settings.batches, value, variance=predictions.variance)),
    )
