import importlib.util
import os
from pathlib import Path

import pytest
from scipy.stats import binom

FOLDER = Path(__file__).parents[2] / "examples"


def needs(name):
    there = (Path(os.environ.get("POLYSHOT_DATA", ".")) / name).is_file()
    return pytest.mark.skipif(not there, reason=f"{name} is not in $POLYSHOT_DATA")


def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_text_intents_finds_what_is_out_of_scope(monkeypatch, capsys):
    monkeypatch.delenv("POLYSHOT_DATA", raising=False)
    result = example("text_intents").main()
    assert result["accuracy"] == 1
    assert result["AUROC"] > 0.9
    assert "->" in capsys.readouterr().out


@needs("clinc150_minilm.npz")
def test_text_intents_of_clinc150_find_what_is_out_of_scope(capsys):
    result = example("text_intents").main()
    assert result["accuracy"] > 0.85
    assert result["AUROC"] > 0.98
    assert result["out of scope found"] > 0.9
    assert result["in scope kept"] > 0.9
    assert "-> account_blocked" in capsys.readouterr().out


def test_image_features_have_a_better_log_loss_than_logistic_regression(monkeypatch):
    monkeypatch.delenv("POLYSHOT_DATA", raising=False)
    result = example("image_features").main()
    assert result["OneVsEachClassifier"] < result["LogisticRegression"]


@needs("cub_efficientnet.npz")
def test_birds_have_a_better_log_loss_than_by_logistic_regression(capsys):
    result = example("image_features").main()
    assert result["OneVsEachClassifier"] < result["LogisticRegression"]
    assert capsys.readouterr().out.count("above 0.9") == 2


def test_next_to_label_learns_faster_than_at_random():
    curves = example("active_learning").main(repetitions=3)
    assert curves["next_to_label"][0] == pytest.approx(curves["at random"][0])
    assert curves["next_to_label"][-1] > curves["at random"][-1]


def test_decisions_keep_their_promises():
    result = example("decisions").main()  # 20 drawings with 10 queries each
    assert result["covered"] >= binom.ppf(1e-3, 200, 0.9) / 200
    assert result["false alarms"] <= binom.ppf(1 - 1e-3, 200, 0.05) / 200
    assert result["strangers found"] > 0.3
    assert result["right"] > 4 * (1 - result["right"] - result["left open"])


def test_wrong_labels_are_found_and_worth_correcting():
    result = example("wrong_labels").main()
    assert result["found"] >= 0.9
    assert result["after"] > result["before"]


def test_a_pool_with_strangers_lowers_the_log_loss():
    result = example("unlabelled").main(repetitions=4)
    assert result["with the pool"] < 0.9 * result["labels alone"]
