"""The training loop of every method: episodes, optimiser steps, validation, checkpoints, resume.

It is the outer loop of the paper's Algorithm 1. Everything random in a run depends only on the seed and on the number
of an episode. So a run that was stopped at any moment and resumed ends with the same weights as one that was not.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyshot.data import BatchSampler, EpisodeSampler, Scenario, load_scenario
from polyshot.errors import InputError, TrainingError
from polyshot.methods import FewShotMethod
from polyshot.runs.callbacks import Callback
from polyshot.runs.config import TrainingConfig
from polyshot.runs.distributed import Team, find_device, join_team
from polyshot.runs.folder import Checkpoint, RunFolder, first_weights
from polyshot.runs.history import has_ended, validation_accuracies
from polyshot.runs.precision import train_in_bfloat16
from polyshot.runs.validation import to_device, validate, validation_sampler
from polyshot.system.progress import Progress
from polyshot.system.termination import delayed_sigterm
from polyshot.task import Space

_SAVE_SECONDS = 30.0  # a killed run loses at most this much training, and the validation under way
# of a Trainer, in addition to its tensors
_RECORDED: dict[str, type | tuple[type, ...]] = {
    "done": int, "losses": list, "history": list, "seconds": (int, float), "processor_seconds": (int, float),
}  # fmt: skip


@dataclass
class Trainer:
    """A run in memory: the method, its optimiser, and how far it has come."""

    config: TrainingConfig
    method: FewShotMethod
    optimizer: torch.optim.Optimizer | None  # None if there is nothing to learn
    device: torch.device
    done: int = 0  # episodes or batches
    losses: list[float] = field(default_factory=list)  # of the current epoch
    history: list[dict[str, Any]] = field(default_factory=list)  # one entry per epoch
    seconds: float = 0.0
    processor_seconds: float = 0.0
    counted: tuple[float, float] = field(default_factory=lambda: (time.monotonic(), time.process_time()))

    @property
    def total(self) -> int:
        """Episodes of the whole run."""
        return 0 if self.optimizer is None else self.config.total_episodes

    @property
    def stopped(self) -> bool:
        """Whether training is over."""
        return self.optimizer is None or has_ended(self.history, self.config)

    def count_time(self) -> None:
        """Add the time that has passed since the last call."""
        now = time.monotonic(), time.process_time()
        self.seconds += now[0] - self.counted[0]
        self.processor_seconds += now[1] - self.counted[1]
        self.counted = now

    def step(self, sampler: EpisodeSampler | BatchSampler, team: Team) -> None:
        """Take one optimiser step on the next `meta_batch` episodes; this process computes its share of them."""
        assert self.optimizer is not None
        size = self.config.meta_batch or 1
        mine = team.share(range(self.done, self.done + size))
        episodes = [to_device(sampler[k], self.device) for k in mine]
        rngs = [np.random.default_rng((self.config.seed, k)) for k in mine]
        self.method.train()
        self.optimizer.zero_grad()
        total = torch.zeros(())
        for losses in self.method.losses(episodes, rngs):
            part = losses.sum() / size
            part.backward()  # type: ignore[no-untyped-call]
            total += part.detach().cpu().float()
        self._average(team, total)
        if not bool(torch.isfinite(total)):
            raise TrainingError(f"the loss is {float(total)} at episode {self.done}; a smaller learning rate may help")
        self.optimizer.step()
        self.losses.append(float(total))
        self.done += size

    def _average(self, team: Team, total: Tensor) -> None:
        """Sum the gradients over the processes and average their running statistics."""
        for p in self.method.parameters():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        buffers = [b for b in self.method.buffers() if b.is_floating_point()]
        for b in buffers:
            b /= team.size
        team.add_up([total, *(p.grad for p in self.method.parameters() if p.grad is not None), *buffers])

    def state(self) -> Checkpoint:
        """Return everything that a resumed run needs."""
        return Checkpoint(self.tensors(), {name: getattr(self, name) for name in _RECORDED})

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors of the run, by name."""
        names = {id(p): name for name, p in self.method.named_parameters()}
        tensors = {f"method.{name}": t for name, t in self.method.state_dict().items()}
        for p, state in (self.optimizer.state if self.optimizer else {}).items():
            tensors |= {f"optimizer.{names[id(p)]}.{key}": value for key, value in state.items()}
        return tensors

    def restore(self, folder: RunFolder) -> None:
        """Continue from the state in the run folder."""
        tensors, record = folder.resume()
        missing = sorted(name for name, kind in _RECORDED.items() if not isinstance(record.get(name), kind))
        if missing or any(type(loss) is not float for loss in record["losses"]):
            what = ", ".join(missing) or "losses that are numbers"
            raise TrainingError(f"{folder.path}: the checkpoint is not the state of a run; it lacks {what}")
        folder.load_weights(self.method, tensors)
        for name, p in self.method.named_parameters():
            start = f"optimizer.{name}."
            saved = {key.removeprefix(start): t for key, t in tensors.items() if key.startswith(start)}
            if any(t.shape not in (p.shape, ()) for t in saved.values()):
                raise TrainingError(f"{folder.path}: the state of the optimiser does not fit {name}")
            if saved and self.optimizer:
                state = {k: t if k == "step" else torch.empty_like(p).copy_(t) for k, t in saved.items()}
                self.optimizer.state[p] = state
        for name in _RECORDED:
            setattr(self, name, record[name])


