"""Small files in the official formats, for the readers to read."""

import gzip
import io
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from polyshot.data import Splits

MINI = Splits.packaged("mini-imagenet").members


def photo(path: Path, color: tuple[int, int, int], size: tuple[int, int] = (40, 30)) -> Path:
    """A picture of one colour with a dark left edge, so that crops and flips can be seen."""
    pixels = np.full((size[1], size[0], 3), color, np.uint8)
    pixels[:, :2] = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def omniglot(folder: Path) -> Path:
    """Two drawings of each of five characters, 105x105, black on white; a stroke at the class's own column."""
    layout = {
        "background": {"Greek": (1, 2), "Latin": (3,)},
        "evaluation": {"Angelic": (4, 5)},
    }
    for part, alphabets in layout.items():
        with zipfile.ZipFile(folder / f"images_{part}.zip", "w") as archive:
            archive.writestr(f"images_{part}/", "")
            for alphabet, numbers in alphabets.items():
                for i, number in enumerate(numbers, start=1):
                    for drawer in (1, 2):
                        name = f"images_{part}/{alphabet}/character{i:02}/{number:04}_{drawer:02}.png"
                        archive.writestr(name, omniglot_drawing(number))
    return folder


def omniglot_drawing(number: int) -> bytes:
    pixels = np.full((105, 105), True)
    pixels[20:85, 15 * number : 15 * number + 8] = False
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def emnist_pixels(n: int) -> tuple[np.ndarray, np.ndarray]:
    """n upright images [n, 28, 28], a bright first row, with labels 0, 1, 2, ..."""
    images = np.zeros((n, 28, 28), np.uint8)
    images[:, 2, 5:20] = 255
    return images, np.arange(n, dtype=np.uint8) % 62


def emnist_idx(folder: Path, sizes: tuple[int, int] = (62, 10)) -> Path:
    for part, n in zip(("train", "test"), sizes, strict=True):
        images, labels = emnist_pixels(n)
        published = images.swapaxes(1, 2)  # EMNIST's images are transposed
        files = {
            "images-idx3": struct.pack(">IIII", 0x803, n, 28, 28) + published.tobytes(),
            "labels-idx1": struct.pack(">II", 0x801, n) + labels.tobytes(),
        }
        for content, raw in files.items():
            (folder / f"emnist-byclass-{part}-{content}-ubyte.gz").write_bytes(gzip.compress(raw))
    return folder


def emnist_zip(folder: Path, target: Path) -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted(folder.glob("*.gz")):
            archive.write(file, f"gzip/{file.name}")
    return target


def chars74k(folder: Path) -> Path:
    for sample in (1, 11):
        pixels = np.full((90, 120), 255, np.uint8)
        pixels[20:70, 40:46] = 0
        path = folder / "Hnd" / "Img" / f"Sample{sample:03}" / f"img{sample:03}-001.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(pixels).save(path)
    return folder


def cub(folder: Path) -> Path:
    names = ["001.Black_footed_Albatross", "002.Laysan_Albatross", "004.Groove_billed_Ani"]
    images, labels = [], []
    for c, name in enumerate(names, start=1):
        for k in range(2):
            images.append(f"{name}/{name}_{k}.jpg")
            labels.append(c)
            photo(folder / "images" / images[-1], (60 * c, 40, 200), (50 + k, 40))
    rows = {"images.txt": images, "classes.txt": names, "image_class_labels.txt": labels}
    for file, values in rows.items():
        (folder / file).write_text("".join(f"{i} {value}\n" for i, value in enumerate(values, start=1)))
    return folder


def tiny_imagenet(folder: Path) -> Path:
    for i, wnid in enumerate(("n01443537", "n01742172")):
        for k in range(2):
            photo(folder / "train" / wnid / "images" / f"{wnid}_{k}.JPEG", (90, 90, 100 * i), (64, 64))
    (folder / "words.txt").write_text("n01443537\tgoldfish\nn01742172\tboa\nn00000001\tunused\n")
    return folder


def mini_folders(folder: Path, below: tuple[str, str, str] = ("", "", "")) -> Path:
    for part, split in zip(below, ("train", "validation", "test"), strict=True):
        for i, wnid in enumerate(MINI[split][:2]):
            photo(folder / part / wnid / f"{wnid}00000001.jpg", (50, 100 * i, 90), (84, 84))
    return folder


def mini_csv(folder: Path, nested: bool = False) -> Path:
    for part, split in (("train", "train"), ("val", "validation"), ("test", "test")):
        lines = ["filename,label"]
        for wnid in MINI[split][:2]:
            name = f"{wnid}00000007.jpg"
            photo(folder / "images" / (wnid if nested else "") / name, (50, 60, 70), (84, 84))
            lines.append(f"{name},{wnid}")
        (folder / f"{part}.csv").write_text("\n".join(lines) + "\n")
    return folder


def mini_pickles(folder: Path, layout: str, protocol: int = 2) -> Path:
    """`class_dict`, `catname2label` or `labels`: the three layouts in circulation."""
    rng = np.random.default_rng(0)
    for part, split in (("train", "train"), ("val", "validation"), ("test", "test")):
        wnids = sorted(MINI[split])
        images = rng.integers(0, 256, (2 * len(wnids), 6, 6, 3), dtype=np.uint8)
        labels = [i // 2 for i in range(len(images))]
        if layout == "class_dict":
            rows = {w: [2 * i, 2 * i + 1] for i, w in enumerate(wnids)}
            content = {"image_data": images, "class_dict": rows}
            name = f"mini-imagenet-cache-{part}.pkl"
        else:
            content = {"data": images, "labels": labels}
            if layout == "catname2label":
                content["catname2label"] = {w: i for i, w in enumerate(wnids)}
            name = f"miniImageNet_category_split_{'train_phase_' if part == 'train' else ''}{part}.pickle"
        (folder / name).write_bytes(pickle.dumps(content, protocol=protocol))
    return folder
