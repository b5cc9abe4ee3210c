"""Algorithm 1's outer loop, for every method: episodes in, optimiser steps, validation, checkpoints, resume.

Everything random in a run is a function of the seed and of the number of an episode, so that a run that was stopped
at any moment goes on from its last checkpoint to the same weights as one that was not.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyshot.data import BatchSampler, EpisodeSampler, Scenario, load_scenario
from polyshot.errors import InputError, TrainingError
from polyshot.methods import METHODS, FewShotMethod
from polyshot.runs.config import TrainingConfig
from polyshot.runs.distributed import Team, find_device, join_team
from polyshot.runs.features import on_features
from polyshot.runs.folder import (
    all_episodes,
    check_same_run,
    epoch_lines,
    first_weights,
    has_ended,
    load_weights,
    start_run,
    validation_accuracies,
)
from polyshot.system.checkpoint import load_checkpoint, save_checkpoint
from polyshot.system.files import write_atomically
from polyshot.system.progress import Progress
from polyshot.task import Episode, LabelledSet, Space

_SAVE_SECONDS = 30.0  # a kill costs no more training than this, and the validation under way
_RECORDED = ("done", "losses", "history", "seconds", "processor_seconds")  # of a Trainer, beside its tensors
_VALIDATION_SEED = 2**31  # far from any training seed
TO_CALIBRATE = 50  # validation episodes: thousands of queries for a single number
_AT_ONCE = 20  # validation episodes of one shape that a method may batch


def _clocks() -> tuple[float, float]:
    """Seconds, and seconds of the processor."""
    return time.monotonic(), time.process_time()


@dataclass
class Trainer:
    """A run in memory: the method, its optimiser, and where it stands."""

    config: TrainingConfig
    method: FewShotMethod
    optimizer: torch.optim.Optimizer | None  # None: there is nothing to learn
    device: torch.device
    done: int = 0  # episodes or batches
    losses: list[float] = field(default_factory=list)  # of the epoch under way
    history: list[dict[str, Any]] = field(default_factory=list)  # one entry an epoch
    seconds: float = 0.0
    processor_seconds: float = 0.0
    counted: tuple[float, float] = field(default_factory=_clocks)  # what `seconds` are counted up to

    @property
    def total(self) -> int:
        """Episodes of the whole run."""
        return 0 if self.optimizer is None else all_episodes(self.config)

    @property
    def stopped(self) -> bool:
        """Whether there is no more to learn."""
        return self.optimizer is None or has_ended(self.history, self.config)

    def count_time(self) -> None:
        """Add what has passed since the last count."""
        now = _clocks()
        self.seconds += now[0] - self.counted[0]
        self.processor_seconds += now[1] - self.counted[1]
        self.counted = now

    def step(self, sampler: EpisodeSampler | BatchSampler, team: Team) -> None:
        """One optimiser step on the next `meta_batch` episodes, this process's share of them here."""
        assert self.optimizer is not None
        size = self.config.meta_batch or 1
        mine = team.share(range(self.done, self.done + size))
        episodes = [_to(sampler[k], self.device) for k in mine]
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
        """Sum the gradients of the processes' shares and average their running statistics."""
        for p in self.method.parameters():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        buffers = [b for b in self.method.buffers() if b.is_floating_point()]
        for b in buffers:
            b /= team.size
        team.add_up([total, *(p.grad for p in self.method.parameters() if p.grad is not None), *buffers])

    def state(self) -> dict[str, Tensor]:
        """All tensors of the run, by name."""
        names = {id(p): name for name, p in self.method.named_parameters()}
        tensors = {f"method.{name}": t for name, t in self.method.state_dict().items()}
        for p, state in (self.optimizer.state if self.optimizer else {}).items():
            tensors |= {f"optimizer.{names[id(p)]}.{key}": value for key, value in state.items()}
        return tensors

    def record(self) -> dict[str, Any]:
        """All that is not a tensor."""
        return {name: getattr(self, name) for name in _RECORDED}

    def restore(self, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
        """Go back to a saved state."""
        if missing := self.record().keys() - record.keys():
            raise TrainingError(f"the checkpoint is not the state of a run: it does not say {', '.join(missing)}")
        load_weights(self.method, tensors)
        for name, p in self.method.named_parameters():
            start = f"optimizer.{name}."
            saved = {key.removeprefix(start): t for key, t in tensors.items() if key.startswith(start)}
            if saved and self.optimizer:
                self.optimizer.state[p] = {
                    k: t if k == "step" else torch.empty_like(p).copy_(t) for k, t in saved.items()
                }
        for name in _RECORDED:
            setattr(self, name, record[name])


def train(
    config: TrainingConfig,
    out: Path,
    root: Path | None = None,
    *,
    device: str | None = None,
    threads: int | None = None,
) -> Path:
    """Train into the run folder `out`, or go on where it stopped; returns `out`, which holds the best weights."""
    if threads is not None:
        torch.set_num_threads(threads)
    place = find_device(device)
    with join_team(place) as team:
        scenario = load_scenario(config.scenario, root, config.rotations)
        config, method, sampler = prepare(config, scenario)
        if (config.meta_batch or 1) % team.size:
            raise InputError(f"{team.size} processes cannot share {config.meta_batch} episodes a step equally")
        validation = EpisodeSampler(
            scenario.validation, config.ways, config.shots, _validation_queries(scenario, config), _VALIDATION_SEED
        )
        method.to(place)
        optimizer = torch.optim.Adam(method.parameter_groups(config.learning_rate)) if method.learns else None
        trainer = Trainer(config, method, optimizer, place)
        last = out / "last.safetensors"
        check_same_run(out, config)
        if last.exists():
            trainer.restore(*load_checkpoint(last))
        elif team.leads:
            start_run(out, config, method.space, threads or torch.get_num_threads())
        with Progress(
            f"{config.method} on {config.scenario}", trainer.total, trainer.done, quiet=not team.leads
        ) as bar:
            for _ in _epochs(trainer, sampler, team, last, bar):
                _finish_epoch(trainer, validation, team, out, bar)
    return out


def _epochs(
    trainer: Trainer, sampler: EpisodeSampler | BatchSampler, team: Team, last: Path, bar: Progress
) -> Iterator[None]:
    """Train; yield at the end of every epoch, and once for a method that has nothing to learn; save now and then."""
    per_epoch = trainer.config.episodes_per_epoch or 1
    in_validation = trainer.losses and trainer.done % per_epoch == 0  # is where the run was stopped
    if in_validation or (trainer.optimizer is None and not trainer.history):
        yield
    saved = time.monotonic()
    while not trainer.stopped:
        trainer.step(sampler, team)
        bar.update(trainer.done, trainer.losses[-1])
        trainer.count_time()
        if team.leads and time.monotonic() - saved > _SAVE_SECONDS:
            save_checkpoint(last, trainer.state(), trainer.record())
            saved = time.monotonic()
        if trainer.done % per_epoch == 0:
            yield
            saved = time.monotonic()


def _finish_epoch(trainer: Trainer, validation: EpisodeSampler, team: Team, out: Path, bar: Progress) -> None:
    """Validate if it is time, log, keep the best weights and the last state."""
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
        if better:
            weights = {name: t for name, t in trainer.state().items() if name.startswith("method.")}
            save_checkpoint(out / "best.safetensors", weights, entry)
        write_atomically(out / "log.jsonl", epoch_lines(trainer.history))
        save_checkpoint(out / "last.safetensors", trainer.state(), trainer.record())  # last: what it says is all done
    bar.say(entry)


def prepare(
    config: TrainingConfig, scenario: Scenario
) -> tuple[TrainingConfig, FewShotMethod, EpisodeSampler | BatchSampler]:
    """The whole configuration, the method with its first weights, and the sampler that it trains on."""
    train_set = scenario.train
    on_batches = METHODS[config.method].trains_on == "batches"
    batches = BatchSampler(train_set, config.batch_size, config.seed) if on_batches else None
    shape = tuple(train_set.transform(train_set.x[:1], np.random.default_rng(0)).shape[1:])
    config = config.completed(train_set, shape, len(batches) if batches else 0)
    if (config.episodes_per_epoch or 0) % (config.meta_batch or 1):
        raise InputError(f"{config.episodes_per_epoch} episodes an epoch are no whole number of {config.meta_batch}s")
    method = first_weights(config, Space(shape, len(train_set.class_names)))
    sampler = batches or EpisodeSampler(train_set, config.ways, config.shots, config.queries or 1, config.seed)
    return config, method, sampler


def validate(
    method: FewShotMethod, sampler: EpisodeSampler, n_episodes: int, device: torch.device, team: Team
) -> float:
    """Calibrate the method, and return its mean accuracy, by the first episodes of the sampler.

    Each process calibrates by the same episodes, and scores its share.
    """
    images = n_episodes * len(torch.cat(sampler.indices(0)[::2]))
    if method.embeds_once and images > len(sampler.class_set.x):
        method, class_set = on_features(method, sampler.class_set)
        sampler = sampler.over(class_set)
    method.calibrate([_to(sampler[k], device) for k in range(min(n_episodes, TO_CALIBRATE))])
    right = torch.zeros((), dtype=torch.float64)
    mine = team.share(range(n_episodes))
    for first in range(0, len(mine), _AT_ONCE):
        numbers = mine[first : first + _AT_ONCE]
        episodes = [_to(sampler[k], device) for k in numbers]
        for episode, prediction in zip(episodes, method.predict_episodes(episodes, numbers), strict=True):
            right += (prediction.log_probs.argmax(-1) == episode.query.y).double().mean().cpu()
    team.add_up([right])
    return float(right) / n_episodes


def _validation_queries(scenario: Scenario, config: TrainingConfig) -> int:
    """The protocol's 15 queries a class, or what the smallest validation class has left."""
    return max(1, min(15, int(scenario.validation.class_sizes.min()) - config.shots))


def _to(episode: Episode, device: torch.device) -> Episode:
    support, query = (LabelledSet(part.x.to(device), part.y.to(device)) for part in episode[:2])
    return Episode(support, query, episode.n_way)
