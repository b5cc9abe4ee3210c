"""`polyshot train`; its flags are the settings of `TrainingConfig`."""

import inspect
import os
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Any

import typer

from polyshot.cli.messages import say
from polyshot.cli.options import Device, Root
from polyshot.errors import InputError
from polyshot.runs.config import TrainingConfig, flag_settings, read_toml
from polyshot.system.settings import Setting


def train(
    out: Annotated[Path, typer.Option(help="The run folder. An unfinished run in it is resumed.")],
    config: Annotated[
        Path | None, typer.Argument(help="A TOML file with settings, named like the flags; flags overrule it.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Option of the method. Repeatable.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch. Default: all cores.")] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write the log to DIR as event files of TensorBoard.")
    ] = None,
    device: Device = None,
    root: Root = None,
    **settings: Any,
) -> None:
    """Train a method, or resume a run.

    Without further flags the run follows the paper's protocol. After an interrupt the same command resumes; so does
    `polyshot train --out RUN`, which takes all settings from the run.
    """
    from polyshot.runs.callbacks import TensorBoardLog
    from polyshot.runs.folder import RunFolder
    from polyshot.runs.trainer import train as train_run
    from polyshot.system.allocator import keep_freed_memory

    keep_freed_memory()
    values = read_toml(config) if config else {}
    values |= {name: value for name, value in settings.items() if value is not None}
    options = dict(_pair(text) for text in option or [])
    if not values and not options and (out / "config.json").exists():
        chosen = RunFolder(out).config
    else:
        chosen = TrainingConfig.from_mapping(values, str(config or "polyshot train"), options)
    leads = os.environ.get("RANK", "0") == "0"  # one of the processes of torchrun prints
    callbacks = [TensorBoardLog(tensorboard)] if tensorboard and leads else []
    try:
        train_run(chosen, out, root, device=device, threads=threads, callbacks=callbacks)
    except KeyboardInterrupt:
        if leads:
            say(f"interrupted; the same command resumes from the last checkpoint in {out}", err=True)
        raise typer.Exit(130) from None
    if leads:
        say(f"trained: {out}")


def _flag(setting: Setting) -> inspect.Parameter:
    """Return the flag of a setting; it is None unless given, so that it overrules a file only then."""
    shown = setting.default not in (None, MISSING)
    text = f"{setting.help} Default: {setting.default}." if shown else setting.help
    hint = Annotated[setting.type | None, typer.Option(help=text)]  # type: ignore[name-defined]
    return inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--option takes NAME=VALUE, not {text!r}")
    return name, value


_own = inspect.signature(train, eval_str=True)
_flags = [_flag(setting) for setting in flag_settings().values()]
train.__signature__ = _own.replace(  # type: ignore[attr-defined]
    parameters=[*(p for p in _own.parameters.values() if p.kind is not p.VAR_KEYWORD), *_flags]
)
