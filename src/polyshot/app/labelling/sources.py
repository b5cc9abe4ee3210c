"""From a folder of images or a table of texts to a labelling session."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyshot.app.items import Items, default_encoder, encode
from polyshot.app.labelling.session import Session
from polyshot.app.sources import Columns, read_labels, read_queries
from polyshot.data.sets.folder import class_files
from polyshot.errors import DataError, InputError


def open_session(
    source: Path,
    path: Path,
    columns: Columns | None = None,
    *,
    folders: bool = False,
    encoder: Any = None,
) -> tuple[Session, dict[str, str]]:
    """Read and encode the items, and continue with what is in the file of labels.

    Parameters
    ----------
    source : Path
        A folder of images, or a table.
    path : Path
        The file of labels; it is made if it is not there.
    columns : Columns, optional
        What the columns of the table are; a column of labels gives the labels to start with.
    folders : bool
        The images in sub-folders have the sub-folder's name as their label to start with.
    encoder : str, Encoder or callable, optional
        As in TextEncoder and ImageEncoder; by default theirs.

    Returns
    -------
    session : Session
    failures : dict
        Name of an item that cannot be used, and is left out, to the reason.
    """
    columns = columns or Columns()
    items = read_queries(source, columns)
    if items.kind == "vectors":
        raise InputError(f"{source}: vectors cannot be looked at; label images or texts, with --image or --text")
    start = _start(source, items, columns, folders)
    encoder = default_encoder(items.kind) if encoder is None else encoder
    encoded = encode(items, encoder, progress=True)
    if not len(encoded.rows):
        raise DataError(f"{source}: none of the {len(items):,} items can be used")
    failures = {items.names[row]: reason for row, reason in encoded.failures.items()}
    session = Session(
        items.take(encoded.rows),
        np.ascontiguousarray(encoded.vectors[encoded.rows]),
        path,
        name=source.name or source.absolute().name,
        start=[start[row] for row in encoded.rows],
        encoder=encoder,
    )
    return session, failures


def _start(source: Path, items: Items, columns: Columns, folders: bool) -> Sequence[str | None]:
    """The label that each item has already."""
    if folders:
        if not source.is_dir():
            raise InputError(f"{source}: not a folder, so it has no sub-folders to take labels from; use --label")
        of_file = {file: name for name, members in class_files(source).items() for file in members}
        return [of_file.get(file) for file in items.contents]
    return [None] * len(items) if columns.label is None else read_labels(source, columns.label)
