"""Figures, tables and text of the Iris experiment, all made from its rows."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from paper.studies.compared import COLOURS, RIVALS, TITLES
from paper.studies.iris import MODELS
from paper.studies.iris_maps import RULE_NAMES, decision_maps, draw_maps, summarise_maps
from paper.studies.iris_study import IrisSettings, Rows, differences, pooled_ece, summarise
from paper.studies.output import Row, new_figure, save_figure, table, write_json, write_rows, write_text
from polyshot.system.threads import one_thread

_PANELS = {
    "accuracy": "Accuracy",
    "brier": "Brier score",
    "ece": "ECE (10 bins)",
    "elbo": "ELBO",
    "kl": "KL(q || softmax)",
}
_BETTER = {"accuracy": 1, "elbo": 1, "brier": -1, "ece": -1}
_WAYS = {"gaussian": "evidence", "logistic-softmax": "evidence", "one-vs-each": "evidence", "softmax": "importance"}
_SAMPLED = ("logistic-softmax", "one-vs-each", "softmax")  # the Gaussian posterior is exact


def iris_figures(out: Path, rows: Rows, settings: IrisSettings) -> list[Path]:
    """Write figures, numbers and text of a finished study into `out`."""
    summary, paired, pooled = summarise(rows), differences(rows), pooled_ece(rows)
    with one_thread():
        plane = decision_maps(max(settings.sizes), settings.seed, settings.effort)
    maps = summarise_maps(plane)
    predictions = [{k: v for k, v in row.items() if k != "gaps"} for row in rows["predictions"]]
    text = iris_words(rows, settings, summary, paired, maps)
    return [
        *_draw_sweep(summary, settings.sizes, out / "iris"),
        *draw_maps(plane, out),
        write_rows(out / "iris_predictions.csv", predictions),
        write_rows(out / "iris_bounds.csv", rows["bounds"]),
        write_rows(out / "iris_diagnostics.csv", rows["diagnostics"]),
        write_rows(out / "iris_summary.csv", summary),
        write_rows(out / "iris_differences.csv", paired),
        write_json(
            out / "iris.json",
            {
                "settings": asdict(settings),
                "summary": summary,
                "differences": paired,
                "pooled_ece": pooled,
                "maps": maps,
            },
        ),
        write_text(out / "iris.md", text),
    ]


def iris_words(rows: Rows, settings: IrisSettings, summary: list[Row], paired: list[Row], maps: list[Row]) -> str:
    """Describe the results in Markdown."""
    sizes = sorted(settings.sizes)
    lines = [
        "# Iris, two features",
        "",
        f"{settings.n_splits} random splits per size, seed {settings.seed}; mean ± half of its 95 % interval.",
        "",
    ]
    for rule, rule_name in RULE_NAMES.items():
        for score in ("accuracy", "brier", "ece"):
            lines += [f"## {_PANELS[score]}, {rule_name}", "", table(_by_size(summary, sizes, score, rule)), ""]
            lines += [*_verdict(paired, sizes, score, rule), ""]
    lines += ["## ELBO to the softmax posterior", "", table(_by_size(summary, sizes, "elbo", None)), ""]
    lines += [*_verdict(paired, sizes, "elbo", "evidence"), "", *_check_words(rows), ""]
    lines += ["## ECE pooled over all splits", "", table(_pooled_table(pooled_ece(rows), sizes)), ""]
    if ways := _ways_table(rows, sizes):
        lines += ["## Three estimates of log q: what the other two add to the ELBO", "", table(ways), ""]
    lines += [f"## Decision maps, {max(sizes)} per class, split 0", "", table(maps), ""]
    return "\n".join(lines)


def _by_size(summary: list[Row], sizes: Sequence[int], score: str, rule: str | None) -> list[Row]:
    """One row per size, one column per method. Without a rule, _WAYS decides; the rivals have one rule only."""
    found = {(r["size"], r["method"], r["rule"]): r for r in summary if r["score"] == score}
    result: list[Row] = []
    for size in sizes:
        row: dict[str, object] = {"per class": size}
        for method in (*MODELS, "softmax", *(RIVALS if score in ("accuracy", "brier", "ece") else ())):
            here = found.get((size, method, "full" if method in RIVALS else rule or _WAYS[method]))
            row[TITLES[method]] = f"{here['mean']:.3f} ± {(here['high'] - here['low']) / 2:.3f}" if here else "-"
        result.append(row)
    return result


def _verdict(paired: list[Row], sizes: Sequence[int], score: str, rule: str) -> list[str]:
    """Sizes at which the paired interval shows one-vs-each better or worse than each other posterior."""
    lines = []
    for other in ("gaussian", "logistic-softmax"):
        better: list[int] = []
        worse: list[int] = []
        equal: list[int] = []
        for row in paired:
            if (row["score"], row["rule"], row["one-vs-each minus"]) == (score, rule, other):
                low, high = sorted((row["low"] * _BETTER[score], row["high"] * _BETTER[score]))
                (better if low > 0 else worse if high < 0 else equal).append(row["size"])
        parts = [
            f"{word} at {', '.join(map(str, s))}"
            for word, s in (("better", better), ("worse", worse), ("no clear difference", equal))
            if s
        ]
        lines.append(f"- One-vs-each against {TITLES[other]}, same splits, 95 %: {'; '.join(parts)} per class.")
    return lines


def _check_words(rows: Rows) -> list[str]:
    """Monte Carlo errors and diagnostics of the numbers behind the ELBO."""
    lines = []
    for method, way in _WAYS.items():
        errors = [r["error"] for r in rows["bounds"] if r["method"] == method and r["way"] == way]
        what = "ELBO" if method in MODELS else "log evidence"
        lines.append(
            f"- Monte Carlo standard error of one split's {what}, {TITLES[method]}: {np.mean(errors):.3f} on average, "
            f"{max(errors):.3f} at most."
        )
    estimates = {(r["size"], r["split"], r["way"]): r for r in rows["bounds"] if r["method"] == "softmax"}
    gaps = [
        (
            r["value"] - estimates[size, split, "importance"]["value"],
            np.hypot(r["error"], estimates[size, split, "importance"]["error"]),
        )
        for (size, split, way), r in estimates.items()
        if way == "reciprocal"
    ]
    if gaps:
        difference, error = np.array(gaps).T
        lines.append(
            f"- Softmax's log evidence by elliptical slices minus that by importance sampling, {len(gaps)} splits: "
            f"{difference.mean():+.4f} on average, {np.abs(difference).max():.3f} at most; "
            f"{(np.abs(difference) < 2 * error).mean():.0%} within two standard errors."
        )
    below = [
        r["value"] - estimates[r["size"], r["split"], "importance"]["value"]
        for r in rows["bounds"]
        if r["way"] == "evidence"
    ]
    lines.append(f"- The ELBO is below the log evidence in {np.mean(np.array(below) < 0):.1%} of {len(below)} cases.")
    for name, limit in (("r_hat", max), ("share of weights", min)):
        for method in _SAMPLED:
            values = [r["value"] for r in rows["diagnostics"] if r["name"] == name and r["method"] == method]
            if values:
                lines.append(f"- {name} of {TITLES[method]}: mean {np.mean(values):.3f}, worst {limit(values):.3f}.")
    return lines


def _pooled_table(pooled: list[Row], sizes: Sequence[int]) -> list[Row]:
    found = {(r["size"], r["method"], r["rule"]): r["ece"] for r in pooled}
    columns = [(method, rule) for rule in RULE_NAMES for method in MODELS] + [(method, "full") for method in RIVALS]
    return [
        {
            "per class": size,
            **{f"{TITLES[m]}, {rule}" if m in MODELS else TITLES[m]: found[size, m, rule] for m, rule in columns},
        }
        for size in sizes
    ]


def _ways_table(rows: Rows, sizes: Sequence[int]) -> list[Row]:
    """ELBO of each substitute for q minus the ELBO of q itself, averaged over the splits."""
    values = {(r["size"], r["split"], r["method"], r["way"]): r["value"] for r in rows["bounds"]}
    result: list[Row] = []
    for size in sizes:
        row: dict[str, object] = {"per class": size}
        for method in ("logistic-softmax", "one-vs-each"):
            for way in ("mixture", "gaussian-fit"):
                gaps = [
                    v - values[*key[:3], "evidence"]
                    for key, v in values.items()
                    if (key[0], *key[2:]) == (size, method, way)
                ]
                if gaps:
                    row[f"{TITLES[method]}, {way}"] = f"{np.mean(gaps):+.3f}"
        if len(row) > 1:
            result.append(row)
    return result


def _draw_sweep(summary: list[Row], sizes: Sequence[int], stem: Path) -> list[Path]:
    """Draw the paper's four panels by its rule; below them, the full predictive and the KL divergence."""
    figure, axes = new_figure(2, 4, (13.0, 6.0), sharex=True)
    panels = [
        (score, rule)
        for rule, last in (("mean", "elbo"), ("full", "kl"))
        for score in ("accuracy", "brier", "ece", last)
    ]
    for axis, (score, rule) in zip(axes, panels, strict=True):
        for method in (*MODELS, "softmax", *RIVALS):
            wanted = _WAYS.get(method) if score in ("elbo", "kl") else "full" if method in RIVALS else rule
            line = [r for r in summary if (r["method"], r["rule"], r["score"]) == (method, wanted, score)]
            if line and not (score == "kl" and method == "softmax"):
                _draw_line(axis, line, method)
        axis.set(title=_PANELS[score], xscale="log")
        # on the logarithmic axis the label 25 would overlap its neighbours
        axis.set_xticks(sizes, ["" if size == 25 else str(size) for size in sizes], fontsize=7)
        axis.minorticks_off()
    axes[7].set_yscale("log")
    for row, rule_name in enumerate(RULE_NAMES.values()):
        axes[4 * row].set_ylabel(rule_name)
    for axis in axes[4:]:
        axis.set_xlabel("training examples per class")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
    return save_figure(figure, stem)


def _draw_line(axis: Axes, line: list[Row], method: str) -> None:
    line = sorted(line, key=lambda r: r["size"])
    x, mean = [r["size"] for r in line], [r["mean"] for r in line]
    reach = [[r["mean"] - r["low"] for r in line], [r["high"] - r["mean"] for r in line]]
    style = "-" if method in MODELS else "--" if method in RIVALS else ":"
    axis.errorbar(
        x,
        mean,
        reach,
        color=COLOURS[method],
        linestyle=style,
        marker="o",
        markersize=2.5,
        linewidth=1.2,
        label=TITLES[method],
    )
