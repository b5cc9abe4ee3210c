"""Files made to do harm: nothing large is allocated, nothing is run, and one bad file breaks nothing else."""

import io
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import official
import pytest
from PIL import Image
from typer.testing import CliRunner

from polyshot.cli import app
from polyshot.data import DATASETS, import_dataset, load, verify
from polyshot.data.images import ignore_progress, open_image
from polyshot.data.packed import read_packed
from polyshot.errors import DataError

run = CliRunner().invoke


def _npy(shape: str, descr: str = "'|u1'", data: bytes = b"") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def _npz(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (_npy("(4096, 1048576, 1048576)"), "announces 4,503,599,627,370,496 bytes, but has 0"),
        (_npy("(4, 28, 28)", data=bytes(10)), "announces 3,136 bytes, but has 10"),
        (_npy("(-4, 28)"), "not a plain array"),
        (_npy("(1,)", "'|O'", bytes(8)), "not a plain array"),
        (_npy("(1,)", "[('f', '|O')]", bytes(8)), "not a plain array"),
        (_npy("(1,)", "'<U1'", b"\xff\xff\xff\xff"), "not a readable"),
        (_npy("(1,)", "'<U0'"), "not a plain array"),
        (_npy("('a',)"), "not a readable"),
        (_npy("((((((1"), "not a readable"),
        (b"nothing", "not a readable"),
    ],
)
def test_a_header_that_lies_is_found_before_memory_is_allocated(member: bytes, message: str, tmp_path: Path) -> None:
    path = _npz(tmp_path / "x.npz", {"images": member})
    with pytest.raises(DataError, match=f"x.npz: not a readable .npz of plain arrays .*{message}|{message}"):
        read_packed(path)


def test_a_file_that_would_unpack_to_far_more_than_its_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _npz(tmp_path / "x.npz", {"images": _npy("(1000, 100, 100)", data=bytes(10**7))})
    monkeypatch.setattr("polyshot.data.npz._ALWAYS_ALLOWED", 10**6)
    with pytest.raises(DataError, match=r"it announces 10,000,\d+ bytes; a file of its size may hold"):
        read_packed(path)


