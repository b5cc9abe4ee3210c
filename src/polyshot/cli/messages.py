"""Errors of polyshot as messages on the terminal."""

from typing import Any

import typer
from typer.core import TyperGroup

from polyshot.errors import PolyshotError
from polyshot.system.extras import missing_extra
from polyshot.system.text import printable


def say(text: str, *, err: bool = False) -> None:
    """Print a message; no name in it acts on the terminal."""
    typer.echo(printable(text, keep="\n"), err=err)


class ErrorsAsMessages(TyperGroup):
    """A group of commands that prints what is wrong and what to do, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except PolyshotError as error:
            say(f"error: {error}", err=True)
            raise typer.Exit(1) from error
        except ModuleNotFoundError as error:
            if (message := missing_extra(error)) is None:
                raise
            say(f"error: {message}", err=True)
            raise typer.Exit(1) from error
