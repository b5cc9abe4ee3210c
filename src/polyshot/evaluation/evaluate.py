"""Evaluate trained runs on the same episodes: one result per run and protocol, and paired comparisons.

Finished work is not repeated. A result with the same settings, weights and data is read. A result of other weights or
data is computed again. A result with other settings is an error, so that nothing is overwritten by accident.
"""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from polyshot.errors import DataError, InputError
from polyshot.evaluation.measures import Predictions
from polyshot.evaluation.outputs import predict_all
from polyshot.evaluation.paired_results import ResultComparison, write_comparisons
from polyshot.evaluation.protocols import PROTOCOLS, Changes, ProtocolSettings, check_images, plan, temperature_settings
from polyshot.evaluation.results import ExampleEpisode, Result, find_results, read_result, write_result
from polyshot.evaluation.summaries import summarise
from polyshot.evaluation.temperature import Temperature, fit_temperature, scale_log_probs
from polyshot.evaluation.tested_run import TestedRun, open_runs
from polyshot.system.lock import only_writer
from polyshot.system.versions import package_versions

_N_EXAMPLES = 3


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` returns.

    Attributes
    ----------
    results : list of Result
        In the order of protocols and runs.
    comparisons : list of ResultComparison
        Of all results of these runs, earlier ones included.
    notes : list of str
        What was left out, and why.
    """

    results: list[Result]
    comparisons: list[ResultComparison]
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
    """Evaluate every run under every protocol, and compare the runs on the same episodes.

    Parameters
    ----------
    runs : sequence of Path
        Run folders.
    protocols : sequence of str
        "accuracy", "calibration", "corruption", "out-of-episode" or "all".
    changes : Changes, optional
        What differs from the paper's protocols.
    temperature : bool
        Add results with a temperature that is fitted on validation episodes.
    against : Path, optional
        The run to compare the others with; by default the first.
    out : Path, optional
        Results go to out/NAME OF RUN instead of RUN/results.
    root : Path, optional
        Data folder.
    workers : int
        Number of processes; the results are the same for any number.
    unfinished : bool
        Accept runs whose training has not ended.
    quiet : bool
        Show no progress.

    Returns
    -------
    Evaluation
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, not {workers}")
    if not runs and against is None:
        raise InputError("no runs to evaluate; name at least one run folder")
    opened = open_runs(runs, against, out, root, unfinished)
    variants = [False, True] if temperature else [False]
    jobs, notes = _jobs(opened, protocols, changes or Changes(), variants)
    results = []
    with ExitStack() as stack:
        names = [f"{settings.name}{end}" for _, settings in jobs for end in ("", "-temperature")]
        for run in opened:
            written = [run.results / name for name in (*names, "comparison")]
            stack.enter_context(only_writer(run.results / ".lock", *written))
        for run, settings in jobs:
            done = [_finished(run, settings, scaled) for scaled in variants]
            if any(result is None for result in done):
                done = _evaluate(run, settings, variants, workers, quiet)
            shutil.rmtree(run.part_folder(settings), ignore_errors=True)
            results += [result for result in done if result is not None]
        # Everything on disk, so that a command with another protocol keeps the comparisons of earlier ones.
        known = [r for run in opened for r in find_results([run.results]) if r.weights == run.weights]
        comparisons = write_comparisons(out or opened[0].results, known, opened[0].name)
    return Evaluation(results, comparisons, notes)


def _jobs(
    runs: Sequence[TestedRun], protocols: Sequence[str], changes: Changes, variants: Sequence[bool]
) -> tuple[list[tuple[TestedRun, ProtocolSettings]], list[str]]:
    """All the work, checked before any of it starts, and notes on what is left out."""
    notes = []
    jobs: dict[tuple[str, str], tuple[TestedRun, ProtocolSettings]] = {}
    for protocol in (p for name in protocols for p in (PROTOCOLS if name == "all" else (name,))):
        for run in runs:
            test = run.scenario.test
            for settings in plan(protocol, run.config, changes):
                if settings.corruption is not None and test.x.ndim != 4 and "all" in protocols:
                    notes.append(f"{run.name}: corruption is left out because its examples are embeddings")
                    break
                if settings.corruption is not None:
                    check_images(test)
                shape = tuple(settings.samplers(test)[0][0].support.x.shape[1:])
                if shape != run.method.space.shape:
                    raise DataError(
                        f"{test.name}: examples have the shape {list(shape)}, but {run.name} was trained for "
                        f"{list(run.method.space.shape)}; use the data that it was trained on"
                    )
                for scaled in variants:
                    _finished(run, settings, scaled)
                if True in variants:
                    temperature_settings(settings).samplers(run.scenario.validation)
                jobs[settings.name, run.name] = (run, settings)
    return list(jobs.values()), notes


def _finished(run: TestedRun, settings: ProtocolSettings, scaled: bool) -> Result | None:
    """The result of these weights and data, if there is one; a result with other settings is an error."""
    path = run.result_path(settings, scaled)
    if not path.exists():
        return None
    result = read_result(path)
    found, wanted = asdict(result.settings), asdict(settings)
    if differ := [f"{k} {v!r} -> {wanted[k]!r}" for k, v in found.items() if v != wanted[k]]:
        raise InputError(
            f"{path}: has results with other settings ({', '.join(differ)}); delete it to replace it, or write the "
            "new ones elsewhere with --out"
        )
    same = (result.weights, result.test_data) == (run.weights, run.scenario.test.digest)
    return result if same else None


def _evaluate(
    run: TestedRun, settings: ProtocolSettings, variants: Sequence[bool], workers: int, quiet: bool
) -> list[Result | None]:
    """Predict, and write a result for each variant: plain, or scaled."""
    test = run.scenario.test
    corruption = settings.corruption_arguments()
    if corruption:
        test = test.corrupted(**corruption)
    predictions = predict_all(
        run.method, test, settings, run.part_folder(settings), run.key(test, settings),
        title=f"{settings.name}: {run.name}", workers=workers, quiet=quiet,
    )  # fmt: skip
    results: list[Result | None] = []
    for scaled in variants:
        scale = _fitted(run, temperature_settings(settings), workers, quiet) if scaled else None
        path = run.result_path(settings, scaled)
        write_result(path, _result(run, settings, predictions, scale))
        results.append(read_result(path))
    return results


def _fitted(run: TestedRun, settings: ProtocolSettings, workers: int, quiet: bool) -> Temperature:
    """The temperature for validation episodes of these settings."""
    if settings in run.temperatures:
        return run.temperatures[settings]
    validation, part = run.scenario.validation, run.part_folder(settings)
    p = predict_all(
        run.method, validation, settings, part, run.key(validation, settings),
        title=f"temperature: {run.name}", workers=workers, quiet=quiet,
    )  # fmt: skip
    shutil.rmtree(part)
    log_probs, labels = p.log_probs.reshape(-1, p.log_probs.shape[-1]), np.tile(p.labels, len(p.log_probs))
    run.temperatures[settings] = replace(fit_temperature(log_probs, labels), n_episodes=settings.n_episodes)
    return run.temperatures[settings]


def _result(run: TestedRun, settings: ProtocolSettings, p: Predictions, scale: Temperature | None) -> Result:
    value = 1.0 if scale is None else scale.value
    some = np.exp(scale_log_probs(p.log_probs[:_N_EXAMPLES], value))[: settings.episodes]
    return Result(
        run=run.name,
        method=run.config.method,
        options=run.config.options,
        scenario=run.config.scenario,
        training=asdict(run.config),
        settings=settings,
        weights=run.weights,
        test_data=run.scenario.test.digest,
        test_set=run.scenario.test.name,
        trained_episodes=run.trained_episodes,
        training_seconds=run.training_seconds,
        temperature=scale,
        packages=package_versions(),
        seconds=p.seconds,
        examples=tuple(ExampleEpisode(k, p.labels, probs, p.scores[k]) for k, probs in enumerate(some)),
        **vars(summarise(p, settings.batches, value)),
    )
