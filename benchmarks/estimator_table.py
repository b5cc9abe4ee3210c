"""The estimator benchmark's JSON as Markdown: a row a cell with the best rival of each measure, and the bars."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.estimator_tasks import EMBEDDINGS

OURS = "OneVsEachClassifier"
RESULTS = Path("benchmarks/results/estimator.json")
# What is compared cell by cell: its name, whether more is better, and how far behind the bars allow.
MEASURES = {
    "log_loss": ("log-loss", -1, 0.0),
    "accuracy": ("accuracy", 1, 0.005),
    "unseen": ("AUROC, unseen classes", 1, 0.0),
}
Entry = dict[str, Any]


def mean(entry: Entry, name: str, n: int) -> float:
    """Mean over the first n episodes; of a kind of AUROC ("unseen"), the best of the method's own scores."""
    means = entry["means"][str(n)]
    return float(max((x for key, x in means.items() if key == name or key.startswith(f"{name}: ")), default=np.nan))


def against_rivals(methods: dict[str, Entry], name: str, smaller_is_better: bool = False) -> tuple[float, float, str]:
    """Ours, the best rival's and its name, chosen by its difference to ours; both on the last round that both have."""
    ours = methods[OURS]
    sign = -1 if smaller_is_better else 1
    rivals = {}
    for rival, entry in methods.items():
        if rival != OURS and entry.get("log_loss"):
            n = max(int(n) for n in entry["means"].keys() & ours["means"].keys())
            rivals[rival] = mean(ours, name, n), mean(entry, name, n)
    best = max(rivals, key=lambda rival: sign * np.nan_to_num(rivals[rival][1] - rivals[rival][0]))
    return *rivals[best], best


def cell_summary(methods: dict[str, Entry]) -> dict[str, Any]:
    """Ours and the best rival's numbers, with the rival chosen separately for each measure."""
    ours = methods[OURS]
    n = len(ours["log_loss"])
    summary: dict[str, Any] = {"episodes": n, "ECE": float(np.abs(ours["bin_gaps"]).sum() / n)}
    for name in ("log_loss", "accuracy", "Brier", "unseen", "out_of_scope"):
        summary[name] = against_rivals(methods, name, smaller_is_better=name in ("log_loss", "Brier"))
    ours_there, rivals_loss, _ = summary["log_loss"]
    summary["ratio"] = ours_there / rivals_loss if rivals_loss > 0 else np.nan  # both may be zero in few episodes
    summary["seconds"] = {
        method: sum(mean(entry, name, len(entry["log_loss"])) for name in ("fit_seconds", "predict_seconds"))
        for method, entry in methods.items()
        if entry.get("log_loss")
    }
    few = {m: len(e["log_loss"]) for m, e in methods.items() if e.get("log_loss") and len(e["log_loss"]) < n}
    summary["few"] = ", ".join(f"{method} {k}" for method, k in few.items())
    return summary


def write_table(results: dict[str, dict[str, Entry]], path: Path) -> None:
    """Markdown beside the JSON; cells without our own numbers or any rival's are left out."""
    summaries = {
        name: cell_summary(methods)
        for name, methods in results.items()
        if methods.get(OURS, {}).get("log_loss")
        and any(entry.get("log_loss") for key, entry in methods.items() if key != OURS)
    }
    head = [
        "Each pair is ours and the best rival's, with the rival chosen separately for each measure, on the last",
        "round of episodes that both have (the last column has the rivals with fewer; ECE is over all of ours).",
    ]
    parts = ["\n".join(head), _cells(summaries), _bars(summaries), _behind_cells(summaries)]
    path.write_text("\n\n".join(parts) + "\n")
    if path.with_suffix(".json") == RESULTS:
        put_into_docs("bars", parts[2])
        put_into_docs("behind", parts[3])


