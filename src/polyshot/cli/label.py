"""`polyshot label`."""

from pathlib import Path
from typing import Annotated

import typer

from polyshot.cli.messages import say


def label(
    source: Annotated[Path, typer.Argument(help="A folder of images, or a table (CSV, Parquet).", show_default=False)],
    text: Annotated[str | None, typer.Option(help="Column of texts.")] = None,
    image: Annotated[str | None, typer.Option(help="Column of paths of images.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of labels to start with; cells may be empty.")] = None,
    folders: Annotated[
        bool, typer.Option("--folders", help="Start with the names of the sub-folders as the labels of their images.")
    ] = False,
    id_: Annotated[str | None, typer.Option("--id", help="Column that names the rows. Default: their number.")] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.sqlite",
            help="Where the labels are kept; the session goes on with what is there. Default: SOURCE.labels.sqlite.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for exports. Default: SOURCE.labelled.")] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="What turns items into vectors. Default: wordllama for texts, efficientnet-lite0 for images."
        ),
    ] = None,
    target: Annotated[
        float, typer.Option(help="Expected accuracy at which the page says that it is enough.", min=0, max=1)
    ] = 0.9,
    port: Annotated[int, typer.Option(help="Port of the page. 0 takes any free one.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Label photos or texts on a page in your browser, with a model that learns as you go.

    The page shows the item most worth labelling and takes a class by key or click. Every label is on disk at once:
    end the command whenever you like, and give it again to go on. Only this computer can open the page.
    """
    import webbrowser

    from polyshot.app.items import list_reasons
    from polyshot.app.labelling import Exports, Server, open_session
    from polyshot.app.sources import Columns

    def beside(ending: str) -> Path:
        return source.absolute().with_name(f"{source.absolute().name}.{ending}")

    file, folder = labels or beside("labels.sqlite"), out or beside("labelled")
    columns = Columns(text, image, (), label, id_)
    session, failures = open_session(source, file, columns, folders=folders, encoder=encoder)
    with session:
        server = Server(session, Exports(session, folder), port=port, target=target)
        if failures:
            say(f"left out, because they cannot be used: {len(failures):,}\n{list_reasons(failures)}")
        n = len(session.decisions.current)
        say(f"{len(session.items):,} items, {n:,} of them decided; labels are kept in {file}")
        say(f"open {server.url}\nEnd with Ctrl-C.")
        if browser:
            webbrowser.open(server.url)
        server.run()
        say(f"{len(session.decisions.labels):,} labels in {file}; give the same command to go on")
