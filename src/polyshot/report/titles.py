"""What methods and scenarios are called; one that is not registered here (a plugin's) goes by its plain name."""

from collections.abc import Mapping
from typing import Any

from polyshot.data import SCENARIOS
from polyshot.evaluation.results import Result
from polyshot.methods import METHODS


def scenario_title(name: str) -> str:
    """The scenario as papers write it."""
    return SCENARIOS[name].title if name in SCENARIOS else name


def method_title(method: str, options: Mapping[str, Any]) -> str:
    """The method as papers write it, with every option that is not the default."""
    return METHODS[method].row_title(options) if method in METHODS else method


def method_label(result: Result) -> str:
    """The row of a result in a table: its method, and whether a temperature was applied."""
    return method_title(result.method, result.options) + (", temperature scaled" if result.temperature else "")
