"""`polyshot sweep`."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from polyshot.cli.messages import say
from polyshot.cli.options import Root
from polyshot.system.registry import PLUGINS

_TAIL = 15  # lines of a log that are shown


def sweep(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A grid file, or a folder with one TOML file per run.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the run folders; overrules `out` in the file.")] = None,
    launcher: Annotated[str, typer.Option(help="Where to run: local, slurm or ray.")] = "local",
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at the same time. Default: as many as there is room for.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads per run. Another number rounds differently.")] = 1,
    nice: Annotated[int, typer.Option(min=0, max=19, help="Lower the priority of the runs by this much.")] = 0,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write event files of the training to DIR/NAME OF RUN.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command lines and what would be skipped; run nothing.")
    ] = False,
    root: Root = None,
) -> None:
    """Train and evaluate a grid of runs, on this computer or on a cluster.

    Finished runs are skipped and interrupted ones resume, so the same command continues after an interruption. A run
    that fails does not stop the others; it is reported at the end.
    """
    from polyshot.evaluation.grid import read_sweep

    plan = read_sweep(path, out)
    options: dict[str, Any] = {
        "threads": threads,
        "nice": nice,
        "root": root,
        "tensorboard": tensorboard,
        "plugins": PLUGINS,
    }
    waiting = plan.waiting
    say(f"{len(plan.runs)} runs, {len(plan.runs) - len(waiting)} finished, {len(waiting)} to do in {plan.out}")
    if dry_run:
        for run in plan.runs:
            say(f"# {run.name}: {run.state}{', skipped' if run.state == 'finished' else ''}")
            for command in run.job(**options).commands:
                say(shlex.join(command))
        return
    failed = {}
    try:
        for number, (run, failure) in enumerate(plan.execute(launcher, jobs, **options), 1):
            say(f"{number}/{len(waiting)}  {run.name}: {'done' if failure is None else 'FAILED'}")
            if failure is not None:
                failed[run] = failure
    except KeyboardInterrupt:
        say("interrupted; the same command continues", err=True)
        raise typer.Exit(130) from None
    for run, failure in failed.items():
        say(f"\n{run.name} failed: {failure}\n{run.log} ends with:", err=True)
        for line in run.log_tail(_TAIL):
            say(f"  {line}", err=True)
    if failed:
        say(f"\n{len(failed)} of {len(plan.runs)} runs failed; the same command tries them again", err=True)
        raise typer.Exit(1)
