"""Write the golden files and the reference predictions: python -m tests.golden.make.

The files are those of the present formats. Run this only after a format or a number was changed on purpose, and keep
the old files under a name of their own: docs/formats.md says which formats stay readable. `first-edition` was written
by the first edition of polyshot (0.1.0) and cannot be made again.
"""

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from polyshot.app import ItemClassifier, Items
from polyshot.app.item_classifier import record_path
from polyshot.app.labelling.enough import Accuracy
from polyshot.app.labelling.store import Action, Decision, LabelStore
from polyshot.data.packed import read_packed, write_packed
from polyshot.estimator import OneVsEachClassifier
from polyshot.evaluation.results import find_results, write_result
from polyshot.evaluation.typed_json import encode
from polyshot.methods import METHODS, build_method
from polyshot.runs.config import TrainingConfig
from polyshot.runs.folder import RunFolder
from polyshot.runs.trainer import train
from polyshot.system.settings import keyword_settings
from polyshot.task import LabelledSet, Space
from tests.made_results import make_result

FILES = Path(__file__).parent / "files"
REFERENCE = FILES / "reference.json"
FEWER = {"n_passes": 10, "test_steps": 4, "n_particles": 4, "n_samples": 2}
QUERIES = np.random.default_rng(3).standard_normal((3, 4))
SUPPORT = np.random.default_rng(4).standard_normal((6, 4))
LABELS = np.array([0, 1, 2, 0, 1, 2])


def estimator_answers(model: OneVsEachClassifier) -> dict[str, Any]:
    """All that a classifier says about the queries."""
    mean, covariance = model.latent_mean_and_covariance(QUERIES)
    return {
        "log_probs": model.predict_log_proba(QUERIES).tolist(),
        "mean": mean.tolist(),
        "covariance": covariance.tolist(),
        "outlier_score": model.outlier_score(QUERIES).tolist(),
        "p": model.predict_p(QUERIES).tolist(),
        "labels": model.predict(QUERIES).tolist(),
    }


def fitted(**options: Any) -> OneVsEachClassifier:
    return OneVsEachClassifier(random_state=0, **options).fit(SUPPORT, np.array(["ant", "bee", "cat"])[LABELS])


def method_scores(name: str) -> list[list[float]]:
    """Scores of an untrained method with fixed weights."""
    known = keyword_settings(METHODS[name])
    method = build_method(name, Space((4,), 5), None, {k: v for k, v in FEWER.items() if k in known})
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for p in method.double().parameters():
            p.copy_(torch.from_numpy(np.asarray(rng.normal(0, 0.5, p.shape))))
    return method_answer(method)


def method_answer(method: Any) -> list[list[float]]:
    """Scores in float64: the last digits of float32 depend on the processor."""
    support = LabelledSet(torch.from_numpy(SUPPORT), torch.from_numpy(LABELS))
    scores: list[list[float]] = method.double().eval().adapt(support, 3, 0)(torch.from_numpy(QUERIES)).scores.tolist()
    return scores


def run_answers(folder: Path) -> dict[str, Any]:
    """What is in a run folder: settings, log, and what its method predicts."""
    run = RunFolder(folder)
    method, entry = run.load_method()
    return {
        "config": run.config.as_dict(),
        "history": run.history,
        "best": entry,
        "scores": method_answer(method),
        "finished": run.finished,
    }


def write_models() -> None:
    """Model files of every kind: plain, with sparse rows, by features, with a pool, with weights, and of `classify`."""
    fitted().save(FILES / "model.safetensors")
    names = np.array(["ant", "bee", "cat"])[LABELS]
    sparse = csr_array(np.where(SUPPORT > 0, SUPPORT, 0.0))
    OneVsEachClassifier("linear").fit(sparse, names).save(FILES / "sparse.safetensors")
    many = np.random.default_rng(5).standard_normal((N_MANY, 4)).round(1)
    OneVsEachClassifier("linear").fit(many, many[:, 0] > 0).save(FILES / "features.safetensors")
    pool = np.concatenate([SUPPORT, SUPPORT + 0.1])
    OneVsEachClassifier(unlabeled=None).fit(pool, [*names, *[None] * 6]).save(FILES / "pool.safetensors")
    weighted = OneVsEachClassifier().fit(SUPPORT, names, sample_weight=[1, 2, 1, 0.5, 1, 1])
    weighted.save(FILES / "weighted.safetensors", metadata={"made": "here"})
    ItemClassifier.fit(Items.of("vectors", SUPPORT), names.tolist()).save(FILES / "classify.polyshot")


