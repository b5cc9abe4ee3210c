import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from made_results import make_result
from polyshot.errors import DataError
from polyshot.evaluation.metrics import Interval, ReliabilityBins
from polyshot.evaluation.paired_results import COMPARISON_FORMAT
from polyshot.evaluation.results import Result, find_results, read_result, to_json, write_result
from polyshot.evaluation.typed_json import encode
from polyshot.system import files

REQUIRED = {"run", "method", "options", "scenario", "training", "settings", "weights", "test_data", "summary"}


def written(path: Path, **changes: Any) -> Path:
    write_result(path, make_result(protocol="out-of-episode", **changes))
    return path


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a result file and give it the right checksum, as another version of polyshot might have written it."""
    import hashlib

    content = json.loads(path.read_text("utf-8"))
    change(content)
    del content["sha256"]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    path.write_bytes(to_json(content | {"sha256": hashlib.sha256(canonical.encode()).hexdigest()}))


def test_two_files_hold_all_of_a_result_to_six_digits_and_are_read_as_typed_objects(tmp_path: Path) -> None:
    result = make_result(protocol="out-of-episode", temperature=0.7)
    write_result(tmp_path / "x.json", result)
    read = read_result(tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text())["format"] == "polyshot-result-3"
    assert (read.path, read.label, read.protocol) == (tmp_path / "x.json", "ove (temperature)", "out-of-episode")
    assert (read.settings, read.temperature) == (result.settings, result.temperature)
    assert isinstance(read.summary["brier"], Interval)
    assert isinstance(read.reliability, ReliabilityBins)
    assert read.reliability.count.tolist() == result.reliability.count.tolist()  # type: ignore[union-attr]
    assert not read.summary["ece"].bounded
    for name, values in result.episodes.items():
        assert read.episodes[name].tolist() == [float(f"{x:.6g}") for x in values]
    with np.load(tmp_path / "x.episodes.npz") as arrays:
        assert {arrays[name].dtype for name in arrays.files} == {np.dtype(np.float32)}
    write_result(tmp_path / "y.json", read)
    for ending in (".json", ".episodes.npz"):
        assert (tmp_path / f"x{ending}").read_bytes() == (tmp_path / f"y{ending}").read_bytes()


def test_numbers_are_rounded_and_nan_is_null() -> None:
    assert encode({"a": np.array([1 / 3, np.nan]), "b": (np.int64(1234567), True)}) == {
        "a": [0.333333, None],
        "b": [1234567, True],
    }


def test_only_identity_and_summary_are_required(tmp_path: Path) -> None:
    path = written(tmp_path / "x.json")

    def keep_required(content: dict[str, Any]) -> None:
        for name in content.keys() - REQUIRED - {"format", "sha256"}:
            del content[name]
        content["a figure of a later version"] = [1, 2]

    edit(path, keep_required)
    read = read_result(path)
    assert read.summary["auroc"].estimate > 0.5
    assert (read.reliability, read.risk_coverage, read.roc, read.episodes, read.examples) == (None, None, {}, {}, ())
    for name in REQUIRED:
        path = written(tmp_path / "y.json")
        edit(path, lambda content, name=name: content.pop(name))  # type: ignore[misc]
        with pytest.raises(DataError, match=rf"y\.json: {name} is missing"):
            read_result(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(run=7), "run must be a text, not 7"),
        (lambda c: c.update(settings=[]), r"settings must be an object, not \[\]"),
        (lambda c: c["settings"].update(ways="5"), "settings: ways must be a whole number, not '5'"),
        (lambda c: c["summary"].update(brier=0.2), "summary: brier must be an object, not 0.2"),
        (lambda c: c["summary"]["brier"].update(low="x"), "summary: brier: low must be a number, not 'x'"),
        (lambda c: c["reliability"].update(count=[0.5]), "reliability: count must be a list of whole numbers"),
        (lambda c: c["reliability"].update(edges={"a": 1}), "reliability: edges must be a list"),
        (lambda c: c["examples"][0].update(probs=[[1], [1, 2]]), "probs must be a list of numbers"),
        (lambda c: c.update(temperature={"value": 1.0, "bound": "left"}), "bound must be 'lower' or 'upper'"),
        (lambda c: c.update(episodes_sha256="0"), "damaged, or not of the same result as the JSON file beside it"),
    ],
)
def test_an_odd_field_is_an_error_that_names_the_file(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    path = written(tmp_path / "x.json")
    edit(path, change)
    with pytest.raises(DataError, match=rf"{re.escape(str(tmp_path))}/x\..*{message}"):
        find_results([tmp_path])


def test_a_flipped_digit_and_a_missing_end_are_found_wherever_they_are(tmp_path: Path) -> None:
    path = written(tmp_path / "run" / "results" / "accuracy.json")
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    digits = [i for i, byte in enumerate(whole) if chr(byte).isdigit()]
    for i in [*rng.choice(digits, 40), *digits[:1], *digits[-1:]]:
        flipped = bytes([b"1234567890"[whole[i] - ord("0")]])
        path.write_bytes(whole[:i] + flipped + whole[i + 1 :])
        with pytest.raises(DataError, match=r"accuracy\.json: "):
            find_results([tmp_path])
    path.with_name("accuracy.episodes.npz").unlink()
    for end in [0, 1, 5, 20, 40, *rng.integers(len(whole), size=20), len(whole) - 3]:
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"accuracy\.json: not a readable JSON file, perhaps cut short"):
            find_results([tmp_path])
    path.write_bytes(whole)
    with pytest.raises(DataError, match=r"accuracy\.episodes\.npz: cannot be read .*or delete accuracy\.json and run"):
        find_results([tmp_path])


def test_damaged_per_episode_figures_are_found(tmp_path: Path) -> None:
    path = written(tmp_path / "x.json")
    beside = tmp_path / "x.episodes.npz"
    content = beside.read_bytes()
    for changed in (content[:-5], content[:100] + bytes([content[100] ^ 1]) + content[101:], b""):
        beside.write_bytes(changed)
        with pytest.raises(DataError, match=r"x\.episodes\.npz: damaged"):
            read_result(path)


def test_a_crash_between_the_two_files_leaves_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "x.json", strength=1.0)
    replace = files.os.fsync

    def crash_at_json(handle: int) -> None:
        if list(tmp_path.glob(".x.json.*")):
            raise KeyboardInterrupt
        replace(handle)

    monkeypatch.setattr(files.os, "fsync", crash_at_json)
    with pytest.raises(KeyboardInterrupt):
        written(path, strength=2.0)
    assert [file.name for file in tmp_path.iterdir()] == ["x.episodes.npz"]


def test_slim_drops_what_tables_do_not_need(tmp_path: Path) -> None:
    result = make_result(protocol="out-of-episode")
    slim = result.slim({"auroc"})
    assert set(slim.episodes) == {"auroc"}
    assert (slim.risk_coverage, slim.confidence_histogram, slim.roc, slim.score_histograms) == (None, None, {}, {})
    assert slim.examples == ()
    assert slim.reliability is result.reliability
    assert slim.summary == result.summary
    assert set(result.slim().episodes) == set(result.episodes)
    written(tmp_path / "x.json")
    write_result(tmp_path / "x.json", result.slim(()))
    assert not (tmp_path / "x.episodes.npz").exists()
    assert read_result(tmp_path / "x.json").episodes == {}


def test_results_are_found_in_folders_once_and_other_files_are_ignored(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_result(tmp_path / name / "results" / "accuracy.json", make_result(name))
    (tmp_path / "comparison.json").write_bytes(to_json({"format": COMPARISON_FORMAT, "comparisons": []}))
    (tmp_path / "config.json").write_text("{}")
    found = find_results([tmp_path, tmp_path / "a" / "results" / "accuracy.json"])
    assert [r.run for r in found] == ["a", "b"]


def test_runs_of_the_same_name_get_as_much_of_their_path_as_distinguishes_them(tmp_path: Path) -> None:
    def names(*results: tuple[str, Result]) -> list[str]:
        for place, result in results:
            write_result(tmp_path / place / f"{result.settings.name}.json", result)
        return [r.run for r in find_results([tmp_path])]

    # Results of one run on different tasks are of one run.
    assert names(("at-1/p", make_result("p", shots=1)), ("at-5/p", make_result("p", shots=5))) == ["p", "p"]
    assert names(("demo/p/results", make_result("p", shots=5))) == ["p", "at-5/p", "demo/p"]


def test_what_is_not_a_result_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder; `polyshot evaluate"):
        find_results([tmp_path / "none"])
    with pytest.raises(DataError, match="contains no results"):
        find_results([tmp_path])
    old = '{\n"format": "polyshot-result-2",\n"run": "x"}'
    for content, message in (
        ("no", "not a readable JSON"),
        ("[]", "not a result"),
        (old, "has the format polyshot-result-2 instead of polyshot-result-3; delete it"),
    ):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(DataError, match=rf"x\.json: {message}"):
            find_results([tmp_path / "x.json"])
    with pytest.raises(DataError, match="polyshot-result-2"):
        find_results([tmp_path])
