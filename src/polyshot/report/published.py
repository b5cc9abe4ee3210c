"""The figures that the paper published (published.csv, whose first line names the source), and the paper's names.

    published_figure("accuracy", "cub", 5, "ove-gp", {"objective": "pl", "kernel": "cosine"}, "accuracy")

Accuracies are shares here, as everywhere in polyshot, not percentages.
"""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from polyshot.methods import METHODS
from polyshot.system.settings import keyword_settings

SCENARIO_NAMES = {
    "cub": "CUB",
    "mini-imagenet": "mini-ImageNet",
    "mini-imagenet-to-cub": "mini-ImageNet→CUB",
    "omniglot-to-emnist": "Omniglot→EMNIST",
    "omniglot-to-chars74k": "Omniglot→Chars74K",
    "tiny-imagenet": "Tiny-ImageNet",
    "tiny-imagenet-to-cub": "Tiny-ImageNet→CUB",
}
_METHOD_NAMES = {
    "feature-transfer": "Feature Transfer",
    "baseline++": "Baseline++",
    "matchingnet": "MatchingNet",
    "protonet": "ProtoNet",
    "relationnet": "RelationNet",
    "maml": "MAML",
    "dkt": "DKT",
    "bayesian-maml": "Bayesian MAML",
    "bayesian-maml-chaser": "Bayesian MAML (Chaser)",
    "abml": "ABML",
    "logistic-softmax-gp": "Logistic Softmax GP",
    "ove-gp": "OVE PG GP",
}
_KERNEL_NAMES = {
    "cosine": "Cosine",
    "dkt-cosine": "DKT's Cosine",
    "linear": "Linear",
    "rbf": "RBF",
    "normalized-rbf": "RBF (normalized)",
}


class Figure(NamedTuple):
    """A published mean, and the standard deviation of the five batches where the paper gives one."""

    value: float
    std: float | None


def scenario_name(scenario: str) -> str:
    """As the paper writes it."""
    return SCENARIO_NAMES.get(scenario, scenario)


def method_name(method: str) -> str:
    """As the paper writes it, without kernel and objective."""
    return _METHOD_NAMES.get(method, method)


def kernel_name(method: str, kernel: str) -> str:
    """As the paper writes it, which calls two kernels cosine: DKT's own, and that of the other GPs."""
    if method == "dkt" and "cosine" in kernel:
        return "Cosine" if kernel == "dkt-cosine" else "OVE's Cosine"
    return _KERNEL_NAMES.get(kernel, kernel)


def full_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the defaults of those that are not given; none for an unknown method."""
    known = keyword_settings(METHODS[method]) if method in METHODS else {}
    return {name: option.default for name, option in known.items()} | dict(options)


def published_figure(
    table: str, scenario: str, shots: int, method: str, options: Mapping[str, Any], metric: str
) -> Figure | None:
    """What the paper has for this method, or None; `table` is accuracy or corruption:NAME, all of 5 ways.

    Kernel and objective are what the paper tells apart; other options (chains, steps, inference) are ours, and a
    table's rows name those that are not the default.
    """
    full = full_options(method, options)
    kernel, objective = full.get("kernel", ""), full.get("objective", "")
    name, kernel = method_name(method), kernel_name(method, kernel)
    rows = _rows()
    plain = name + (f" + {kernel}" if kernel else "")
    return rows.get((table, scenario, shots, plain, objective, "", metric)) or (
        rows.get(("kernels", scenario, shots, name, objective, kernel.lower(), metric)) if table == "accuracy" else None
    )


def published_scenarios() -> set[str]:
    """The scenarios that the paper has figures for."""
    return {key[1] for key in _rows()}


@cache
def _rows() -> dict[tuple[str, str, int, str, str, str, str], Figure]:
    """By table, scenario, shots, method, objective, kernel (of the kernels' tables) and metric."""
    text = files("polyshot.report").joinpath("published.csv").read_text("utf-8")
    rows = {}
    for row in csv.DictReader(text.splitlines()[1:]):
        percent = row["metric"] == "accuracy_percent"
        metric, scale = ("accuracy", 100.0) if percent else (row["metric"], 1.0)
        std = round(float(row["std"]) / scale, 6) if row["std"] else None
        key = (row["table"], row["dataset"], int(row["shots"]), row["method"], row["objective"], row["kernel"], metric)
        rows[key] = Figure(round(float(row["value"]) / scale, 6), std)
    return rows
