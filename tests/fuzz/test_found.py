"""What fuzzing and forging found, each as one small case; every one of them failed before it was mended."""

import hashlib
import json
import sqlite3

import numpy as np
import pytest
import torch

from made_results import make_result
from polyshot.app import ItemClassifier, Items
from polyshot.app import read_queries as read_app_queries
from polyshot.app.classification import classify
from polyshot.app.labelling.enough import Accuracy
from polyshot.app.labelling.store import Action, Decision, LabelStore
from polyshot.data.class_splits import Splits
from polyshot.errors import DataError, InputError, TrainingError
from polyshot.estimator import OneVsEachClassifier
from polyshot.evaluation.grid import read_sweep
from polyshot.evaluation.results import read_result, write_result
from polyshot.evaluation.tested_run import open_runs
from polyshot.gp import fit_tied_propagation
from polyshot.runs.config import TrainingConfig, read_toml
from polyshot.runs.folder import RunFolder
from polyshot.runs.history import parse_log, validation_accuracies
from polyshot.runs.prediction_files import read_queries
from polyshot.runs.trainer import train
from polyshot.system.checkpoint import load_checkpoint, save_checkpoint
from polyshot.system.sealed import read_sealed, write_sealed
from small_runs import edit_config, small

MODEL = "polyshot.OneVsEachClassifier 5"


