"""Every data set by name."""

from polyshot.data.dataset import DataSet
from polyshot.data.sets import (
    chars74k,
    cub,
    embeddings,
    emnist,
    folder,
    glyphs,
    mini_imagenet,
    omniglot,
    tiny_imagenet,
)
from polyshot.system.registry import Registry

DATASETS: Registry[DataSet] = Registry(
    "data set",
    {
        dataset.name: dataset
        for dataset in (
            omniglot.DATASET,
            omniglot.GRAY,
            emnist.DATASET,
            chars74k.DATASET,
            cub.DATASET,
            mini_imagenet.DATASET,
            tiny_imagenet.DATASET,
            glyphs.DATASET,
            folder.DATASET,
            embeddings.DATASET,
        )
    },
    "polyshot.datasets",
)


def find_dataset(name: str) -> DataSet:
    """Return the registered data set of `name`, which may carry a path as in `folder:PATH`."""
    return DATASETS.find(name.partition(":")[0])
