"""The command `polyshot`: parse, call, print. One file per command, imported when the command is used.

So `polyshot --help` and the completion of command names load neither torch nor rich. The commands that import what is
heavy inside their function keep their own help and completion quick too.
"""

import importlib
import os
import sys
from typing import Annotated, Any

import typer

import polyshot
from polyshot.cli.messages import ErrorsAsMessages, say
from polyshot.system.registry import import_plugin

# The module polyshot.cli.NAME holds a function NAME, or an `app` with commands of its own.
_COMMANDS = {
    "classify": "Classify your own photos, texts or vectors, given a few labels.",
    "label": "Label photos or texts on a page in your browser, with a model that learns as you go.",
    "serve": "Answer over HTTP with a model of `classify`.",
    "train": "Train a method, or resume a run.",
    "predict": "Classify images or embeddings with a trained run.",
    "evaluate": "Evaluate trained runs by the paper's protocols.",
    "sweep": "Train and evaluate a grid of runs, on this computer or on a cluster.",
    "tables": "Show results as tables in the paper's form.",
    "report": "Write results as one HTML page.",
    "methods": "List the methods with their options.",
    "data": "List, import, verify and show data sets.",
    "demo": "Train, evaluate and compare two methods in minutes.",
}


class _Commands(ErrorsAsMessages):
    """The commands by their summaries; the one that is used is imported."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if command else None, rest


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help cuts no option name, takes no word for markup, and is quick
)


def load_command(name: str | None) -> Any:
    """Import a command."""
    module = importlib.import_module(f"polyshot.cli.{name}")
    sub: typer.Typer | None = getattr(module, "app", None)
    if sub is None:
        sub = typer.Typer(add_completion=False)
        sub.command(name)(getattr(module, str(name)))
    command: Any = typer.main.get_command(sub)
    for part in (command, *getattr(command, "commands", {}).values()):
        part.rich_markup_mode = None
    return command


def _print_version(wanted: bool) -> bool:
    if wanted:
        say(f"polyshot {polyshot.__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _top(
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE",
            help="Import a module of your own that registers methods, kernels, data sets or measures. Repeatable.",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Bayesian few-shot classification with one-vs-each Pólya-Gamma Gaussian processes."""
    sys.path.append(os.getcwd())  # where plugins and backbones of the user are looked for last
    for module in plugin or []:
        import_plugin(module)


def _stand_in() -> None: ...


for _name, _summary in _COMMANDS.items():
    app.command(_name, help=_summary)(_stand_in)
