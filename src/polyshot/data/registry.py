"""Every data set by name, where its file is, and how it is loaded."""

import os
from pathlib import Path

from polyshot.data.dataset import ClassSet, DataSet, Splits, select_classes
from polyshot.data.images import Progress, ignore_progress
from polyshot.data.packed import Packed, read_packed, write_packed
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
from polyshot.errors import DataError, InputError

DATASETS = {
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
}
_BY_PATH = {"folder", "embeddings"}


def cache_folder() -> Path:
    """The user's own folder for polyshot's files."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polyshot"


def data_root(root: Path | str | None = None) -> Path:
    """Where packed files are: `root`, else $POLYSHOT_DATA, else the user's cache folder."""
    return Path(root or os.environ.get("POLYSHOT_DATA") or cache_folder())


def find_dataset(name: str) -> DataSet:
    """The registered data set of `name`, which may carry a path as in `folder:PATH`."""
    plain = name.partition(":")[0]
    if plain not in DATASETS:
        raise InputError(f"no data set {plain!r}; there is {', '.join(DATASETS)}")
    return DATASETS[plain]


def dataset_path(name: str, root: Path | str | None = None) -> Path:
    """The packed file, or the user's own folder or file, that `name` stands for."""
    dataset = find_dataset(name)
    plain, _, own = name.partition(":")
    if plain in _BY_PATH:
        if not own:
            raise InputError(f"{plain!r} needs a path: {plain}:PATH, {dataset.accepts}")
        # a bare name is a file in the data folder, as `import` wrote it
        packed = data_root(root) / f"{own}.npz"
        return packed if packed.is_file() and not Path(own).exists() else Path(own)
    if own:
        raise InputError(f"{plain!r} takes no path; its file is {dataset.file_name} in the data folder")
    if plain == "glyphs":
        return cache_folder() / f"glyphs-{glyphs.fingerprint()}.npz"
    return data_root(root) / dataset.file_name


def read_dataset(name: str, root: Path | str | None = None, size: int = 84) -> Packed:
    """The whole data set as packed arrays; `glyphs` is drawn, and kept, when first asked for."""
    dataset, path = find_dataset(name), dataset_path(name, root)
    if path.is_file():
        return read_packed(path)
    if dataset.name == "glyphs":
        try:
            return write_packed(path, glyphs.draw(glyphs.SEED))
        except OSError:  # a home that cannot be written to costs a redraw each time, no more
            return Packed(path, glyphs.draw(glyphs.SEED))
    if dataset.name == "folder":
        return Packed(path, folder.read(path, int(size * 1.15), ignore_progress))
    if dataset.name == "embeddings":
        raise DataError(f"{path}: no such file; {dataset.name} takes {dataset.accepts}")
    raise DataError(
        f"{path}: no such file. Get {dataset.name} from {dataset.official}, then run: polyshot data import "
        f"{dataset.name} PATH, where PATH is {dataset.accepts}. Files elsewhere? Set POLYSHOT_DATA or --root"
    )


def find_splits(name: str, root: Path | str | None = None) -> Splits:
    """The class splits: the package's, or the user's `splits.json` or `NAME_splits.json`."""
    dataset = find_dataset(name)
    if dataset.name not in _BY_PATH:
        return dataset.splits
    file = _split_file(dataset_path(name, root))
    return Splits.read(file) if file.is_file() else Splits()


def _split_file(path: Path) -> Path:
    """Where the user's splits of a folder or an npz are."""
    return path / "splits.json" if path.is_dir() else path.with_name(f"{path.stem}_splits.json")


def load(name: str, split: str, root: Path | str | None = None, size: int = 84) -> ClassSet:
    """The classes of one split (`train`, `validation`, `test`, or `all`) of a data set, in memory.

    `size` is the side to which natural images are transformed.
    """
    packed = read_dataset(name, root, size)
    return select_classes(find_dataset(name), packed, find_splits(name, root), split, size)


def import_dataset(
    name: str,
    path: Path,
    root: Path | str | None = None,
    size: int | None = None,
    progress: Progress = ignore_progress,
) -> Path:
    """Convert the official files at `path` to the packed file, whole or not at all; returns where it is.

    The user's own data take their split file along.
    """
    dataset = find_dataset(name)
    if dataset.name == "glyphs":
        raise InputError("glyphs is built in; there is nothing to import")
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; {name} is imported from {dataset.accepts}")
    if size is not None and dataset.kind != "natural":
        raise InputError(f"{name}: a size can be chosen for photographs only, and this is a set of {dataset.kind}")
    target = data_root(root) / dataset.file_name
    if dataset.name in _BY_PATH:
        target = data_root(root) / f"{path.resolve().name.removesuffix('.npz')}.npz"
        taken = {other.file_name: other.name for other in DATASETS.values() if other.name not in _BY_PATH}
        if target.name in taken:
            raise InputError(f"{path}: would become {target}, the file of the data set {taken[target.name]}; rename it")
    if target.resolve() == path.resolve():
        raise InputError(f"{path}: is the packed file already; there is nothing to import")
    splits = None
    if dataset.name in _BY_PATH and _split_file(path).is_file():
        Splits.read(_split_file(path))
        splits = _split_file(path).read_bytes()
    write_packed(target, dataset.read(path, size or dataset.size, progress))
    if splits is not None:
        _split_file(target).write_bytes(splits)
    elif dataset.name in _BY_PATH:
        _split_file(target).unlink(missing_ok=True)
    return target
