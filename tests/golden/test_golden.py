"""Files that earlier versions wrote are read as ever, and the predictions of today are those of the reference."""

import json
from pathlib import Path

import numpy as np
import pytest

from polyshot.methods import METHODS
from tests.golden import make

REFERENCE = json.loads(make.REFERENCE.read_text())
READ = {"rtol": 1e-10, "atol": 1e-10}
SCORES = {"rtol": 1e-8, "atol": 1e-8}


def assert_same(actual, expected, **tolerance):
    if isinstance(expected, dict):
        assert expected.keys() <= actual.keys()  # a later version may add a setting, with a default
        for key in expected:
            assert_same(actual[key], expected[key], **tolerance)
    elif isinstance(expected, list) and expected and isinstance(expected[0], dict | str):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other, **tolerance)
    elif isinstance(expected, float | list):
        np.testing.assert_allclose(np.asarray(actual, float), np.asarray(expected, float), **tolerance)  # null is NaN
    else:
        assert actual == expected


@pytest.mark.parametrize("name", make.MODELS)
def test_a_model_file_answers_as_ever(name):
    assert_same(make.model_answers(name), REFERENCE["models"][name], **READ)


def test_a_file_of_labels_is_read_as_ever():
    assert_same(make.label_answers(), REFERENCE["labels"], **READ)


def test_packed_data_are_read_as_ever():
    assert_same(make.data_answers(make.FILES / "data.npz"), REFERENCE["data"], **READ)


@pytest.mark.parametrize("folder", ["run", "first-edition"])
def test_a_run_folder_is_read_as_ever(folder):
    actual, expected = make.run_answers(make.FILES / folder), dict(REFERENCE[folder])
    assert_same(actual.pop("scores"), expected.pop("scores"), **SCORES)
    assert_same(actual, expected, **READ)


def test_results_are_read_as_ever():
    assert_same(make.result_answers(make.FILES / "run"), REFERENCE["results"], **READ)


@pytest.mark.parametrize("inference", make.INFERENCES)
def test_the_estimator_predicts_as_ever(inference):
    expected = REFERENCE["estimator"][inference]
    assert_same(make.estimator_answers(make.fitted(inference=inference)), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", list(METHODS))
def test_a_method_predicts_as_ever(name):
    assert name in REFERENCE["methods"], "a new method: run python -m tests.golden.make"
    np.testing.assert_allclose(make.method_scores(name), REFERENCE["methods"][name], **SCORES)


def test_the_golden_files_are_small():
    assert sum(file.stat().st_size for file in Path(make.FILES).rglob("*")) < 200_000
