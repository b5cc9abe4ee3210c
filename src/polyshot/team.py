"""The processes that train together: one, or those that torchrun started (gloo or NCCL)."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Team:
    """This process's number among `size`; number 0 writes and prints."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    def share(self, items: Sequence[int]) -> list[int]:
        """This process's part of the items."""
        return list(items[self.rank :: self.size])

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes, in one message."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([t.reshape(-1).double() for t in tensors])
        dist.all_reduce(flat)
        for t, part in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            t.copy_(part.reshape(t.shape))


@contextmanager
def join_team(device: torch.device) -> Iterator[Team]:
    """The team of torchrun's environment, or a team of one."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Team()
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Team(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
