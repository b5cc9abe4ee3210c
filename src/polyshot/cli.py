"""The command `polyshot`: parses, calls, prints. One file a group of commands."""

from typing import Any

import typer
from typer.core import TyperGroup

from polyshot import commands
from polyshot.data.commands import app as data
from polyshot.errors import PolyshotError
from polyshot.evaluation import commands as evaluation
from polyshot.evaluation import report_commands
from polyshot.experiments.commands import app as figures
from polyshot.memory import keep_freed_memory


class _ErrorsAsMessages(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Run a command; print what polyshot says is wrong, without a traceback."""
        keep_freed_memory()
        try:
            return super().invoke(ctx)
        except PolyshotError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=_ErrorsAsMessages,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Bayesian few-shot classification with one-vs-each Pólya-Gamma Gaussian processes.",
)
app.command()(commands.train)
app.command()(commands.predict)
app.command()(commands.methods)
app.command()(evaluation.evaluate)
app.command()(report_commands.tables)
app.command()(report_commands.report)
app.add_typer(data, name="data")
app.add_typer(figures, name="figures")