def model_answers(name: str) -> dict[str, Any]:
    """What a model file says, and what is in it beside the model."""
    path = FILES / name
    model = OneVsEachClassifier.load(path)
    sizes = {"metadata": model.metadata_, "examples": len(model.fitted_.examples.labels)}
    if record_path(path).exists():
        (answer,), _ = ItemClassifier.load(path).answer(Items.of("vectors", QUERIES[:1]))
        sizes["answer"] = answer.as_dict()
    return estimator_answers(model) | sizes


def label_answers() -> dict[str, Any]:
    """Every step in a copy of the file of labels, which is written to when it is opened."""
    with TemporaryDirectory() as folder:
        store = LabelStore(Path(shutil.copy(FILES / "labels.sqlite", folder)), "text", "made-up")
        steps, growth = [asdict(action) for action in store.actions()], [list(point) for point in store.growth()]
        store.close()
    return {"steps": json.loads(json.dumps(steps)), "growth": growth}


def write_labels(path: Path) -> None:
    """A file of labels with every kind of step."""
    path.unlink(missing_ok=True)
    store = LabelStore(path, "text", "made-up")
    store.add(Action(1, ("a", "b"), Decision("class", "login")))
    store.add(Action(2, ("c",), Decision("none"), spot_check=True))
    store.add(Action(3, ("c",), None, undoes=2))
    store.add(Action(4, ("c",), Decision("skip")))
    store.add_growth(Accuracy(3, 1, 0.5, 0.1, 0.9))
    store.close()


def data_answers(path: Path) -> dict[str, Any]:
    packed = read_packed(path)
    return {"X": packed.arrays["X"].tolist(), "labels": packed.labels.tolist(), "classes": list(packed.class_names)}


def result_answers(folder: Path) -> list[Any]:
    """Every result of a run, with the figures per episode."""
    found = sorted(find_results([folder]), key=lambda result: result.settings.name)
    return [{**encode(r), "path": None, "episodes": {k: v.tolist() for k, v in r.episodes.items()}} for r in found]


def reference() -> dict[str, Any]:
    """What the code says now."""
    return {
        "models": {name: model_answers(name) for name in MODELS},
        "labels": label_answers(),
        "data": data_answers(FILES / "data.npz"),
        "run": run_answers(FILES / "run"),
        "first-edition": run_answers(FILES / "first-edition"),
        "results": result_answers(FILES / "run"),
        "estimator": {inference: estimator_answers(fitted(inference=inference)) for inference in INFERENCES},
        "methods": {name: method_scores(name) for name in METHODS},
    }


INFERENCES = ("propagation", "variational")
KINDS = ("first-edition/model", "model", "sparse", "features", "pool", "weighted")
MODELS = ("classify.polyshot", *(f"{kind}.safetensors" for kind in KINDS))
N_MANY = 310  # so many that the posterior is computed by features


def main() -> None:
    """Write all files but those of the first edition."""
    torch.set_num_threads(1)
    rng, labels = np.random.default_rng(0), np.repeat(np.arange(16), 8)
    X = (rng.normal(size=(16, 4))[labels] + rng.normal(0, 0.7, (128, 4))).astype(np.float32)
    names = np.array([f"class {i}" for i in range(16)])
    write_packed(FILES / "data.npz", {"X": X, "labels": labels, "class_names": names})
    write_models()
    write_labels(FILES / "labels.sqlite")
    shutil.rmtree(FILES / "run", ignore_errors=True)
    os.chdir(FILES)  # so that no path of this machine is in the configuration
    few = {"shots": 1, "ways": 2, "queries": 2, "epochs": 2, "episodes_per_epoch": 2, "validation_episodes": 2}
    config = TrainingConfig("ove-gp", "embeddings:data.npz", options={"kernel": "cosine"}, **few)
    train(config, Path("run"), threads=1)
    write_result(Path("run/results/accuracy.json"), make_result("run"))
    REFERENCE.write_text(json.dumps(reference(), indent=1) + "\n")


if __name__ == "__main__":
    main()
