"""Damaged and forged models, run folders, results and settings: a right answer, or an error that names the file.

A forger's checksums fit: damage is also tried behind them.
"""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from fuzzing import attempt_file, fuzz_settings
from hypothesis import given
from hypothesis import strategies as st
from mutations import damaged_bytes, damaged_tree, json_text
from safetensors.torch import save_file

from made_results import all_protocols
from polyshot.app import ItemClassifier, Items
from polyshot.estimator import OneVsEachClassifier
from polyshot.evaluation.grid import read_sweep
from polyshot.evaluation.results import find_results, write_result
from polyshot.evaluation.tested_run import open_runs
from polyshot.report.page import make_report
from polyshot.report.tables import make_tables
from polyshot.report.tables_text import FORMATS, render
from polyshot.runs.config import TrainingConfig, read_toml
from polyshot.runs.folder import RunFolder
from polyshot.runs.trained import load
from polyshot.runs.trainer import train
from polyshot.system.checkpoint import load_checkpoint
from polyshot.system.sealed import digest
from small_runs import small

MODEL = "polyshot.OneVsEachClassifier 5"
CHECKPOINT = "polyshot-checkpoint-1"
ODD_TENSORS = [
    torch.zeros(()), torch.zeros(0), torch.zeros(3), torch.zeros(6, 2), torch.full((6, 2), float("nan")),
    torch.full((6, 2), 1e300, dtype=torch.float64), torch.zeros(1, 6, 3).double(), torch.zeros(6, dtype=torch.bool),
    torch.full((6,), -1), torch.full((6,), 2**62), torch.zeros(2, dtype=torch.float8_e4m3fn),
    torch.zeros(2, dtype=torch.complex64), torch.zeros(6, dtype=torch.float16), torch.zeros(6, dtype=torch.bfloat16),
]  # fmt: skip


def sealed_checkpoint(path, tensors, record_text, kind):
    """Write a checkpoint whose checksum fits, as a forger would."""
    sum_ = hashlib.sha256(record_text.encode("utf-8", "replace"))
    for name in sorted(tensors):
        t = tensors[name]
        sum_.update(f"{name}{t.dtype}{list(t.shape)}".encode())
        sum_.update(t.contiguous().flatten().view(torch.uint8).numpy().tobytes() if t.numel() else b"")
    save_file(tensors, path, {"format": kind, "record": record_text, "sha256": sum_.hexdigest()})


def forged_json(draw, content, checksum):
    """Text of a damaged JSON object with a checksum that fits, if a reader could come so far."""
    tree = draw(damaged_tree({k: v for k, v in json.loads(content).items() if k != "sha256"}))
    text = json_text(tree)
    if not isinstance(tree, dict) or "[" * 100 in text:
        return text
    return json_text({**tree, "sha256": checksum(json.loads(text))})


def result_checksum(content):
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def forge(draw, path, kind):
    """Replace a tensor or a part of the record."""
    tensors, record = load_checkpoint(path, kind)
    if draw(st.booleans()):
        record = draw(damaged_tree(record))
    else:
        name = draw(st.sampled_from([*tensors, "other"]))
        how = draw(st.sampled_from(["odd", "odd", "remove", "negate", "cut"]))
        if how == "odd":
            tensors[name] = draw(st.sampled_from(ODD_TENSORS)).clone()
        elif how == "remove":
            tensors.pop(name, None)
        elif name in tensors and tensors[name].dtype != torch.bool:
            tensors[name] = -tensors[name] if how == "negate" or not tensors[name].ndim else tensors[name][:-1].clone()
    sealed_checkpoint(path, tensors, json_text(record).encode("utf-8", "replace").decode(), kind)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.polyshot"
    examples = Items.of("vectors", [[0.0, 1.0], [0.1, 1.1], [0.9, 0.3], [1.0, 0.2], [3.0, 2.0], [3.0, 2.2]])
    ItemClassifier.fit(examples, ["low", "low", "high", "high", "far", "far"]).save(path)
    return path


def assert_probabilities(probs):
    assert np.isfinite(probs).all()
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-6)


