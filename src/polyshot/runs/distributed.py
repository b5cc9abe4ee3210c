"""The processes that train together: one, or those that torchrun started (gloo or NCCL)."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from polyshot.errors import InputError


@dataclass(frozen=True)
class Team:
    """This process's rank among `size` processes; rank 0 leads: it writes and prints."""

    rank: int = 0
    size: int = 1
    device: torch.device | str = "cpu"  # where the messages between them are

    @property
    def leads(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    def share(self, items: Sequence[int]) -> list[int]:
        """Return this process's part of the items."""
        return list(items[self.rank :: self.size])

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over the processes, in one message."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([t.reshape(-1).to(self.device, torch.float64) for t in tensors])
        dist.all_reduce(flat)
        for t, part in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            t.copy_(part.reshape(t.shape))


def find_device(name: str | None) -> torch.device:
    """Return the device of that name; without a name, the GPU if there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(f"no device {name!r} on this machine: {str(error).splitlines()[0]}") from error


@contextmanager
def join_team(device: torch.device) -> Iterator[Team]:
    """Yield the team that torchrun started, or a team of one."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Team()
        return
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Team(dist.get_rank(), dist.get_world_size(), device)
        dist.barrier()  # leave together: gloo aborts a process that ends while another still writes
    finally:
        dist.destroy_process_group()
