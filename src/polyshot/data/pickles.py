"""A loader for pickles of plain arrays: it knows no other object, so a pickle cannot run code."""

import io
import pickle
from pathlib import Path
from typing import Any

from polyshot.errors import DataError

_ARRAY_PARTS = {
    ("_codecs", "encode"),
    ("collections", "OrderedDict"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Only what numpy needs to rebuild an array."""
        if (module, name) not in _ARRAY_PARTS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def read_plain_pickle(path: Path) -> Any:
    """Unpickle lists, dictionaries, strings, numbers and numpy arrays; refuse anything else."""
    try:
        # latin1: the common mini-ImageNet caches were written by Python 2
        return _PlainUnpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except Exception as error:  # a broken pickle can raise anything
        raise DataError(
            f"{path}: not a pickle of plain arrays ({error}); nothing else is loaded, since a pickle can run "
            "code. Export its images to folders and import those"
        ) from error
