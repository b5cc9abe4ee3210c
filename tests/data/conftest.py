import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from polyshot.data import DATASETS, ClassSet
from polyshot.data.transforms import scale_characters


@pytest.fixture
def need_file() -> Callable[[str], Path]:
    """Skip, naming the file, if the shared data have no packed file of that data set."""

    def need(dataset: str) -> Path:
        name = DATASETS[dataset].file_name if dataset in DATASETS else dataset
        root = os.environ.get("POLYSHOT_DATA")
        if not (dataset in DATASETS and DATASETS[dataset].built_in) and not (root and (Path(root) / name).is_file()):
            pytest.skip(f"needs {name} in $POLYSHOT_DATA")
        return Path(root or ".")

    return need


@pytest.fixture
def toy() -> ClassSet:
    """Eight classes of 10 to 17 images; every pixel of row i is i."""
    sizes = np.arange(10, 18)
    n = int(sizes.sum())
    x = torch.arange(n, dtype=torch.uint8)[:, None, None, None].expand(n, 1, 4, 4).contiguous()
    y = torch.from_numpy(np.repeat(np.arange(8), sizes))
    return ClassSet("toy", x, y, tuple("abcdefgh"), scale_characters)
