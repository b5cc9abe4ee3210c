"""`polyshot classify`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from polyshot.cli.messages import say


def classify(
    table: Annotated[
        Path | None,
        typer.Argument(help="A CSV, Parquet or npz file of labelled rows and queries, which have no label."),
    ] = None,
    support: Annotated[
        Path | None, typer.Option(help="Labelled examples: a folder with one sub-folder per class, a table or an npz.")
    ] = None,
    query: Annotated[
        Path | None, typer.Option(help="What to classify: a folder of images, one image, a table or an npz.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Use a model that --save wrote, instead of examples.")] = None,
    text: Annotated[str | None, typer.Option(help="Column of texts.")] = None,
    image: Annotated[str | None, typer.Option(help="Column of paths of images.")] = None,
    numbers: Annotated[
        str | None, typer.Option(help="Columns of numbers, with commas; or one column whose cells are lists.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column of labels; rows without one are queries.")] = None,
    id_: Annotated[str | None, typer.Option("--id", help="Column that names the rows. Default: their number.")] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="What turns items into vectors. Default: wordllama for texts, efficientnet-lite0 for images."
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Probability with which a prediction set contains the true class.")
    ] = 0.9,
    false_alarm: Annotated[
        float, typer.Option(help='Largest share of queries from known classes called "none of these".')
    ] = 0.05,
    reasons: Annotated[int, typer.Option(min=0, help="How many of the nearest examples to show.")] = 3,
    label_next: Annotated[
        int, typer.Option(min=0, help="How many queries to name whose labels would teach the model most.")
    ] = 10,
    fast: Annotated[
        bool, typer.Option("--fast", help='Probabilities only: no prediction sets and no "none of these".')
    ] = False,
    pool: Annotated[bool, typer.Option(help="Learn from the queries too, which have no label.")] = True,
    out: Annotated[Path, typer.Option(help="Table to write: .csv or .parquet.")] = Path("answers.csv"),
    page: Annotated[bool, typer.Option(help="Also write an HTML page, beside the table.")] = True,
    sort_into: Annotated[
        Path | None, typer.Option(help="Copy the images into one sub-folder per class of this folder.")
    ] = None,
    links: Annotated[bool, typer.Option("--links", help="With --sort-into: link instead of copying.")] = False,
    save: Annotated[Path | None, typer.Option(help="Keep the model in this file, such as model.polyshot.")] = None,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out damaged images, empty texts and unusable vectors.")
    ] = False,
    launcher: Annotated[
        str | None, typer.Option(help="Answer in other processes: local, slurm or ray. Default: in this one.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="With --launcher: processes at once. Default: as there is room for.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
) -> None:
    """Classify texts, images or vectors, given a few labelled examples of each class.

    Writes a table with one row per query: what to do (accept, ask, none of these), the predicted class, its
    probability, the set of possible classes, and the nearest examples. It also says which queries to label next, and
    which labels to check. An interrupted command continues where it stopped when it is given again.
    """
    from polyshot import app
    from polyshot.app.item_classifier import record_path
    from polyshot.app.outputs import check_free, check_sortable, check_table
    from polyshot.app.shards import QuerySource, answer_in_shards
    from polyshot.errors import InputError
    from polyshot.runs.launchers import LAUNCHERS
    from polyshot.system.lock import only_writer

    columns = app.Columns(text, image, tuple(filter(None, (numbers or "").split(","))), label, id_)
    html = out.with_suffix(".html") if page else None
    written = [out, html, *([save, record_path(save)] if save else []), sort_into]
    check_table(out)
    if links and not sort_into:
        raise InputError("--links is for --sort-into; give both, or neither")
    if not force:
        check_free([path for path in written if path is not None])
    levels = app.Levels(None, None, reasons) if fast else app.Levels(confidence, false_alarm, reasons)
    if launcher:
        LAUNCHERS.find(launcher)  # complains now, not after the model is fitted
    elif jobs:
        raise InputError("--jobs is for --launcher; give both, or neither")
    classifier, queries = _inputs(table, support, query, model, columns, encoder, pool, skip_unreadable)
    if sort_into:
        check_sortable(queries)
    parts = out.with_name(f"{out.name}.parts")
    files = [path for path in (out, html, save) if path is not None]
    with only_writer(out.with_name(f".{out.name}.lock"), *files):
        if launcher:
            source = QuerySource(query or table, columns, has_examples=query is None)  # type: ignore[arg-type]
            answer_in_shards(classifier, source, len(queries), levels, parts, launcher, jobs, quiet=False)
        result = app.classify(
            classifier, queries, levels, parts=parts, n_next=label_next, skip_unreadable=skip_unreadable, quiet=False
        )
        app.write_answers(result, out)
        if html:
            app.write_page(result, html)
        if sort_into:
            app.sort_into(result, sort_into, links=links)
        if save:
            classifier.save(save)
        result.forget_parts()
    _print(result, [path for path in written if path is not None])


def _inputs(
    table: Path | None,
    support: Path | None,
    query: Path | None,
    model: Path | None,
    columns: Any,
    encoder: str | None,
    pool: bool,
    skip_unreadable: bool,
) -> tuple[Any, Any]:
    """The classifier and the queries, from one of the three forms of the command."""
    from polyshot import app
    from polyshot.errors import InputError

    given = [name for name, value in (("TABLE", table), ("--support", support), ("--model", model)) if value]
    if len(given) != 1 or (not table and not query):
        raise InputError(
            "give labelled examples and queries in one of these forms: TABLE; --support with --query; --model with "
            f"--query; got {', '.join([*given, *(['--query'] if query else [])]) or 'none of them'}"
        )
    if model:
        if encoder:
            raise InputError("a model has its own encoder; leave out --encoder")
        return app.ItemClassifier.load(model), app.read_queries(query, columns)  # type: ignore[arg-type]
    if table and not query:
        (examples, labels), queries = app.read_table(table, columns)
    else:
        examples, labels = app.read_labelled(table or support, columns)  # type: ignore[arg-type]
        queries = app.read_queries(query, columns)  # type: ignore[arg-type]
    unlabelled = queries if pool else None
    fitted = app.ItemClassifier.fit(examples, labels, encoder, pool=unlabelled, skip_unreadable=skip_unreadable)
    return fitted, queries


def _list_suspects(result: Any) -> str:
    from polyshot.app.items import list_reasons

    classifier = result.classifier
    return list_reasons(
        {
            classifier.examples.names[
                k
            ]: f"labelled {classifier.labels[k]}, which has probability {p:.3f} given the others"
            for k, p in result.suspects
        }
    )


def _print(result: Any, written: list[Path]) -> None:
    """Print a summary."""
    from polyshot.app.items import list_failures

    lines = [f"{action}: {n:,}" for action, n in result.actions.most_common()]
    lines += [f"note: {text}" for text in result.notes]
    if result.next_to_label:
        lines.append(f"label next: {', '.join(result.queries.names[row] for row in result.next_to_label)}")
    if result.suspects:
        lines.append(f"labels to check: {len(result.suspects):,}\n{_list_suspects(result)}")
    if result.failures:
        lines.append(f"left out: {len(result.failures):,}\n{list_failures(result.queries, result.failures)}")
    lines += [f"wrote {path}" for path in written]
    say("\n".join(lines))
