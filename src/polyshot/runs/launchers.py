"""Run jobs of a few command lines each: on this computer, on a Slurm cluster, or on a Ray cluster.

A launcher only runs command lines. It knows nothing about training, and keeps no state: a job that was killed and is
run again resumes from what its commands have saved. The nodes of a cluster must share the file system and the Python
environment of the computer that starts the jobs.
"""

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from polyshot.errors import InputError
from polyshot.system.files import open_log
from polyshot.system.parallel import map_unordered
from polyshot.system.registry import Registry
from polyshot.system.text import printable

_INHERITED = ("PYTHONPATH", "POLYSHOT_DATA")  # what a worker on another node would not know
_RETRIES = 3  # on Ray, after a worker or a node was lost
_SLURM_MINUTES = 24 * 60  # time limit per job; submitit's own default is five minutes
_WAIT_SECONDS = 0.5
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


@dataclass(frozen=True)
class Job:
    """Command lines that are run one after the other, until one fails.

    Attributes
    ----------
    name : str
    commands : tuple
        Each command is a tuple of words.
    log : Path
        Where output and errors of the commands are appended.
    threads : int
        Threads that each command may use.
    folder : str
        Where the commands are run.
    environment : dict
        Environment variables to set, in addition to those of the worker.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    log: Path
    threads: int = 1
    folder: str = field(default_factory=os.getcwd)
    environment: Mapping[str, str] = field(default_factory=_environment)


# Takes the jobs, the largest number to run at the same time (None: as many as there is room for), a folder for files
# of its own, and its options. Yields each job as soon as it has ended, with what went wrong, or None.
Launcher = Callable[[Sequence[Job], int | None, Path, Mapping[str, Any]], Iterator[tuple[Job, str | None]]]


def run_job(job: Job) -> str | None:
    """Run the commands of a job here; return what went wrong, or None."""
    try:
        job.log.parent.mkdir(parents=True, exist_ok=True)
        with open_log(job.log) as log:
            for command in job.commands:
                log.write(f"$ {printable(shlex.join(command))}\n".encode())
                log.flush()
                if code := _run(command, job, log):
                    how = f"exit code {code}" if code > 0 else f"killed by signal {-code}"
                    return f"{how} of: {shlex.join(command)}"
    except OSError as error:
        return f"cannot be run: {error}"
    return None


def _run(command: Sequence[str], job: Job, log: BinaryIO) -> int:
    """Run one command and return its exit code; if this process is interrupted, end the command in good order."""
    process = subprocess.Popen(  # nosec B603 # words of our own, and no shell
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=job.folder,
        env={**os.environ, **job.environment, "OMP_NUM_THREADS": str(job.threads)},
        start_new_session=True,  # Ctrl-C reaches this process only, which then ends the command
        preexec_fn=_die_with_parent if _LIBC else None,
    )
    try:
        return process.wait()
    except BaseException:
        process.terminate()  # training saves its state
        process.wait()
        raise


def _die_with_parent() -> None:
    """Have Linux kill this process when its parent dies, so that a job that is run again finds its folder free."""
    assert _LIBC
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def run_locally(
    jobs: Sequence[Job], n_jobs: int | None, folder: Path, options: Mapping[str, Any]
) -> Iterator[tuple[Job, str | None]]:
    """Run jobs in processes of this computer; by default, as many as its cores have threads for."""
    if options:
        raise InputError(f"[local]: unknown setting {', '.join(options)}; the local launcher has no settings")
    threads = max((job.threads for job in jobs), default=1)
    yield from map_unordered(_until_sigterm, jobs, n_jobs or max(1, (os.cpu_count() or 1) // threads))


def _until_sigterm(job: Job) -> str | None:
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        return run_job(job)
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(*_: object) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


class Requeued:
    """What a Slurm job runs: when its time is up, it is queued again and resumes."""

    def __call__(self, job: Job) -> str | None:
        """Run the job."""
        return run_job(job)

    def checkpoint(self, job: Job) -> Any:
        """Return what is to be queued again; submitit calls this before the time limit."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, job)


def run_on_slurm(
    jobs: Sequence[Job], n_jobs: int | None, folder: Path, options: Mapping[str, Any]
) -> Iterator[tuple[Job, str | None]]:
    """Submit jobs as one Slurm array through submitit, whose parameters are the options.

    `cluster = "local"` runs them as processes of this computer, to try a configuration. On Ctrl-C the jobs are
    cancelled. If this process dies in another way, they continue.
    """
    import submitit

    parameters: dict[str, Any] = {
        "cpus_per_task": max((job.threads for job in jobs), default=1),
        "timeout_min": _SLURM_MINUTES,
        **({} if n_jobs is None else {"slurm_array_parallelism": n_jobs}),
        **options,
    }
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=parameters.pop("cluster", "slurm"))
        executor.update_parameters(**parameters)
    except (NameError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"[slurm]: {error}") from error
    with executor.batch():
        submitted = [executor.submit(Requeued(), job) for job in jobs]
    running = dict(zip(submitted, jobs, strict=True))
    try:
        while running:
            for handle in [handle for handle in running if handle.done()]:
                lost = handle.exception()
                yield running.pop(handle), handle.result() if lost is None else _lost(lost, handle.paths.stderr)
            time.sleep(_WAIT_SECONDS)
    finally:
        for handle in running:
            handle.cancel()


def run_on_ray(
    jobs: Sequence[Job], n_jobs: int | None, folder: Path, options: Mapping[str, Any]
) -> Iterator[tuple[Job, str | None]]:
    """Run jobs as tasks of a Ray cluster; one whose worker or node is lost is run again elsewhere.

    `address` names the cluster; without it, $RAY_ADDRESS, or else this computer. The other options are the resources
    of one task, such as num_gpus.
    """
    import ray

    resources = dict(options)
    address, is_ours = resources.pop("address", None), not ray.is_initialized()
    try:
        if is_ours:
            ray.init(address=address, log_to_driver=False)
        threads = max((job.threads for job in jobs), default=1)
        task = ray.remote(run_job).options(**{"num_cpus": threads, "max_retries": _RETRIES, **resources})
    except (ValueError, TypeError, ConnectionError) as error:
        raise InputError(f"[ray]: {error}") from error
    waiting, running = list(jobs), dict[Any, Job]()
    try:
        while waiting or running:
            while waiting and len(running) < (n_jobs or len(jobs)):
                job = waiting.pop(0)
                running[task.remote(job)] = job
            for handle in ray.wait(list(running))[0]:
                try:
                    failure = ray.get(handle)
                except ray.exceptions.RayError as error:
                    failure = _lost(error, None)
                yield running.pop(handle), failure
    finally:
        for handle in running:
            ray.cancel(handle, force=True)
        if is_ours:
            ray.shutdown()


def _lost(error: BaseException, file: Path | None) -> str:
    """Say why the launcher has no answer from a job."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"lost: {lines[0]}" + (f" (see {file})" if file else "")


LAUNCHERS: Registry[Launcher] = Registry(
    "launcher", {"local": run_locally, "slurm": run_on_slurm, "ray": run_on_ray}, "polyshot.launchers"
)