def test_toml_lists_within_lists(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(f"shots = {'[' * 10_000}")
    with pytest.raises(InputError, match=r"x\.toml: not a TOML file: maximum recursion depth"):
        read_toml(path)


def test_a_whole_number_beyond_every_float():
    with pytest.raises(InputError, match="shots must be a whole number, at least 1 and at most 10000000"):
        TrainingConfig("protonet", "glyphs", shots=10**400)


def test_a_model_whose_tensor_is_one_number(tmp_path):
    path = tmp_path / "m"
    OneVsEachClassifier().fit(np.eye(4), [0, 0, 1, 1]).save(path)
    tensors, record = load_checkpoint(path, MODEL)
    for name in ("X", "omega", "weights"):
        save_checkpoint(path, tensors | {name: torch.tensor(3.0).double()}, record, MODEL)
        with pytest.raises(DataError, match="m: not a readable classifier"):
            OneVsEachClassifier.load(path)


def test_a_model_with_a_complex_tensor(tmp_path):
    path = tmp_path / "m"
    OneVsEachClassifier().fit(np.eye(4), [0, 0, 1, 1]).save(path)
    tensors, record = load_checkpoint(path, MODEL)
    save_checkpoint(path, tensors | {"other": torch.zeros(2, dtype=torch.complex64)}, record, MODEL)
    with pytest.raises(DataError, match=r"m: not a readable classifier \(other is complex\)"):
        OneVsEachClassifier.load(path)


@pytest.mark.parametrize(
    ("field", "value", "what"), [("log_scale", 1e308, "scales"), ("class_type", "a,b", "class type")]
)
def test_a_model_with_an_absurd_field(field, value, what, tmp_path):
    path = tmp_path / "m"
    OneVsEachClassifier().fit(np.eye(4), [0, 0, 1, 1]).save(path)
    tensors, record = load_checkpoint(path, MODEL)
    save_checkpoint(path, tensors, record | {field: value}, MODEL)
    with pytest.raises(DataError, match=rf"m: not a readable classifier \(wrong {what}\)"):
        OneVsEachClassifier.load(path)


@pytest.mark.parametrize("n", [2, 110])  # 330 examples take nested sweeps
def test_sweeps_that_come_to_no_number_are_given_up(n):
    K, y = torch.eye(3 * n).double() + 0.5, torch.arange(3).repeat_interleave(n)
    fit, _ = fit_tied_propagation(K, y, 3)
    again, _ = fit_tied_propagation(K, y, 3, start=(fit.w, torch.full_like(fit.kappa, torch.inf)))
    assert again.converged
    assert again.log_evidence == pytest.approx(fit.log_evidence, abs=1e-3)
    with pytest.raises(InputError, match="its scale is too large"):
        fit_tied_propagation(1e300 * torch.ones_like(K), y, 3)


def test_a_list_of_settings_with_something_else_in_it(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text('out = "x"\n[train]\nmethod = "protonet"\n[evaluate]\nprotocols = ["accuracy", 1]\n')
    with pytest.raises(InputError, match=r"grid\.toml: \[evaluate\]: protocols must be a list of text, not \['acc"):
        read_sweep(path)


@pytest.mark.parametrize("read", [read_queries, read_app_queries])
def test_queries_that_are_one_number(read, tmp_path):
    np.savez(tmp_path / "x.npz", X=np.array(3.0))
    with pytest.raises(DataError, match=r"x\.npz: X must be floating-point \[n, d\]"):
        read(tmp_path / "x.npz")


def test_a_checkpoint_in_bfloat16(tmp_path):
    tensors = {"half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16), "scalar": torch.tensor(True)}
    save_checkpoint(tmp_path / "x.safetensors", tensors, {})
    found, _ = load_checkpoint(tmp_path / "x.safetensors")
    assert torch.equal(found["half"], tensors["half"])


def test_a_run_whose_losses_are_none(embeddings, tmp_path):
    run = train(small("protonet", embeddings, epochs=1), tmp_path / "a-run", quiet=True)
    tensors, record = load_checkpoint(run / "last.safetensors")
    save_checkpoint(run / "last.safetensors", tensors, record | {"losses": [None]})
    with pytest.raises(TrainingError, match=r"a-run: .* it lacks losses that are numbers"):
        train(RunFolder(run).config, run, quiet=True)


@pytest.mark.parametrize(
    "entry",
    [{}, {"episodes": "9"}, {"episodes": 9, "validation_accuracy": "x"}, {"episodes": 9, "validation_accuracy": 7}],
)
def test_a_log_without_its_numbers(entry):
    with pytest.raises(ValueError, match="no number of episodes, or a validation accuracy that is none"):
        parse_log(json.dumps(entry).encode(), unchecked=True)


def test_a_log_whose_accuracy_is_a_whole_number():
    (accuracy,) = validation_accuracies([{"episodes": 9, "validation_accuracy": 0}])
    assert isinstance(accuracy, float)


@pytest.mark.parametrize("counts", ["12", {"test": "12"}, [1]])
def test_split_counts_that_are_none(counts):
    text = json.dumps({"splits": {"test": ["ant"]}, "counts": counts})
    with pytest.raises(DataError, match="own: not a split file"):
        Splits.parse(text, "own")


def _forged_result(path, change):
    """A result that was changed, with the right checksum."""
    write_result(path, make_result())
    content = {key: value for key, value in json.loads(path.read_text()).items() if key != "sha256"}
    change(content)
    checksum = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    path.write_text(json.dumps({**content, "sha256": checksum}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["examples"][0]["probs"].append([0.5, 0.5]), r"examples: 0: probs has the shape \[7, 2\], which"),
        (lambda c: c["training"].update(seed=[None]), "training: seed must be a whole number"),
        (
            lambda c: c["risk_coverage"]["coverage"].__setitem__(1, 1e308),
            r"coverage must be at most 1e\+100 in size",
        ),
        (
            lambda c: c["summary"]["ece"].update(estimate=-1e308),
            r"estimate must be at most 1e\+100 in size",
        ),
        (lambda c: c["summary"]["ece"].update(estimate=10**400), "estimate must be a number"),
    ],
)
def test_a_forged_result(change, message, tmp_path):
    _forged_result(tmp_path / "x.json", change)
    with pytest.raises(DataError, match=rf"x\.json: .*{message}"):
        read_result(tmp_path / "x.json")


def test_a_run_of_an_unknown_scenario_is_named(embeddings, tmp_path):
    run = train(small("dkt", embeddings, epochs=1), tmp_path / "a-run", quiet=True)
    edit_config(run, scenario="unheard")
    with pytest.raises(InputError, match="a-run: unknown scenario 'unheard'"):
        open_runs([run], None, None, None, unfinished=True)


def test_a_damaged_environment_may_be_deleted(embeddings, tmp_path):
    run = train(small("dkt", embeddings, epochs=1), tmp_path / "a-run", quiet=True)
    (run / "environment.json").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"environment\.json: damaged.* or delete it"):
        train(RunFolder(run).config, run, quiet=True)
    (run / "environment.json").unlink()
    assert train(RunFolder(run).config, run, quiet=True) == run


def test_a_folder_in_place_of_the_log(embeddings, tmp_path):
    run = train(small("dkt", embeddings, epochs=1), tmp_path / "a-run", quiet=True)
    (run / "log.jsonl").unlink()
    (run / "log.jsonl").mkdir()
    with pytest.raises(TrainingError, match=r"log\.jsonl: damaged \(.*Is a directory"):
        open_runs([run], None, None, None, unfinished=False)
    with pytest.raises(DataError, match=r"log\.jsonl: cannot be written \(Is a directory\)"):
        train(RunFolder(run).config, run, quiet=True)
    (run / "log.jsonl").rmdir()
    train(RunFolder(run).config, run, quiet=True)
    assert len(open_runs([run], None, None, None, unfinished=False)) == 1


def test_a_run_of_an_unknown_kernel_is_named(embeddings, tmp_path):
    run = train(small("ove-gp", embeddings, epochs=1), tmp_path / "a-run", quiet=True)
    edit_config(run, options={"kernel": "1e999"})
    with pytest.raises(TrainingError, match=r"a-run/config\.json: no method can be built .* unknown kernel '1e999'"):
        open_runs([run], None, None, None, unfinished=True)


VECTORS = Items.of("vectors", [[0.0], [0.1], [0.9], [1.0]])
LABELS = ["low", "low", "high", "high"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("names", 3), ("names", ["a", "b", "c", 4]), ("kind", "sounds"), ("kind", []), ("kind", "text")],
)
def test_the_record_of_a_model_with_something_else_in_it(field, value, tmp_path):
    path, record = tmp_path / "m", tmp_path / "m.json"
    ItemClassifier.fit(VECTORS, LABELS).save(path)
    content, _ = read_sealed(record)
    write_sealed(record, content | {field: value})
    with pytest.raises(DataError, match=r"m\.json: not the record of a model .*it does not name a kind of items"):
        ItemClassifier.load(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"fingerprint": 1}', b"\xff", b"[" * 10**5])
