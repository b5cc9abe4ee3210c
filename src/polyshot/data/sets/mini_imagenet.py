"""mini-ImageNet (Vinyals et al., 2016) with Ravi & Larochelle's split: 100 classes of 600 images."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from polyshot.data.class_splits import Splits
from polyshot.data.dataset import DataSet
from polyshot.data.images import OnProgress, encode_pixels, encode_square, map_images
from polyshot.data.packed import Array, concatenate_files
from polyshot.data.pickles import read_plain_pickle
from polyshot.errors import DataError

_SPLITS = Splits.packaged("mini-imagenet")
_FILE_PARTS = {"train": "train", "val": "validation", "test": "test"}  # part of a file's name: our split


def read(path: Path, size: int, progress: OnProgress) -> Mapping[str, Array]:
    """Read pickles, csv splits with images/, or image folders named by WordNet id; looked for in that order."""
    if pickles := _part_files(path, ".pkl") or _part_files(path, ".pickle"):
        pixels, wnids = _read_pickles(pickles)
        names = [f"image {i} ({wnid})" for i, wnid in enumerate(wnids)]
        blobs = map_images(encode_pixels, pixels, names, str(path), progress)
    else:
        tables = _part_files(path, ".csv")
        files, wnids = _read_csv(tables, path / "images") if tables else _read_folders(path)
        blobs = map_images(lambda f: encode_square(f, size), files, [str(f) for f in files], str(path), progress)
    classes = sorted(set(wnids))
    known = {wnid for members in _SPLITS.members.values() for wnid in members}
    if unknown := set(classes) - known:
        raise DataError(
            f"{path}: {', '.join(sorted(unknown)[:5])} not in mini-ImageNet's published split; expected its WordNet ids"
        )
    label = {wnid: i for i, wnid in enumerate(classes)}
    return {
        **concatenate_files(blobs),
        "labels": np.array([label[wnid] for wnid in wnids], np.int16),
        "class_names": np.array(classes),
    }


def _part_files(path: Path, suffix: str) -> dict[str, Path]:
    """Find the files of the three parts, by split; the last of train, val and test in a file's name is its part."""
    parts: dict[str, Path] = {}
    for file in sorted(path.glob(f"*{suffix}")):
        places = {part: file.stem.rfind(part) for part in _FILE_PARTS}
        part = max(places, key=lambda name: places[name])
        if places[part] >= 0:
            parts.setdefault(_FILE_PARTS[part], file)
    return parts


def _read_pickles(pickles: Mapping[str, Path]) -> tuple[list[Array], list[str]]:
    """Read {"image_data", "class_dict"} or {"data", "labels"} caches: pixels [h, w, 3] and their WordNet ids."""
    pixels: list[Array] = []
    wnids: list[str] = []
    for split, path in pickles.items():
        content = read_plain_pickle(path)
        fields = set(content) if isinstance(content, dict) else set()
        if {"image_data", "class_dict"} <= fields:
            images = content["image_data"]
            owner = {int(row): str(wnid) for wnid, rows in content["class_dict"].items() for row in rows}
            names = [owner.get(row, "") for row in range(len(images))]
        elif {"data", "labels"} <= fields:
            images = content["data"]
            names = _names_of_labels(content, split, path)
        else:
            raise DataError(
                f"{path}: must have image_data and class_dict, or data and labels; it has "
                f"{', '.join(map(str, fields)) or type(content)}"
            )
        if (
            not isinstance(images, np.ndarray)
            or images.dtype != np.uint8
            or images.ndim != 4
            or images.shape[3] != 3
            or len(names) != len(images)
            or "" in names
        ):
            raise DataError(f"{path}: images must be uint8 [n, h, w, 3] with a class for each of the n")
        pixels += list(images)
        wnids += names
    return pixels, wnids


def _names_of_labels(content: Mapping[str, Any], split: str, path: Path) -> list[str]:
    """Return the WordNet ids of numeric labels: from `catname2label`, else the split's ids in sorted order."""
    labels = [int(label) for label in content["labels"]]
    if "catname2label" in content:
        name_of = {int(label): str(name) for name, label in content["catname2label"].items()}
    else:
        name_of = dict(zip(sorted(set(labels)), sorted(_SPLITS.members[split]), strict=False))
        if len(name_of) != len(_SPLITS.members[split]) or len(set(labels)) != len(name_of):
            raise DataError(
                f"{path}: {len(set(labels))} classes without names; expected the "
                f"{len(_SPLITS.members[split])} of the {split} part, or the field catname2label"
            )
    return [name_of.get(label, "") for label in labels]


def _read_csv(tables: Mapping[str, Path], images: Path) -> tuple[list[Path], list[str]]:
    """Read Ravi & Larochelle's `filename,label` tables, with images in images/ or images/<label>/."""
    files: list[Path] = []
    wnids: list[str] = []
    missing: list[str] = []
    for table in tables.values():
        with table.open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        if not rows or not all(row.get("filename") and row.get("label") for row in rows):
            raise DataError(f"{table}: must be a table with the columns filename,label, both filled in every row")
        for row in rows:
            places = [images / row["filename"], images / row["label"] / row["filename"]]
            found = next((place for place in places if place.is_file()), None)
            if found is None:
                missing.append(row["filename"])
            else:
                files.append(found)
                wnids.append(row["label"])
    if missing:
        raise DataError(f"{images}: lacks {len(missing)} images that the csv files name, such as {missing[0]}")
    return files, wnids


def _read_folders(path: Path) -> tuple[list[Path], list[str]]:
    """Find `<wnid>/*.jpg`, also below train/, val/ and test/ or images/."""
    files = sorted(f for pattern in ("n*/*", "*/n*/*") for f in path.glob(pattern) if f.is_file())
    if not files:
        raise DataError(f"{path}: no image folders n01532829/ ..., csv files or pickles in it; give {DATASET.accepts}")
    return files, [file.parent.name for file in files]


DATASET = DataSet(
    name="mini-imagenet",
    title="mini-ImageNet",
    summary="100 classes of ImageNet, 600 images each",
    kind="natural",
    official="https://github.com/yaoyao-liu/mini-imagenet-tools (made from ILSVRC 2012; csv splits: "
    "https://github.com/twitter-research/meta-learning-lstm)",
    accepts="a folder with one sub-folder per WordNet id (also below train/, val/, test/), or with train.csv, "
    "val.csv, test.csv and images/, or with the three pickles of the usual caches",
    licence="non-commercial research (ImageNet's terms)",
    citation="Vinyals et al., Matching networks, NeurIPS 2016; split: Ravi & Larochelle, ICLR 2017",
    read=read,
    n_classes=100,
    editions={"all": 60_000},
    splits=_SPLITS,
)
