"""Does expectation propagation call a point converged that further sweeps leave? Counts this over hard tasks.

    python -m benchmarks.convergence [--tasks 1000] [--first 3000] [--minutes 5] [--out FILE]

Writes the table into docs/inference.md, once all tasks are done; the same call continues one that ran out of minutes.
Hard tasks have nearly parallel rows (a common offset of up to 100 times the spread), unbalanced classes and large
kernel scales. A convergence is false if another 1,000 sweeps move the log evidence by more than 1e-3, or a class
probability of a support example by more than 1e-3. These sweeps are plain steps, damped to 5 %. General expectation
propagation, whose sites share no precision, is measured on the same tasks: its convergence is false if a run with a
tolerance of 1e-8 ends elsewhere. Nested sweeps, which are for many examples, are measured on the same tasks.

Task k has the seed k. The criteria were chosen on the seeds 0 to 2,999, so the default counts the next 1,000.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.estimator_table import put_into_docs
from polyshot.gp import (
    OneVsEachGP,
    TiedConditional,
    TiedPropagation,
    fit_propagation,
    fit_tied_propagation,
    log_evidence,
    make_kernel,
)
from polyshot.gp.inference import tied_propagation
from polyshot.gp.inference.moment_matching import match_tied

METHODS = "fit_tied_propagation", "fit_tied_propagation, nested sweeps", "fit_propagation"
LARGEST_MOVE = 1e-3
N_FURTHER, SHARE = 1000, 0.05
_FEW = tied_propagation._FEW

Answer = tuple[float, Tensor]  # log evidence, and class probabilities of the support examples


def make_task(seed: int) -> tuple[Tensor, Tensor, int]:
    """K, y and the number of classes of one hard task."""
    rng = np.random.default_rng(seed)
    n_way = int(rng.choice([2, 2, 2, 3, 5]))
    n = int(rng.integers(n_way + 3, 50))
    offset, dim = float(rng.choice([0.0, 5.0, 20.0, 30.0, 100.0])), int(rng.choice([4, 32, 128]))
    x = torch.from_numpy(offset + rng.normal(size=(n, dim)))
    # 1 to 3 examples of each class but the first, which has all the others
    y = np.r_[np.tile(np.arange(1, n_way), int(rng.integers(1, 4))), np.zeros(n, int)][:n]
    kernel = make_kernel(str(rng.choice(["cosine", "normalized-rbf", "linear"]))).double()
    with torch.no_grad():
        K = kernel(x)
    K = K / K.diagonal().mean()
    return np.exp(rng.uniform(0, 8)) * K + float(rng.choice([0.0, 0.5, 10.0])), torch.from_numpy(y), n_way


def further(K: Tensor, y: Tensor, fit: TiedPropagation) -> Answer:
    """The answer after another 1,000 damped sweeps."""
    w, kappa = fit.w, fit.kappa
    for _ in range(N_FURTHER):
        posterior = TiedConditional.of(K, y, w, kappa)
        psi, variance = posterior.contrasts()
        matched = match_tied(psi, variance.clamp(min=1e-12), y, w, kappa, torch.ones_like(w))
        evidence = posterior.log_integral + matched.log_scale
        w, kappa = w + SHARE * (matched.w - w), kappa + SHARE * (matched.kappa - kappa)
    return evidence, torch.softmax(posterior.f, -1)


def general(K: Tensor, y: Tensor, n_way: int, **options: float) -> tuple[bool, Answer]:
    """Whether general expectation propagation converged, and its answer."""
    model = OneVsEachGP()
    q = fit_propagation(model, K, y, n_way, **options)
    mean = K @ model.condition(K, y, q.sites).a[0]
    return q.converged, (float(log_evidence(model, K, y, q)), torch.softmax(mean, -1))


def differ(one: Answer, other: Answer) -> bool:
    """Whether two answers differ by more than a convergence allows."""
    return abs(one[0] - other[0]) > LARGEST_MOVE or float((one[1] - other[1]).abs().max()) > LARGEST_MOVE


def count(seed: int, rows: list[dict[str, Any]]) -> None:
    """Add what happened in one task, for each kind of propagation."""
    (K, y, n_way), end = make_task(seed), None
    for row, most in zip(rows[:2], (_FEW, 0), strict=True):
        tied_propagation._FEW = most  # nested sweeps are for more examples than these tasks have
        begin = time.process_time()
        fit, posterior = fit_tied_propagation(K, y, n_way)
        row["seconds"] += time.process_time() - begin
        row["above_zero"] += fit.log_evidence > 0
        row["converged"] += fit.converged
        answer = fit.log_evidence, torch.softmax(posterior.f, -1)
        if end is None or differ(answer, end):  # both may end in the same point
            end = further(K, y, fit)
        row["false"] += fit.converged and differ(answer, end)
    begin = time.process_time()
    converged, answer = general(K, y, n_way)
    rows[2]["seconds"] += time.process_time() - begin
    rows[2]["above_zero"] += answer[0] > 0
    rows[2]["converged"] += converged
    rows[2]["false"] += converged and differ(answer, general(K, y, n_way, tolerance=1e-8, max_sweeps=2000)[1])


def counted(arguments: argparse.Namespace) -> dict[str, Any]:
    """The counts so far, from the file of an earlier call about the same tasks, and more until the time is over."""
    start = {name: 0 for name in ("converged", "false", "above_zero", "seconds")}
    record: dict[str, Any] = {"first": arguments.first, "done": 0, "rows": [{"method": m, **start} for m in METHODS]}
    if arguments.out.is_file():
        found = json.loads(arguments.out.read_text())
        if found.get("first") == arguments.first and found["done"] < arguments.tasks:
            record = found
    end = time.monotonic() + 60 * arguments.minutes
    while record["done"] < arguments.tasks and time.monotonic() < end:
        count(arguments.first + record["done"], record["rows"])
        record["done"] += 1
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--first", type=int, default=3000)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/convergence.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    record = counted(arguments)
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    lines = ["| method | tasks | converged | of these false | log evidence above 0 | processor time |"]
    lines.append("|---|---|---|---|---|---|")
    for row in record["rows"]:
        counts = record["done"], row["converged"], row["false"], row["above_zero"]
        lines.append(f"| `{row['method']}` | {' | '.join(map(str, counts))} | {row['seconds']:.0f} s |")
    print(*lines, sep="\n")
    if record["done"] == arguments.tasks:
        put_into_docs("convergence", "\n".join(lines))


if __name__ == "__main__":
    main()