def test_a_damaged_chunk_of_answers_is_computed_again(content, tmp_path):
    model, queries = ItemClassifier.fit(VECTORS, LABELS), Items.of("vectors", [[0.05], [0.8]])
    first = list(classify(model, queries, parts=tmp_path))
    (tmp_path / "000000.json").write_bytes(content)
    assert list(classify(model, queries, parts=tmp_path)) == first


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE actions SET undoes = 'x' WHERE version = 2",
        "UPDATE actions SET decision = x'ff' WHERE version = 1",
        "UPDATE growth SET accuracy = 'x'",
        "DELETE FROM source",
        "CREATE TRIGGER t AFTER INSERT ON items BEGIN DELETE FROM items; END",
        "DROP TABLE items",
    ],
)
def test_a_forged_file_of_labels(change, tmp_path):
    path = tmp_path / "labels.sqlite"
    store = LabelStore(path, "text", "made-up")
    store.add(Action(1, ("a",), Decision("class", "login")))
    store.add(Action(2, ("a",), None, undoes=1))
    store.add_growth(Accuracy(3, 1, 0.5, 0.1, 0.9))
    store.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(change)
    connection.close()
    with pytest.raises(DataError, match=r"labels\.sqlite: labels cannot be read or written \(the file is damaged\)"):
        read_labels(path)


def test_a_file_of_labels_whose_damage_is_quoted_by_sqlite(tmp_path):
    path = tmp_path / "labels.sqlite"
    LabelStore(path, "text", "made-up").close()
    path.write_bytes(path.read_bytes().replace(b"growthgrowth", b"gro\xffthgrowth"))
    with pytest.raises(DataError, match=r"labels\.sqlite: labels cannot be read or written"):
        read_labels(path)


def read_labels(path):
    store = LabelStore(path, "text", "made-up")
    try:
        return store.actions(), store.growth()
    finally:
        store.close()
