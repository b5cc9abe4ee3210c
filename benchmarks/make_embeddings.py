"""Make the two embedding files that the benchmarks use, from the official downloads.

python -m benchmarks.make_embeddings clinc150 data_full.json clinc150_minilm.npz
python -m benchmarks.make_embeddings cub CUB_200_2011 cub_efficientnet.npz

docs/embeddings.md has the sources, the licences and what was checked.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from polyshot.data.packed import write_packed
from polyshot.encoders import ImageEncoder, TextEncoder

SPLITS = ("train", "val", "test", "oos_train", "oos_val", "oos_test")
PHOTOS_PER_CLASS = 30


def clinc150(source: Path, out: Path, encoder: str) -> None:
    """All sentences of data_full.json in its order; those that are out of scope have the label -1."""
    parts = json.loads(source.read_text("utf-8"))
    pairs = [(text, name, k) for k, split in enumerate(SPLITS) for text, name in parts[split]]
    texts, names, splits = zip(*pairs, strict=True)
    class_names = sorted(set(names) - {"oos"})
    places = {name: place for place, name in enumerate(class_names)} | {"oos": -1}
    arrays = {
        "X": TextEncoder(encoder).fit_transform(list(texts)).astype(np.float16),
        "labels": np.array([places[name] for name in names]),
        "split": np.array(splits, np.uint8),
        "split_names": np.array(SPLITS),
        "class_names": np.array(class_names),
    }
    write_packed(out, arrays)


def cub(source: Path, out: Path, encoder: str) -> None:
    """The first 30 photographs of each class, in the order of images.txt."""
    files = dict(line.split() for line in (source / "images.txt").read_text("utf-8").splitlines())
    classes = dict(line.split() for line in (source / "image_class_labels.txt").read_text("utf-8").splitlines())
    labels = np.array([int(classes[key]) - 1 for key in files])
    rows = np.sort(np.concatenate([np.flatnonzero(labels == c)[:PHOTOS_PER_CLASS] for c in np.unique(labels)]))
    keys = np.array(list(files))[rows]
    paths = [source / "images" / files[key] for key in keys]
    arrays = {
        "X": ImageEncoder(encoder).fit_transform(paths).astype(np.float16),
        "labels": labels[rows],
        "image_id": keys.astype(np.int64),
    }
    write_packed(out, arrays)


RECIPES = {"clinc150": (clinc150, "minilm"), "cub": (cub, "efficientnet-lite0")}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--encoder", help="another encoder; the benchmarks' figures then do not hold")
    given = parser.parse_args(arguments)
    make, encoder = RECIPES[given.recipe]
    make(given.source, given.out, given.encoder or encoder)
    print(f"wrote {given.out}")


if __name__ == "__main__":
    main()
