"""Encoders that polyshot itself trained: a run's network, and the built-in one for characters."""

from collections.abc import Hashable, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from polyshot.encoders.base import Encoder, Vectors
from polyshot.encoders.packages import identity, weights_digest
from polyshot.errors import DataError, InputError
from polyshot.runs.inputs import Intake
from polyshot.runs.trained import TrainedRun, load

_WEIGHTS = "best.safetensors"


class RunEncoder(Encoder):
    """The network of a run that `polyshot train` made of images.

    Characters are brought to bright ink on black, each image by its own border; photographs to their middle square.
    """

    kind = "images"
    argument: ClassVar[str | None] = "a run folder: polyshot:RUN, such as polyshot:runs/cub"
    licence = "as the data that it was trained on"
    citation = "Snell & Zemel, Bayesian Few-Shot Classification with One-vs-Each Pólya-Gamma Augmented GPs, ICLR 2021"

    def __init__(self, path: str) -> None:
        self.path = Path(path).absolute()
        run = self.network
        self.space, self.title = run.method.space, f"{run.config.method} trained on {run.config.scenario}"
        self.mode = "L" if self.space.kind == "characters" else "RGB"
        if self.space.kind == "embeddings":
            raise InputError(f"{path}: the run was trained on embeddings and has no network for images")
        if not run.method.embeds_once:
            raise InputError(
                f"{path}: {run.config.method} adapts its network to each task, so it has no fixed vectors; name a run "
                "of another method, such as ove-gp or protonet"
            )
        self.digest = identity("polyshot", str(self.space.shape), weights_digest(run.method.backbone.state_dict()))

    @classmethod
    def stamp(cls, argument: str) -> Hashable:
        """A run that was trained further is read again."""
        path = Path(argument).absolute() / _WEIGHTS
        return (path, path.stat().st_mtime_ns) if path.is_file() else path

    @cached_property
    def network(self) -> TrainedRun:
        """The trained run."""
        return load(self.path)

    @cached_property
    def dimension(self) -> int:  # type: ignore[override]
        """Length of a vector."""
        return int(self.encode([torch.zeros(self.space.shape)]).shape[1])

    def prepare(self, image: Image.Image) -> Tensor:
        """As `polyshot predict` brings images to the run's form."""
        pixels = np.array(image)
        pixels = pixels[None, None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)[None]
        return Intake.fitting(self.space, pixels)(pixels)[0]

    def encode(self, items: Sequence[Tensor]) -> Vectors:
        """The features on which the method works."""
        run = self.network
        with torch.inference_mode():
            features: Tensor = run.method.backbone(torch.stack(list(items)).to(run.device))
        vectors: Vectors = features.flatten(1).cpu().numpy()
        return vectors


class Characters(RunEncoder):
    """For handwriting and symbols, with nothing to install: a Conv4 that polyshot trained on Omniglot.

    Its folder in the package is a run folder: config.json and best.safetensors, with the TOML file and the command that
    made them.
    """

    argument = None
    title = "Conv4, Omniglot"
    licence = "Apache-2.0, trained on Omniglot (MIT)"
    folder = Path(__file__).parent / "characters"

    def __init__(self) -> None:
        if not (self.folder / _WEIGHTS).is_file():
            raise DataError(f"{self.folder}: the weights of the encoder 'characters' are not in this copy of polyshot")
        super().__init__(str(self.folder))
        self.title = type(self).title

    @classmethod
    def stamp(cls, argument: str) -> Hashable:
        """Where the weights are."""
        return cls.folder