def train(
    config: TrainingConfig,
    out: Path,
    root: Path | None = None,
    *,
    device: str | None = None,
    threads: int | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Path:
    """Train into a run folder, or resume the run that is in it.

    Parameters
    ----------
    config : TrainingConfig
        What to train. It must equal that of the run in the folder, if there is one.
    out : Path
        The run folder.
    root : Path, optional
        Folder of the packed data sets.
    device : str, optional
        Where to compute, such as "cpu" or "cuda"; the GPU by default, if there is one.
    threads : int, optional
        Threads of torch. Another number gives other rounding errors.
    quiet : bool
        Show no progress.
    callbacks : sequence of callable
        Each is called with every new entry of the log, at the end of its epoch.

    Returns
    -------
    Path
        The run folder, which now holds the best weights.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    place = find_device(device)
    with join_team(place) as team:
        scenario = load_scenario(config.scenario, root, config.rotations)
        config, method, sampler = prepare(config, scenario)
        if (config.meta_batch or 1) % team.size:
            raise InputError(f"{team.size} processes cannot share {config.meta_batch} episodes per step equally")
        validation = validation_sampler(scenario, config)
        method.to(place)
        if config.precision == "bfloat16":
            train_in_bfloat16(method.backbone, fuse=method.embeds_once)
        optimizer = torch.optim.Adam(method.parameter_groups(config.learning_rate)) if method.learns else None
        trainer, folder = Trainer(config, method, optimizer, place), RunFolder(out)
        with folder.writing() if team.leads else nullcontext():
            # only the process that writes looks, so that no other sees a run that is being created
            found = torch.tensor(float(team.leads and folder.holds(config)), dtype=torch.float64)
            team.add_up([found])
            if bool(found):
                if not folder.has_state and folder.finished:
                    return out  # a finished run needs no state to resume from
                trainer.restore(folder)
                if team.leads:
                    folder.write_history(trainer.history)  # it may be damaged, missing, or an epoch ahead
            elif team.leads:
                folder.create(config, method.space, threads or torch.get_num_threads(), trainer.state())
            with Progress(
                f"{config.method} on {config.scenario}", trainer.total, trainer.done, quiet=quiet or not team.leads,
                first="(the first step after an installation compiles for up to a minute)",
            ) as bar:  # fmt: skip
                _run(trainer, sampler, validation, team, folder, bar, callbacks)
            if team.leads and folder.familiar() is None:
                folder.remember(scenario, place)
    return out


def _run(
    trainer: Trainer,
    sampler: EpisodeSampler | BatchSampler,
    validation: EpisodeSampler,
    team: Team,
    folder: RunFolder,
    bar: Progress,
    callbacks: Sequence[Callback],
) -> None:
    """Train to the end. On SIGTERM, save and exit; processes that train together leave that to their launcher."""
    with delayed_sigterm() if team.size == 1 else nullcontext(lambda: False) as terminated:
        for _ in _epochs(trainer, sampler, team, folder, bar, terminated):
            _finish_epoch(trainer, validation, team, folder)
            if team.leads:
                for callback in (bar.say, *callbacks):
                    callback(dict(trainer.history[-1]))
        if terminated() and not trainer.stopped:
            folder.save_last(trainer.state())
            print(f"terminated; saved in {folder.path}, the same command resumes", file=sys.stderr, flush=True)
            sys.exit(143)


def _epochs(
    trainer: Trainer,
    sampler: EpisodeSampler | BatchSampler,
    team: Team,
    folder: RunFolder,
    bar: Progress,
    terminated: Callable[[], bool],
) -> Iterator[None]:
    """Train, and yield after every epoch, or once if there is nothing to learn; save the state from time to time."""
    per_epoch = trainer.config.episodes_per_epoch or 1
    stopped_in_validation = trainer.losses and trainer.done % per_epoch == 0
    if stopped_in_validation or (trainer.optimizer is None and not trainer.history):
        yield
    saved = time.monotonic()
    while not trainer.stopped and not terminated():
        trainer.step(sampler, team)
        bar.update(trainer.done, trainer.losses[-1])
        trainer.count_time()
        if team.leads and time.monotonic() - saved > _SAVE_SECONDS:
            folder.save_last(trainer.state())
            saved = time.monotonic()
        if trainer.done % per_epoch == 0:
            yield
            saved = time.monotonic()


def _finish_epoch(trainer: Trainer, validation: EpisodeSampler, team: Team, folder: RunFolder) -> None:
    """Validate if it is time, write the log, keep the best weights and the last state."""
    config, epoch = trainer.config, trainer.done // (trainer.config.episodes_per_epoch or 1)
    accuracy = None
    if epoch % config.validate_every == 0 or trainer.done >= trainer.total:
        accuracy = validate(trainer.method, validation, config.validation_episodes, trainer.device, team)
    better = accuracy is not None and accuracy > max(validation_accuracies(trainer.history), default=-1.0)
    trainer.count_time()
    entry: dict[str, Any] = {
        "epoch": epoch,
        "episodes": trainer.done,
        **({"loss": float(np.mean(trainer.losses))} if trainer.losses else {}),
        "seconds": round(trainer.seconds, 3),
        "processor_seconds": round(trainer.processor_seconds, 3),
        **({} if accuracy is None else {"validation_accuracy": accuracy}),
        **{n: t.item() for n, t in trainer.method.state_dict().items() if t.numel() == 1 and t.is_floating_point()},
    }
    trainer.history.append(entry)
    trainer.losses = []
    if team.leads:
        weights = {name: t for name, t in trainer.tensors().items() if name.startswith("method.")}
        if better:
            folder.save_best(weights, entry)
        if accuracy is not None and config.keep_weights:
            folder.keep(weights, entry)
        folder.write_history(trainer.history)
        folder.save_last(trainer.state())  # after the others: what it records is then all on disk


def prepare(
    config: TrainingConfig, scenario: Scenario
) -> tuple[TrainingConfig, FewShotMethod, EpisodeSampler | BatchSampler]:
    """Return the complete configuration, the method with its first weights, and its training episodes or batches."""
    classes = scenario.train
    on_batches = config.method_class.trains_on == "batches"
    batches = BatchSampler(classes, config.batch_size, config.seed) if on_batches else None
    shape = tuple(classes.transform(classes.x[:1], np.random.default_rng(0)).shape[1:])
    n_batches = len(batches) if batches else 0
    config = config.completed(int(classes.class_sizes.min()), classes.classifier_epochs, n_batches)
    if (config.episodes_per_epoch or 0) % (config.meta_batch or 1):
        raise InputError(
            f"episodes_per_epoch ({config.episodes_per_epoch}) must be a multiple of meta_batch ({config.meta_batch})"
        )
    method = first_weights(config, Space(shape, len(classes.class_names)))
    sampler = batches or EpisodeSampler(classes, config.ways, config.shots, config.queries or 1, config.seed)
    return config, method, sampler
