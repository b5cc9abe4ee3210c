"""Where the files of a data set are, and how they are imported and loaded."""

import contextlib
import os
from pathlib import Path

import numpy as np

from polyshot.data.class_splits import Splits
from polyshot.data.dataset import ClassSet, DataSet, select_classes
from polyshot.data.images import OnProgress, ignore_progress
from polyshot.data.packed import SPLITS, Packed, read_packed, write_packed
from polyshot.data.registry import DATASETS, find_dataset
from polyshot.data.transforms import uncropped
from polyshot.errors import DataError, InputError
from polyshot.system.lock import only_writer


def cache_folder() -> Path:
    """Return the user's own folder for polyshot's files."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polyshot"


def data_root(root: Path | str | None = None) -> Path:
    """Return the folder of packed files: `root`, else $POLYSHOT_DATA, else the user's cache folder."""
    return Path(root or os.environ.get("POLYSHOT_DATA") or cache_folder())


def dataset_path(name: str, root: Path | str | None = None) -> Path:
    """Return the packed file, or the user's own folder or file, that `name` stands for.

    A built-in data set has a file in the cache folder if it has a version; else the path is just its name.
    """
    dataset = find_dataset(name)
    plain, _, own = name.partition(":")
    if dataset.takes_path:
        if not own:
            raise InputError(f"{plain!r} needs a path: {plain}:PATH, where PATH is {dataset.accepts}")
        # a bare name is a file in the data folder, as `import` wrote it
        packed = data_root(root) / f"{own}.npz"
        return packed if packed.is_file() and not Path(own).exists() else Path(own)
    if own:
        raise InputError(f"{plain!r} takes no path; write {plain!r} alone")
    if dataset.built_in:
        version = dataset.version and dataset.version()
        return cache_folder() / "built-in" / f"{dataset.name}-{version}.npz" if version else Path(dataset.name)
    return data_root(root) / dataset.file_name


def read_dataset(name: str, root: Path | str | None = None, size: int = 84) -> Packed:
    """Return the whole data set as packed arrays; a built-in one is made, and kept, when it is first used."""
    dataset, path = find_dataset(name), dataset_path(name, root)
    if dataset.make is not None:
        return _made(dataset, path)
    if path.is_file():
        return _checked(dataset, read_packed(path))
    if not dataset.takes_path:
        raise DataError(
            f"{path}: no such file. Get {dataset.title} from {dataset.official}, then run: polyshot data import "
            f"{dataset.name} PATH, where PATH is {dataset.accepts}. If the file is elsewhere, set POLYSHOT_DATA or "
            "--root to its folder"
        )
    return _read_files(dataset, path, uncropped(size), ignore_progress)


def find_splits(dataset: DataSet, packed: Packed) -> Splits:
    """Return the class splits: the data set's own, or those that come with the user's data."""
    if not dataset.takes_path:
        return dataset.splits
    file = _split_file(packed.source)
    if packed.splits is None:
        return Splits.read(file) if file.is_file() else Splits()
    if file.is_file():
        raise DataError(f"{packed.source}: holds class splits, and so does {file}; delete {file}, or import again")
    return Splits.parse(packed.splits, str(packed.source))


def load(name: str, split: str, root: Path | str | None = None, size: int = 84) -> ClassSet:
    """Load the classes of one split of a data set.

    Parameters
    ----------
    name : str
        A registered data set, `folder:PATH` or `embeddings:PATH`.
    split : str
        `train`, `validation`, `test`, `all`, or any other split that the data set has.
    root : path, optional
        The folder of packed files; else $POLYSHOT_DATA, else the user's cache folder.
    size : int
        The side to which natural images are transformed.

    Returns
    -------
    ClassSet
        The examples in memory, sorted by class.

    Examples
    --------
    >>> from polyshot.data import load
    >>> load("glyphs", "test").x.shape[1:]
    torch.Size([1, 28, 28])
    """
    packed = read_dataset(name, root, size)
    dataset = find_dataset(name)
    return select_classes(dataset, packed, find_splits(dataset, packed), split, size)


def import_dataset(
    name: str,
    path: Path,
    root: Path | str | None = None,
    size: int | None = None,
    progress: OnProgress = ignore_progress,
) -> Path:
    """Convert the files at `path` to one packed file, which is written completely or not at all.

    Parameters
    ----------
    name : str
        A registered data set, `folder` or `embeddings`.
    path : Path
        The official files, or the user's own data. Class splits of the user's own data go into the packed file.
    root : path, optional
        The folder to write to; else $POLYSHOT_DATA, else the user's cache folder.
    size : int, optional
        The side of stored photographs, in pixels.
    progress : callable
        Called as progress(done, total).

    Returns
    -------
    Path
        The packed file.
    """
    dataset = find_dataset(name)
    if dataset.built_in:
        raise InputError(f"{name} is built in; there is nothing to import")
    if size is not None and dataset.kind != "natural":
        raise InputError(f"{name}: --size is for photographs only, and this is a set of {dataset.kind}")
    target = data_root(root) / dataset.file_name
    if dataset.takes_path:
        target = data_root(root) / f"{path.resolve().name.removesuffix('.npz')}.npz"
        taken = {other.file_name: other.name for other in DATASETS.values() if not other.takes_path}
        if target.name in taken:
            raise InputError(f"{path}: would become {target}, the file of the data set {taken[target.name]}; rename it")
    if target.resolve() == path.resolve():
        raise InputError(f"{path}: is the packed file already; there is nothing to import")
    packed = _read_files(dataset, path, size or dataset.size, progress)
    arrays = dict(packed.arrays)
    if dataset.takes_path:
        find_splits(dataset, packed)
        file = _split_file(path)
        arrays[SPLITS] = np.array(file.read_text(encoding="utf-8") if file.is_file() else packed.splits or "{}")
    with only_writer(target.with_name(f".{target.name}.lock"), target):
        write_packed(target, arrays)
    return target


def _made(dataset: DataSet, path: Path) -> Packed:
    assert dataset.make is not None
    if dataset.version is None:
        return Packed(path, dataset.make())
    with contextlib.suppress(DataError):  # a missing or damaged file is made again
        return read_packed(path)
    made = Packed(path, dataset.make())
    with contextlib.suppress(DataError):  # if the cache cannot be written to, it is made again each time
        write_packed(path, made.arrays)
    return made


def _read_files(dataset: DataSet, path: Path, size: int, progress: OnProgress) -> Packed:
    """Read official files, or the user's own."""
    assert dataset.read is not None
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; {dataset.name} is read from {dataset.accepts}")
    try:
        return _checked(dataset, Packed(path, dataset.read(path, size, progress)))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error


def _checked(dataset: DataSet, packed: Packed) -> Packed:
    if (dataset.kind == "embeddings") != packed.has_embeddings:
        found, wanted = ("embeddings", "images") if packed.has_embeddings else ("images", "embeddings")
        raise DataError(f"{packed.source}: holds {found}, but {dataset.name} is a set of {wanted}")
    return packed


def _split_file(path: Path) -> Path:
    """Where the user's splits of a folder or an npz are."""
    return path / "splits.json" if path.is_dir() else path.with_name(f"{path.stem}_splits.json")