def test_one_bad_file_does_not_break_the_list(tmp_path: Path) -> None:
    _npz(tmp_path / "huge.npz", {"X": _npy("(1099511627776, 1048576)", "'<f8'"), "labels": _npy("(1,)", "'<i8'")})
    np.savez(tmp_path / "scalar.npz", X=np.array(1.0), labels=np.array(1))
    np.savez(tmp_path / "texts.npz", texts=np.array(["a"]))
    (tmp_path / "cub.npz").write_bytes(b"damaged")
    (tmp_path / "evil\x1b[31m.npz").write_bytes(b"damaged")
    result = run(app, ["data", "list", "--root", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "embeddings:huge" in result.output
    assert "not a data set                 texts.npz" in result.output
    assert "\x1b" not in result.output
    for name in ("embeddings:huge", "embeddings:scalar", "cub"):
        verified = run(app, ["data", "verify", name, "--root", str(tmp_path)])
        assert verified.exit_code == 1
        assert verified.stderr.startswith("error: ")


def test_verify_refuses_equal_class_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=np.eye(3), labels=np.arange(3), class_names=np.array(["ant", "bee", "ant"]))
    checks = {check.what: check for check in verify("embeddings:x", tmp_path)}
    assert not checks["class names"].passed
    assert checks["class names"].detail == "more than one class is called ant"


def _png(width: int, height: int) -> bytes:
    """A small PNG of one colour that says it has so many pixels."""
    row = zlib.compressobj(9)
    data = b"".join([*(row.compress(bytes(1 + width)) for _ in range(height)), row.flush()])

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def test_an_image_with_too_many_pixels_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    official.photo(tmp_path / "ant" / "small.png", (9, 9, 9))
    (tmp_path / "ant" / "large.png").write_bytes(_png(9000, 9000))
    monkeypatch.setattr(Image.Image, "load", None)  # reading the size decodes nothing
    with pytest.raises(DataError, match="9000 x 9000 pixels; at most 64 million are read: make it smaller"):
        open_image(tmp_path / "ant" / "large.png", "RGB")
    monkeypatch.undo()
    with pytest.raises(DataError, match=r"1 of 2 images cannot be read.*\n.*large.png: 9000 x 9000 pixels"):
        load(f"folder:{tmp_path}", "all")


def test_a_large_image_is_read_up_to_the_limit() -> None:
    assert open_image(_png(4000, 3000), "L").size == (4000, 3000)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"


def test_formats_that_need_another_program_are_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*args: object, **options: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr("subprocess.Popen", started)
    monkeypatch.setattr("subprocess.check_call", started)
    official.photo(tmp_path / "ant" / "x.png", (9, 9, 9))
    (tmp_path / "ant" / "drawing.eps").write_bytes(EPS)
    assert len(load(f"folder:{tmp_path}", "all").x) == 1
    (tmp_path / "ant" / "disguised.png").write_bytes(EPS)
    (tmp_path / "ant" / "another.png").write_bytes(b"")
    with pytest.raises(DataError, match="2 of 3 images cannot be read") as caught:
        load(f"folder:{tmp_path}", "all")
    assert "disguised.png: not an image in one of the formats PNG, JPEG" in str(caught.value)


def test_archives_are_read_and_never_extracted(tmp_path: Path) -> None:
    source = tmp_path / "deep" / "source"
    source.mkdir(parents=True)
    official.omniglot(source)
    for part in ("background", "evaluation"):
        with zipfile.ZipFile(source / f"images_{part}.zip", "a") as archive:
            archive.writestr("../../escaped.png", official.omniglot_drawing(1))
            archive.writestr(f"images_{part}/../../../escaped/character01/0009_01.png", official.omniglot_drawing(1))
    before = sorted(tmp_path.rglob("*"))
    arrays = DATASETS["omniglot"].read(source, 28, ignore_progress)
    assert len(arrays["labels"]) == 10
    assert sorted(tmp_path.rglob("*")) == before


def test_a_member_larger_than_any_drawing_is_not_unpacked(tmp_path: Path) -> None:
    official.omniglot(tmp_path)
    with zipfile.ZipFile(tmp_path / "images_evaluation.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        drawing = official.omniglot_drawing(1)
        archive.writestr("images_evaluation/Greek/character01/0007_01.png", drawing[:50] + bytes(5 * 10**7))
    with pytest.raises(DataError, match="1 of 7 images cannot be read"):
        import_dataset("omniglot", tmp_path, tmp_path / "root")


@pytest.mark.parametrize("command", ["import", "sheet"])
def test_a_place_that_cannot_be_written_to_is_an_error_of_ours(command: str, tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        official.photo(tmp_path / "farm" / name / "0.png", (9, 9, 9))
        official.photo(tmp_path / "farm" / name / "1.png", (9, 99, 9))
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "farm" / "splits.json").write_text('{"test": ["ant", "bee"]}')
    if command == "import":
        arguments = ["import", "folder", str(tmp_path / "farm"), "--root", str(tmp_path / "file")]
    else:
        options = ["--n-way", "2", "--n-shot", "1", "--n-query", "1"]
        arguments = ["sheet", f"folder:{tmp_path / 'farm'}", "--out", str(tmp_path / "file" / "x.png"), *options]
    result = run(app, ["data", *arguments])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert "cannot be written" in result.stderr


def test_names_that_are_not_utf8_or_act_on_a_terminal_do_no_harm(tmp_path: Path) -> None:
    names = (b"caf\xe9", b"red\x1b[31m", "abc\u202edef".encode())
    for name in names:
        official.photo(tmp_path / "farm" / name.decode("utf-8", "surrogateescape") / "0.png", (9, 9, 9))
    expected = ("abc\\u202edef", "caf\\udce9", "red\\x1b[31m")
    assert load(f"folder:{tmp_path / 'farm'}", "all").class_names == expected
    root = ["--root", str(tmp_path / "root")]
    result = run(app, ["data", "import", "folder", str(tmp_path / "farm"), *root])
    assert result.exit_code == 0, result.output
    assert load("folder:farm", "all", tmp_path / "root").class_names == expected
    bad = tmp_path / "farm" / names[0].decode("utf-8", "surrogateescape") / "1\x1b[2J\udce9.png"
    bad.write_bytes(b"no image")
    result = run(app, ["data", "import", "folder", str(tmp_path / "farm"), *root])
    assert result.exit_code == 1
    assert "1\\x1b[2J\\udce9.png: not an image" in result.stderr
    assert "\x1b" not in result.stderr
    content = io.BytesIO()
    np.savez(content, X=np.eye(3), labels=np.arange(3), class_names=np.array(["a\x1b[31m", "a\x1b[31m", "\udce9"]))
    (tmp_path / "names.npz").write_bytes(content.getvalue())
    result = run(app, ["data", "verify", f"embeddings:{tmp_path / 'names.npz'}"])
    assert "more than one class is called a\\x1b[31m" in result.output
