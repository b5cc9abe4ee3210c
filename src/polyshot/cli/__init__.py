"""The command `polyshot`: parses, calls, prints. One file a group of commands."""

import typer

from polyshot.cli import evaluate, report, tables, train
from polyshot.cli.data import app as data
from polyshot.cli.messages import ErrorsAsMessages
from polyshot.system.allocator import keep_freed_memory

app = typer.Typer(
    cls=ErrorsAsMessages,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Bayesian few-shot classification with one-vs-each Pólya-Gamma Gaussian processes.",
)


@app.callback()
def prepare() -> None:
    """Commands keep freed memory, which makes training faster."""
    keep_freed_memory()


app.command()(train.train)
app.command()(train.predict)
app.command()(train.methods)
app.command()(evaluate.evaluate)
app.command()(tables.tables)
app.command()(report.report)
app.add_typer(data, name="data")
