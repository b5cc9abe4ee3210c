"""`polyshot evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from polyshot.cli.messages import say
from polyshot.cli.options import Root
from polyshot.errors import InputError


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; all are evaluated on the same episodes.")],
    protocol: Annotated[
        list[str] | None, typer.Option(help="accuracy, calibration, corruption, out-of-episode or all (the default).")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Episodes per batch (default: 600 for accuracy, else 1000).")
    ] = None,
    batches: Annotated[
        int | None, typer.Option(min=1, help="Batches (default: 5 for accuracy and calibration, else 1).")
    ] = None,
    shots: Annotated[
        int | None, typer.Option(min=1, help="Shots (default: the run's own for accuracy and calibration, else 5).")
    ] = None,
    ways: Annotated[int | None, typer.Option(min=2, help="Classes per episode (default: the run's own).")] = None,
    queries: Annotated[int, typer.Option(min=1, help="Queries per class.")] = 15,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the episodes.")] = 0,
    corruption: Annotated[
        list[str] | None, typer.Option(help="gaussian_noise, impulse_noise or defocus_blur (default: all).")
    ] = None,
    severity: Annotated[int, typer.Option(help="Severity of the corruption, 1 to 5.")] = 5,
    crops: Annotated[
        bool, typer.Option("--crops", help="Corrupt the crop that the network sees, as in the paper's public code.")
    ] = False,
    temperature: Annotated[
        bool, typer.Option("--temperature", help="Add results with a temperature fitted on validation episodes.")
    ] = False,
    against: Annotated[Path | None, typer.Option(help="Run to compare the others with (default: the first).")] = None,
    out: Annotated[Path | None, typer.Option(help="Write results to OUT/NAME OF RUN (default: RUN/results).")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes; the results are the same for any number.")] = 1,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Accept runs whose training has not ended.")] = False,
    root: Root = None,
) -> None:
    """Evaluate trained runs by the paper's protocols. After an interruption the same command continues."""
    from polyshot.cli.evaluation_tables import print_comparisons, print_results
    from polyshot.data import CORRUPTIONS
    from polyshot.evaluation.evaluate import evaluate as evaluate_runs
    from polyshot.evaluation.protocols import Changes
    from polyshot.system.allocator import keep_freed_memory

    keep_freed_memory()
    protocols = protocol or ["all"]
    if corruption and not {"corruption", "all"} & set(protocols):
        raise InputError(f"--corruption belongs to --protocol corruption, not to {', '.join(protocols)}")
    names = tuple(corruption or CORRUPTIONS)
    changes = Changes(episodes, batches, shots, ways, queries, seed, names, severity, crops)
    try:
        evaluation = evaluate_runs(
            runs, protocols, changes, temperature=temperature, against=against, out=out, root=root,
            workers=workers, unfinished=unfinished,
        )  # fmt: skip
    except KeyboardInterrupt:
        say("interrupted; run the same command again to continue", err=True)
        raise typer.Exit(130) from None
    for note in evaluation.notes:
        say(f"note: {note}")
    print_results(evaluation.results)
    print_comparisons(evaluation.comparisons)
    for folder in sorted({str(r.path.parent) for r in evaluation.results if r.path}):
        say(f"written: {folder}")
