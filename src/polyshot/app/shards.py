"""The queries of `polyshot classify` in shards, which the launchers of `polyshot sweep` run on a computer or a cluster.

A shard is a command of its own: `python -m polyshot.app.shards FOLDER FIRST LAST`. The folder has the model and says
where the queries are. The shard leaves its answers there, in the chunks that `classify` would have made. So `classify`
only has to read them, and an interrupted call continues with the shards that lack a chunk.
"""

import json
import shutil
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from polyshot.app.answers import Levels
from polyshot.app.classification import CHUNK, answer_chunk, chunks, described, model_digest, part_file
from polyshot.app.item_classifier import ItemClassifier
from polyshot.app.items import Items
from polyshot.app.sources import Columns, read_queries, read_table
from polyshot.errors import DataError, PolyshotError
from polyshot.runs.launchers import LAUNCHERS, Job
from polyshot.system.progress import Progress
from polyshot.system.registry import PLUGINS, import_plugin
from polyshot.system.sealed import read_sealed, write_sealed

_SHARD = 20 * CHUNK  # queries
_MODEL, _QUESTION, _OWN = "model.polyshot", "question.json", "launcher"  # in the folder of the chunks


@dataclass(frozen=True)
class QuerySource:
    """Where queries come from, for a process that reads them again.

    Attributes
    ----------
    path : Path
        What `read_table` or `read_queries` takes.
    columns : Columns
    has_examples : bool
        Whether the rows with a label are examples, and only the others queries.
    """

    path: Path
    columns: Columns
    has_examples: bool = False

    def read(self) -> Items:
        """The queries."""
        return read_table(self.path, self.columns)[1] if self.has_examples else read_queries(self.path, self.columns)


def answer_in_shards(
    classifier: ItemClassifier,
    source: QuerySource,
    n_queries: int,
    levels: Levels,
    parts: Path,
    launcher: str,
    n_jobs: int | None = None,
    *,
    quiet: bool = True,
) -> None:
    """Answer the queries in other processes; `classify` with the same `parts` then finds the answers.

    Parameters
    ----------
    classifier : ItemClassifier
        Its encoder must have a name.
    source : QuerySource
        On a cluster every node must find it under this path.
    n_queries : int
        How many queries it has.
    levels : Levels
    parts : Path
        Folder of the finished chunks, as in `classify`.
    launcher : str
        Where to run: "local", "slurm" or "ray".
    n_jobs : int, optional
        Shards at the same time. By default, as many as there is room for.
    quiet : bool
        Show no progress.
    """
    launch = LAUNCHERS.find(launcher)
    _ask(classifier, source, levels, parts)
    jobs, n_waiting = {}, 0
    for first in range(0, n_queries, _SHARD):
        rows = range(first, min(first + _SHARD, n_queries))
        if not all(part_file(parts, chunk).exists() for chunk in chunks(rows)):
            words = (sys.executable, "-m", __name__, str(parts), str(rows.start), str(rows.stop), *PLUGINS)
            jobs[f"{first:09}"] = rows, Job(f"{first:09}", (words,), parts / f"{first:09}.log")
            n_waiting += len(rows)
    failed = []
    with Progress("classifying", n_queries, n_queries - n_waiting, quiet=quiet) as progress:
        waiting = [job for _, job in jobs.values()]
        for job, failure in launch(waiting, n_jobs, parts / _OWN, {}) if waiting else ():
            if failure is None:
                progress.update(progress.done + len(jobs[job.name][0]))
            else:
                failed.append((job, failure))
    for job, failure in failed:
        lines = job.log.read_text("utf-8", "replace").splitlines() if job.log.exists() else []
        raise DataError(
            f"{len(failed)} of {len(jobs)} shards failed; the same command tries them again. The first one: {failure}; "
            f"{job.log} ends with: {lines[-1] if lines else 'nothing'}"
        )


def answer_shard(folder: Path, first: int, last: int) -> None:
    """Answer the queries in [first, last), and leave the chunks in the folder."""
    question, sealed = read_sealed(folder / _QUESTION)
    if not sealed:
        raise DataError(f"{folder / _QUESTION}: not written by polyshot; give the command again without this folder")
    values = question["columns"]
    columns = Columns(**{**values, "numbers": tuple(values["numbers"])})
    queries = QuerySource(Path(question["path"]), columns, question["has_examples"]).read()
    classifier, levels = ItemClassifier.load(folder / _MODEL), Levels(**question["levels"])
    for rows in chunks(range(first, last)):
        answer_chunk(classifier, queries, rows, levels, folder, question["model"])


def _ask(classifier: ItemClassifier, source: QuerySource, levels: Levels, parts: Path) -> None:
    """Put model and question into the folder; chunks of another question there are deleted."""
    question: dict[str, Any] = {
        "path": str(source.path),
        "file": described(source.path),
        "columns": asdict(source.columns),
        "has_examples": source.has_examples,
        "levels": asdict(levels),
        "model": model_digest(classifier),
    }
    with suppress(DataError):
        if read_sealed(parts / _QUESTION) == (json.loads(json.dumps(question)), True):
            return
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(parents=True)
    classifier.save(parts / _MODEL)
    write_sealed(parts / _QUESTION, question)


def main() -> None:
    """Answer one shard, as the words of the command say."""
    folder, first, last, *plugins = sys.argv[1:]
    try:
        for module in plugins:
            import_plugin(module)
        answer_shard(Path(folder), int(first), int(last))
    except PolyshotError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