def put_into_docs(name: str, table: str) -> None:
    """Replace what stands between `<!-- NAME -->` and `<!-- end -->` on the one page of docs that has it."""
    start, end = f"<!-- {name} -->\n", "\n<!-- end -->"
    (page,) = [page for page in Path("docs").glob("*.md") if start in page.read_text(encoding="utf-8")]
    before, after = page.read_text(encoding="utf-8").split(start)
    page.write_text(before + start + table + after[after.index(end) :], encoding="utf-8")


def _cells(summaries: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| cell | episodes | log-loss | best rival | ratio | Brier | accuracy | ECE | AUROC unseen | out of scope "
        "| fit + predict, LogisticRegressionCV's | rivals with fewer episodes |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, s in summaries.items():
        pairs = {k: f"{s[k][0]:.4f} / {s[k][1]:.4f}" for k in ("Brier", "accuracy", "unseen", "out_of_scope")}
        lines.append(
            f"| {name} | {s['episodes']} | {s['log_loss'][0]:.4f} | {s['log_loss'][1]:.4f} ({s['log_loss'][2]}) | "
            f"{s['ratio']:.2f} | {pairs['Brier']} | {pairs['accuracy']} | {s['ECE']:.3f} | {pairs['unseen']} | "
            f"{pairs['out_of_scope']} | {1e3 * s['seconds'][OURS]:.0f}, "
            f"{1e3 * s['seconds'].get('LogisticRegressionCV', np.nan):.0f} ms | {s['few']} |"
        )
    return re.sub(r"\bnan\b", "-", "\n".join(lines))


def _bars(summaries: dict[str, dict[str, Any]]) -> str:
    """The bars for all embeddings of a half, and for each set."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, s in summaries.items():
        data, half, _, shots = name.split("/")
        if data in EMBEDDINGS:
            for group in (half, f"{data}, {half}"):
                groups.setdefault(group, []).append(s | {"one_shot": shots == "1-shot"})
    lines = ["| embeddings | " + " | ".join(BARS) + " |", "|---" * (len(BARS) + 1) + "|"]
    for group, rows in groups.items():
        lines.append(f"| {group} ({len(rows)} cells) | " + " | ".join(bar(rows) for bar in BARS.values()) + " |")
    return "\n".join(lines)


def _behind_cells(summaries: dict[str, dict[str, Any]]) -> str:
    """Cells, the design half's aside, in which the best rival is ahead of us by more than the bars allow."""
    lines = ["| cell | measure | ours | best rival's | |", "|---|---|---:|---:|---|"]
    for name, s in summaries.items():
        if "/design/" not in name:
            for measure, (title, sign, allowed) in MEASURES.items():
                ours, rivals, rival = s[measure]
                if sign * (rivals - ours) > allowed:
                    lines.append(f"| {name} | {title} | {ours:.4f} | {rivals:.4f} | {rival} |")
    return "\n".join(lines)


def _mean_ece(rows: list[dict[str, Any]], one_shot: bool) -> str:
    values = [r["ECE"] for r in rows if r["one_shot"] == one_shot]
    return f"{np.mean(values):.3f}" if values else "-"


def _behind(rows: list[dict[str, Any]], name: str, allowed: float) -> str:
    gaps = [r[name][1] - r[name][0] for r in rows]
    return f"{sum(g > allowed for g in gaps)} (largest gap {max(gaps):.4f})"


BARS = {
    "mean ratio (<= 0.75)": lambda rows: f"{np.nanmean([r['ratio'] for r in rows]):.3f}",
    "largest ratio (<= 1)": lambda rows: f"{np.nanmax([r['ratio'] for r in rows]):.2f}",
    "ECE, 2+ shots (<= 0.02)": lambda rows: _mean_ece(rows, one_shot=False),
    "ECE, 1 shot (<= 0.04)": lambda rows: _mean_ece(rows, one_shot=True),
    "cells > 0.5 points behind in accuracy (0)": lambda rows: _behind(rows, "accuracy", 0.005),
    "cells behind in AUROC (0)": lambda rows: _behind(rows, "unseen", 0.0),
}
