"""Write the reference pages of the site: the API, the command line, the errors and the configuration keys.

The pages come from the code itself, so they cannot differ from it. mkdocs runs this file as a hook.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING
from types import ModuleType
from typing import Any

import click
from mkdocs.structure.files import File, Files

MODULES = {
    "encoders": "Raw texts and images to vectors; [Encoders](../encoders.md) explains them.",
    "gp": "The mathematics: tensors in, tensors out; [Notation](../notation.md) has symbols, names and shapes.",
    "data": "Data sets, scenarios and episodes; [Data](../data.md) explains them.",
    "methods": "The few-shot methods; [Methods](../methods/README.md) has a page for each.",
    "evaluation": "Measures and paired comparison; [Evaluation](../evaluation.md) explains them.",
    "app": "Raw items in, decisions out; [Photos and sentences](../classify.md) explains it.",
}
# The names for whole experiments, which stand in modules below the rooms.
EXPERIMENTS = {
    "Train": ("runs.config.TrainingConfig", "runs.trainer.train", "runs.folder.RunFolder"),
    "Predict with a trained run": ("runs.trained.TrainedRun", "runs.trained.Adapted", "runs.trained.Answer"),
    "Evaluate": (
        "evaluation.evaluate.evaluate", "evaluation.evaluate.Evaluation", "evaluation.protocols.Changes",
        "evaluation.protocols.ProtocolSettings", "evaluation.measures.MEASURES", "evaluation.measures.Measure",
    ),
    "Results": (
        "evaluation.results.Result", "evaluation.results.find_results", "evaluation.results.read_result",
        "evaluation.paired_results.compare_results", "evaluation.paired_results.ResultComparison",
    ),
    "Grids": ("evaluation.grid.read_sweep", "evaluation.sweep.Sweep", "evaluation.sweep.PlannedRun"),
    "Tables and reports": (
        "report.tables.make_tables", "report.tables_text.render", "report.summary.summary_tables",
        "report.findings.findings", "report.page.write_report", "report.reliability.write_reliability",
        "report.reliability.draw_reliability",
    ),
    "Label and serve": (
        "app.labelling.sources.open_session", "app.labelling.session.Session", "app.labelling.store.Decision",
        "app.service.make_service", "app.shards.answer_in_shards", "app.shards.QuerySource",
    ),
    "What a method gets and gives": (
        "task.LabelledSet", "task.Episode", "task.Prediction", "task.Space", "methods.base.QueryFunction",
    ),
}  # fmt: skip


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    pages = {
        "polyshot": _top(),
        **{name: _module(name, summary) for name, summary in MODULES.items()},
        "experiments": _experiments(),
        "errors": _errors(),
        "commands": _commands(),
        "configuration": _configuration(),
    }
    for name, content in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def _top() -> str:
    import polyshot

    names = [name for name in polyshot.__all__ if not name.startswith("__")]
    blocks = [f"::: {_home(polyshot, name)}\n" for name in names]
    note = "`polyshot.__version__` is the installed version."
    return "\n".join(["# polyshot\n", f"The names that most users need. {note}\n", *blocks])


def _module(name: str, summary: str) -> str:
    module = importlib.import_module(f"polyshot.{name}")
    parts = [f"# polyshot.{name}\n", f"{summary}\n"]
    kinds: dict[str, list[str]] = {"Classes": [], "Functions": [], "Constants and types": []}
    for public in module.__all__:
        value = getattr(module, public)
        kind = (
            "Classes" if inspect.isclass(value) else "Functions" if inspect.isfunction(value) else "Constants and types"
        )
        kinds[kind].append(public)
    for title, names in kinds.items():
        if names:
            parts += [f"## {title}\n", *(_entry(module, public) for public in names)]
    return "\n".join(parts)


def _entry(module: ModuleType, name: str) -> str:
    return f"::: {_home(module, name)}\n"


def _home(module: ModuleType, name: str) -> str:
    """The full name of the place where a public name is defined."""
    value = getattr(module, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return f"{value.__module__}.{value.__qualname__}"
    source = inspect.getsource(module)
    imported = re.search(rf"from (\S+) import (?:\([^)]*?\b{name}\b|[^(\n]*\b{name}\b)", source)
    return f"{imported[1] if imported else module.__name__}.{name}"


def _experiments() -> str:
    parts = ["# Experiments\n", "Train, evaluate and report from Python, as the commands of the same names do.\n"]
    for title, names in EXPERIMENTS.items():
        parts += [f"## {title}\n", *(f"::: polyshot.{name}\n" for name in names)]
    return "\n".join(parts)


def _errors() -> str:
    import polyshot.errors

    classes = [name for name, value in vars(polyshot.errors).items() if inspect.isclass(value)]
    text = (
        "Bad input raises one of these. The message says what is wrong, what is expected and what to do. "
        "`except PolyshotError` catches all of them; `InputError` is also a `ValueError`, as scikit-learn expects.\n\n"
        "The command line prints the message without a traceback. Its exit codes:\n\n"
        "| code | meaning |\n|---|---|\n"
        "| 0 | done |\n| 1 | one of these errors, or a package that is not installed |\n"
        "| 2 | an unknown command or option |\n| 130 | interrupted; the same command continues |\n"
    )
    return "\n".join(["# Errors\n", text, *(f"::: polyshot.errors.{name}\n" for name in classes)])


def _commands() -> str:
    import typer.main

    from polyshot.cli import app, load_command

    top = typer.main.get_command(app)
    parts = ["# Command line\n", "`pip install 'polyshot[cli]'`. Every command prints this help with `--help`.\n"]
    parts += _help("polyshot", top)
    for name in top.commands:  # type: ignore[attr-defined]
        for full, command in _tree(f"polyshot {name}", load_command(name)):
            parts += _help(full, command)
    return "\n".join(parts)


def _tree(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for child, sub in getattr(command, "commands", {}).items():
        yield from _tree(f"{name} {child}", sub)


def _help(name: str, command: Any) -> list[str]:
    context = click.Context(command, info_name=name, terminal_width=100, max_content_width=100)
    return [f"## {name}\n", f"```text\n{command.get_help(context)}\n```\n"]


def _configuration() -> str:
    from polyshot.runs.config import OPTION_FLAGS, TrainingConfig
    from polyshot.system.settings import field_settings

    rows = [
        f"| `{name}` | {setting.words} | {_default(setting.default)} | {setting.help} |"
        for name, setting in field_settings(TrainingConfig).items()
    ]
    rows += [f"| `{name}` | text | the method's own | {text} |" for name, text in OPTION_FLAGS.items()]
    text = (
        "The keys of a TOML file for `polyshot train FILE.toml --out RUN`. The flags of `polyshot train` have the same "
        "names, with `-` for `_`. `options` is a table of the method's own options; `polyshot methods` lists them.\n"
    )
    head = "| key | value | default | meaning |\n|---|---|---|---|"
    return "\n".join(["# Configuration keys\n", text, head, *rows, ""])


def _default(value: Any) -> str:
    if value is MISSING or value is inspect.Parameter.empty:
        return "required"
    return "-" if value is None or value == {} else f"`{str(value).lower() if isinstance(value, bool) else value}`"
