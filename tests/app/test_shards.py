"""Queries in shards: the same answers as in one process, continued after a failure, never those of another question."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyshot.app import Columns, ItemClassifier, Items, Levels, classify, shards
from polyshot.app.shards import QuerySource, answer_in_shards, answer_shard
from polyshot.errors import DataError, InputError
from polyshot.runs.launchers import LAUNCHERS, Job

LEVELS = Levels(None, None, 2)
N = 600  # queries: three chunks
rng = np.random.default_rng(0)


class Here:
    """A launcher that runs shards in this process; those in `broken` fail."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.broken: set[str] = set()

    def __call__(self, jobs: Sequence[Job], *_: Any) -> Iterator[tuple[Job, str | None]]:
        for job in jobs:
            if job.name in self.broken:
                job.log.write_text("first line\nno space left\n")
                yield job, "exit code 1"
                continue
            _, _, _, folder, first, last = job.commands[0]
            answer_shard(Path(folder), int(first), int(last))
            self.ran.append(job.name)
            yield job, None


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    monkeypatch.setattr(shards, "_SHARD", 250)
    launcher = Here()
    LAUNCHERS.register("here", launcher)
    yield launcher
    LAUNCHERS.unregister("here")


@pytest.fixture
def question(tmp_path: Path) -> tuple[ItemClassifier, QuerySource]:
    np.savez(tmp_path / "q.npz", X=rng.normal(size=(N, 3)).astype(np.float32))
    examples = Items.of("vectors", np.concatenate([np.eye(3), -np.eye(3)]))
    return ItemClassifier.fit(examples, list("aaabbb")), QuerySource(tmp_path / "q.npz", Columns())


def test_shards_answer_all_that_classify_would(
    here: Here, question: tuple[ItemClassifier, QuerySource], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, source = question
    alone = list(classify(model, source.read(), LEVELS))
    answer_in_shards(model, source, N, LEVELS, tmp_path / "parts", "here")
    assert here.ran == ["000000000", "000000250", "000000500"]
    monkeypatch.setattr(ItemClassifier, "answer", None)  # nothing is left to answer
    assert list(classify(model, source.read(), LEVELS, parts=tmp_path / "parts")) == alone


def test_failed_shards_are_reported_and_tried_again(
    here: Here, question: tuple[ItemClassifier, QuerySource], tmp_path: Path
) -> None:
    here.broken = {"000000250"}
    with pytest.raises(DataError, match=r"1 of 3 shards failed; .*exit code 1; .*250.log ends with: no space left"):
        answer_in_shards(*question, N, LEVELS, tmp_path / "parts", "here")
    here.broken = set()
    answer_in_shards(*question, N, LEVELS, tmp_path / "parts", "here")
    assert here.ran == ["000000000", "000000500", "000000250"]
    answer_in_shards(*question, N, LEVELS, tmp_path / "parts", "here")
    assert len(here.ran) == 3


def test_the_chunks_of_another_question_are_forgotten(
    here: Here, question: tuple[ItemClassifier, QuerySource], tmp_path: Path
) -> None:
    answer_in_shards(*question, N, LEVELS, tmp_path / "parts", "here")
    answer_in_shards(*question, N, Levels(None, None, 1), tmp_path / "parts", "here")
    assert len(here.ran) == 6
    (tmp_path / "parts" / "question.json").write_text("{}")
    with pytest.raises(DataError, match="not written by polyshot"):
        answer_shard(tmp_path / "parts", 0, 250)
    with pytest.raises(InputError, match="unknown launcher 'cloud'"):
        answer_in_shards(*question, N, LEVELS, tmp_path / "parts", "cloud")
