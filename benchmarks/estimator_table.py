"""The estimator benchmark's JSON as Markdown: a row a cell with the best rival of each measure, and the bars."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.estimator_tasks import EMBEDDINGS

OURS = "OneVsEachClassifier"


def best_auroc(row: dict[str, Any], kind: str) -> float:
    return max(row.get(f"AUROC_{kind}", {}).values(), default=float("nan"))


def cell_summary(methods: dict[str, Any]) -> dict[str, Any]:
    """Ours and the best rival's numbers, the rival chosen anew for each measure."""
    ours = methods[OURS]
    rivals = {name: row for name, row in methods.items() if name != OURS and "log_loss" in row}
    summary: dict[str, Any] = {"episodes": ours["episodes"], "ECE": ours["ECE"], "Brier": ours["Brier"]}
    by_loss = min(rivals, key=lambda name: rivals[name]["log_loss"])
    summary |= {"log_loss": ours["log_loss"], "rival": by_loss, "rival_log_loss": rivals[by_loss]["log_loss"]}
    summary["accuracy"] = ours["accuracy"]
    summary["rival_accuracy"] = max(row["accuracy"] for row in rivals.values())
    for kind in ("unseen", "out_of_scope"):
        summary[kind] = best_auroc(ours, kind)
        summary[f"rival_{kind}"] = max((best_auroc(row, kind) for row in rivals.values()), default=float("nan"))
    summary["seconds"] = ours["fit_seconds"] + ours["predict_seconds"]
    return summary


def write_table(results: dict[str, Any], path: Path) -> None:
    """Markdown beside the JSON; cells without our own numbers or any rival's are left out."""
    lines = [
        "| cell | episodes | log-loss | best rival | ratio | accuracy | best | ECE | AUROC unseen | best "
        "| out of scope | best | fit + predict |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, methods in results["cells"].items():
        if OURS not in methods or not any("log_loss" in row for key, row in methods.items() if key != OURS):
            continue
        s = cell_summary(methods)
        data, half, _, shots = name.split("/")
        s["one_shot"] = shots == "1-shot"
        if data in EMBEDDINGS:
            groups.setdefault(half, []).append(s)
        lines.append(
            f"| {name} | {s['episodes']} | {s['log_loss']:.4f} | {s['rival_log_loss']:.4f} ({s['rival']}) | "
            f"{s['log_loss'] / s['rival_log_loss']:.2f} | {s['accuracy']:.4f} | {s['rival_accuracy']:.4f} | "
            f"{s['ECE']:.3f} | {s['unseen']:.4f} | {s['rival_unseen']:.4f} | "
            f"{s['out_of_scope']:.4f} | {s['rival_out_of_scope']:.4f} | "
            f"{1e3 * s['seconds']:.0f} ms |"
        )
    lines += ["", "| embeddings, half | " + " | ".join(BARS) + " |", "|---" * (len(BARS) + 1) + "|"]
    for half, rows in groups.items():
        lines.append(f"| {half} ({len(rows)} cells) | " + " | ".join(bar(rows) for bar in BARS.values()) + " |")
    path.write_text("\n".join(lines).replace("nan", "-") + "\n")


def _ratios(rows: list[dict[str, Any]]) -> list[float]:
    return [r["log_loss"] / r["rival_log_loss"] for r in rows]


def _mean_ece(rows: list[dict[str, Any]], one_shot: bool) -> str:
    values = [r["ECE"] for r in rows if r["one_shot"] == one_shot]
    return f"{np.mean(values):.3f}" if values else "-"


BARS = {
    "mean ratio (<= 0.75)": lambda rows: f"{np.mean(_ratios(rows)):.3f}",
    "largest ratio (<= 1)": lambda rows: f"{max(_ratios(rows)):.2f}",
    "ECE, 2+ shots (<= 0.02)": lambda rows: _mean_ece(rows, one_shot=False),
    "ECE, 1 shot (<= 0.04)": lambda rows: _mean_ece(rows, one_shot=True),
    "cells > 0.5 points behind in accuracy": lambda rows: str(
        sum(r["accuracy"] < r["rival_accuracy"] - 0.005 for r in rows)
    ),
    "cells behind in AUROC": lambda rows: str(sum(r["unseen"] < r["rival_unseen"] for r in rows)),
}
