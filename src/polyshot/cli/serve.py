"""`polyshot serve`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from polyshot.cli.messages import say


def serve(
    model: Annotated[Path, typer.Argument(help="A model that `polyshot classify --save` or `model.save` wrote.")],
    host: Annotated[str, typer.Option(help="Address to listen on. Beyond this computer a token is required.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any that is free.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token that clients must send. Default: the variable POLYSHOT_TOKEN, or none."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further name by which clients call the server; '*' for any. Repeatable."),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Probability with which a prediction set contains the true class.")
    ] = 0.9,
    false_alarm: Annotated[
        float, typer.Option(help='Largest share of items from known classes called "none of these".')
    ] = 0.05,
    reasons: Annotated[
        int, typer.Option(min=0, help="How many of the nearest examples to send; clients see them.")
    ] = 3,
    fast: Annotated[
        bool, typer.Option("--fast", help='Probabilities only: no prediction sets and no "none of these".')
    ] = False,
    most_bytes: Annotated[int, typer.Option(min=1, help="Largest body of a request.")] = 2**24,
    most_items: Annotated[int, typer.Option(min=1, help="Most items of a batch.")] = 256,
    most_requests: Annotated[
        int, typer.Option(min=1, help="Most requests at the same time; further ones are told to try again.")
    ] = 128,
) -> None:
    """Answer over HTTP with a model: texts, images or vectors in JSON.

    GET /openapi.json describes the service, GET /model the model. POST /classify takes {"item": ...}, POST
    /classify/batch takes {"items": [...]}. GET /health says whether the server is up. Ctrl-C ends it.
    """
    from polyshot.app.answers import Levels
    from polyshot.app.guard import allowed_hosts, checked_token, read_token
    from polyshot.app.item_classifier import ItemClassifier
    from polyshot.app.server import listen, run
    from polyshot.app.service import Limits, make_service

    given = read_token(token_file) if token_file else os.environ.get("POLYSHOT_TOKEN")
    token, hosts = checked_token(host, given), allowed_hosts(host, allow_host or [])
    levels = Levels(None, None, reasons) if fast else Levels(confidence, false_alarm, reasons)
    classifier = ItemClassifier.load(model)
    app = make_service(classifier, levels, Limits(most_bytes, most_items, most_requests), hosts=hosts, token=token)
    with listen(host, port) as socket:
        address = f"http://{f'[{host}]' if ':' in host else host}:{socket.getsockname()[1]}"
        for note in levels.notes(len(classifier.examples)):
            say(f"note: {note}")
        say(f"classifies {classifier.kind} into {', '.join(classifier.classes)}")
        say(f"listening on {address}, described at {address}/openapi.json; Ctrl-C ends it")
        run(app, socket)