@fuzz_settings(40)
@given(data=st.data())
def test_a_model_file(model, tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "m.polyshot"
    shutil.copy(model, path)
    if forged := data.draw(st.booleans()):
        forge(data.draw, path, MODEL)
    else:
        path.write_bytes(data.draw(damaged_bytes(path.read_bytes())))
    found = attempt_file(lambda: OneVsEachClassifier.load(path), path)
    if found is not None:
        probs = attempt_file(lambda: found.predict_proba(np.array([[0.5, 0.5]])))
        if probs is not None:
            assert_probabilities(probs)
        if not forged:
            np.testing.assert_array_equal(probs, OneVsEachClassifier.load(model).predict_proba(np.array([[0.5, 0.5]])))


@fuzz_settings(30)
@given(data=st.data())
def test_the_record_beside_a_model(model, tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "n.polyshot"
    record = path.with_name("n.polyshot.json")
    shutil.copy(model, path)
    content = model.with_name("model.polyshot.json").read_bytes()
    if data.draw(st.booleans()):
        record.write_text(forged_json(data.draw, content, digest))
    else:
        record.write_bytes(data.draw(damaged_bytes(content)))
    found = attempt_file(lambda: ItemClassifier.load(path), path)
    if found is not None:
        answers, _ = found.answer(Items.of("vectors", [[0.5, 0.5]]))
        assert all(isinstance(found.described(k), str) for k in answers[0].nearest)


@pytest.fixture(scope="module")
def run(embeddings, tmp_path_factory) -> Path:
    config = small("ove-gp", embeddings, options={"n_chains": 2, "test_steps": 2})
    return train(config, tmp_path_factory.mktemp("trained") / "run", quiet=True)


def forge_run(draw, run):
    """Change the configuration, and tie the checkpoints to the new one."""
    text = forged_json(draw, (run / "config.json").read_bytes(), digest)
    (run / "config.json").write_text(text)
    tie = text.rpartition('"sha256": "')[2][:64]
    for path in run.glob("*.safetensors"):
        tensors, record = load_checkpoint(path)
        sealed_checkpoint(path, tensors, json.dumps(record | {"run": tie}), CHECKPOINT)


@fuzz_settings(40)
@given(data=st.data())
def test_a_run_folder(run, tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp() / "one-run"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(run, folder)
    how = data.draw(st.sampled_from(["bytes", "bytes", "config", "checkpoint", "log", "environment"]))
    file = folder / data.draw(st.sampled_from(sorted(p.name for p in run.iterdir())))
    if how == "bytes":
        file.write_bytes(data.draw(damaged_bytes(file.read_bytes())))
    elif how == "config":
        forge_run(data.draw, folder)
    elif how == "checkpoint":
        forge(data.draw, folder / data.draw(st.sampled_from(["best.safetensors", "last.safetensors"])), CHECKPOINT)
    elif how == "log":  # as the first edition wrote it
        entries = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        entries = data.draw(damaged_tree([{k: v for k, v in entry.items() if k != "check"} for entry in entries]))
        lines = entries if isinstance(entries, list) else [entries]
        (folder / "log.jsonl").write_text("".join(json_text(line) + "\n" for line in lines))
        content = {k: v for k, v in json.loads((folder / "config.json").read_text()).items() if k != "sha256"}
        (folder / "config.json").write_text(json.dumps(content))
    else:
        (folder / "environment.json").write_text(
            json_text(data.draw(damaged_tree({"packages": {"torch": "2"}, "threads": 1})))
        )
    opened = RunFolder(folder)
    for call in (
        lambda: open_runs([folder], None, None, None, unfinished=False),
        lambda: opened.config, lambda: opened.space, lambda: opened.environment, lambda: opened.history,
        lambda: opened.finished, opened.resume,
    ):  # fmt: skip
        attempt_file(call, folder)
    if how == "checkpoint" or (how == "bytes" and file.suffix == ".safetensors"):
        attempt_file(lambda: train(opened.config, folder, quiet=True), folder)
    found = attempt_file(lambda: load(folder), folder)
    if found is not None and found.method.space.shape == (8,):
        x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
        answer = attempt_file(lambda: found.adapt(x, ["a", "a", "b", "b"]).predict(x))
        assert answer is None or torch.isfinite(answer.probabilities).all()


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("results") / "ove" / "results"
    for result in all_protocols("ove"):
        end = "-temperature" if result.temperature else ""
        write_result(folder / f"{result.settings.name}{end}.json", result)
    return folder


@fuzz_settings(12)
@given(data=st.data())
def test_a_result(results, tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp() / "some" / "results"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(results, folder)
    file = folder / data.draw(st.sampled_from(sorted(p.name for p in results.iterdir())))
    if file.suffix == ".json" and data.draw(st.integers(0, 3)):
        file.write_text(forged_json(data.draw, file.read_bytes(), result_checksum))
    else:
        file.write_bytes(data.draw(damaged_bytes(file.read_bytes())))
    found = attempt_file(lambda: find_results([folder]), folder, file)
    if found is not None:
        for name in FORMATS:
            attempt_file(lambda name=name: render(make_tables(found), name))
        attempt_file(lambda: make_report(found))


CONFIG = """
method = "ove-gp"
scenario = "glyphs"
shots = 5
epochs = 2
[options]
n_chains = 3
kernel = "cosine"
"""
GRID = """
out = "runs"
[train]
method = "protonet"
scenario = "glyphs"
[grid]
shots = [1, 5]
seed = [0, 1]
[[evaluate]]
protocols = ["accuracy"]
episodes = 10
"""
WORDS = [
    "true",
    "1e400",
    "-1",
    "[]",
    "{}",
    '"\\u001b[31m"',
    "[[[[1]]]]",
    "0x10",
    "nan",
    "1979-05-27",
    '["a", 1]',
    "'''",
    "10000000000000000000000",
]


@pytest.mark.parametrize("text", [CONFIG, GRID], ids=["config", "grid"])
@fuzz_settings(30)
@given(data=st.data())
def test_a_toml_file(tmp_path_factory, text, data):
    path = tmp_path_factory.getbasetemp() / "settings.toml"
    if data.draw(st.booleans()):
        path.write_bytes(data.draw(damaged_bytes(text.encode())))
    else:
        lines = text.splitlines()
        place = data.draw(st.integers(1, len(lines) - 1))
        key, equals, _ = lines[place].partition("=")
        lines[place] = f"{key}= {data.draw(st.sampled_from([*WORDS, '[' * 5000]))}" if equals else lines[place - 1]
        path.write_text("\n".join(lines))
    if text == CONFIG:
        attempt_file(lambda: TrainingConfig.from_mapping(read_toml(path), str(path)), path)
    else:
        attempt_file(lambda: read_sweep(path), path)
