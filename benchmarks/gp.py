"""Speed and memory of polyshot.gp compared with the dense algorithm, in one process with the same threads.

    python -m benchmarks.gp [--out benchmarks/results/gp.json] [--threads 2] [--quick]

`make bench` runs it. Times are medians. Ratios are more meaningful than times, which depend on the machine.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import gpytorch
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.accuracy import draw, error_against_time
from benchmarks.dense import DenseGibbs
from polyshot.gp import Cosine, OneVsEachGP, Prior, draw_prior, gibbs_states, marginal_likelihood, psd_root
from polyshot.methods.backbones import Conv4

N_CHAINS = 20


def median_seconds(call: Callable[[], object], repeats: int) -> float:
    call()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds))


def clustered(n_way: int, n_each: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors around random class centres, within-class cosine 0.5 (as MiniLM sentences of CLINC150 have)."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(n_way, 64, generator=generator).repeat_interleave(n_each, 0)
    labels = torch.arange(n_way).repeat_interleave(n_each)
    return centres + torch.randn(centres.shape, generator=generator), labels


def kernel_matrix(x: torch.Tensor, log_scale: float = 2.0) -> torch.Tensor:
    with torch.no_grad():
        return Cosine(log_scale)(x).double()


def gibbs_steps(quick: bool) -> list[dict[str, object]]:
    """One Gibbs step of 20 chains, ours and dense, at 5 shots."""
    rows, model = [], OneVsEachGP()
    for n_way in (5, 10) if quick else (5, 10, 20):
        x, y = clustered(n_way, 5)
        K = kernel_matrix(x)
        generators = [np.random.default_rng(0)]
        prior = Prior(K, psd_root(K), torch.zeros(1, len(y), n_way, dtype=torch.float64))
        f = draw_prior(prior, N_CHAINS, generators)
        states = gibbs_states(model, prior, y, model.draw_sites(f, y, generators), generators)
        dense = DenseGibbs(K, y, n_way, 0)
        start = dense.prior(N_CHAINS)
        # In turns, because other processes may be busy for seconds.
        rounds = [
            (
                median_seconds(lambda states=states: next(states), 30),
                median_seconds(lambda d=dense, s=start: d.step(s), 10 if n_way == 5 else 1),
            )
            for _ in range({5: 9, 10: 5, 20: 1}[n_way])
        ]
        ours, theirs = np.median(rounds, 0).tolist()
        ratio = float(np.median([d / o for o, d in rounds]))
        rows.append(
            {"ways": n_way, "ours_ms": 1e3 * ours, "dense_ms": 1e3 * theirs, "ratio": ratio}
            | {"gpytorch_ms": 1e3 * gpytorch_posterior(x, y, n_way)}
        )
    for half, row in zip([None, *rows], rows, strict=False):  # C N^3 grows 16-fold, the dense (C N)^3 64-fold
        for name in ("ours", "dense"):
            row[f"{name}_growth"] = row[f"{name}_ms"] / half[f"{name}_ms"] if half else "-"
    return rows


def gpytorch_posterior(x: torch.Tensor, y: torch.Tensor, n_way: int) -> float:
    """Seconds of GPyTorch's exact posterior on +1/-1 labels at 15 queries per class: conditioning and mean."""
    queries, _ = clustered(n_way, 15, seed=1)
    targets = 2.0 * (y == torch.arange(n_way)[:, None]).double() - 1

    class LabelGP(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(x.double().expand(n_way, -1, -1), targets, likelihood)
            self.mean_module = gpytorch.means.ZeroMean(batch_shape=torch.Size([n_way]))
            self.covar_module = gpytorch.kernels.LinearKernel(batch_shape=torch.Size([n_way]))

        def forward(self, z: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(z), self.covar_module(z))

    likelihood = gpytorch.likelihoods.GaussianLikelihood(batch_shape=torch.Size([n_way])).double().eval()

    def posterior() -> torch.Tensor:
        model = LabelGP().double().eval()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model(queries.double().expand(n_way, -1, -1)).mean

    return median_seconds(posterior, 5)


def training_loss() -> dict[str, float]:
    """The ML loss with gradient for 105 points and 20 chains, and Conv4 forward and backward on 105 images."""
    x, y = clustered(5, 21)
    x.requires_grad_(True)
    kernel, model = Cosine(2.0), OneVsEachGP()
    network, images = Conv4(in_channels=1), torch.rand(105, 1, 28, 28)
    rounds = [
        (
            median_seconds(lambda: marginal_likelihood(model, kernel, x, y, 5, seed=0).backward(), 5),
            median_seconds(lambda: network(images).square().sum().backward(), 5),
        )
        for _ in range(7)
    ]
    loss, conv4 = np.median(rounds, 0).tolist()
    ratio = float(np.median([a / b for a, b in rounds]))
    return {"ml_loss_ms": 1e3 * loss, "conv4_ms": 1e3 * conv4, "ratio": ratio}


MEMORY_PROBE = """
import re, torch
from pathlib import Path
import benchmarks.gp as b
from polyshot.gp import OneVsEachGP, gibbs, predict
torch.set_num_threads({threads})
x, y = b.clustered(50, 5)
q, _ = b.clustered(50, 15, seed=1)
every = b.kernel_matrix(torch.cat([x, q]))
def peak(): return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
before = peak()
model = OneVsEachGP()
draws = gibbs(model, every[:250, :250], y, 50, n_steps=2, latent=False, seed=0).draws
predict(model, every[:250, :250], y, draws, every[250:, :250], every.diagonal()[250:])
print(before, peak())
"""


def peak_memory(threads: int) -> dict[str, float]:
    """Peak memory in MB before and after computing a 50-way 5-shot posterior (20 chains, 750 queries)."""
    code = MEMORY_PROBE.format(threads=threads)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    before, peak = map(float, out.split())
    return {"before_mb": before, "peak_mb": peak}


def show(results: dict[str, object]) -> None:
    console = Console(width=100)
    for name, rows in results.items():
        if isinstance(rows, dict):
            rows = [rows]
        if not isinstance(rows, list):
            continue
        table = Table(*rows[0], title=name)
        for row in rows:
            table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gp.json"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="leave out 20 ways and the 50-way memory")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    results: dict[str, object] = {
        "machine": {"processor": platform.processor() or platform.machine(), "threads": arguments.threads}
        | {"torch": torch.__version__, "python": platform.python_version()},
        "Gibbs step, 20 chains, 5 shots": gibbs_steps(arguments.quick),
        "ML loss with gradient, 105 points": training_loss(),
        "error against time, 5-way 5-shot": error_against_time(arguments.quick),
    }
    if not arguments.quick:
        results["memory, 50-way 5-shot"] = peak_memory(arguments.threads)
    show(results)
    draw(results["error against time, 5-way 5-shot"], arguments.out.with_suffix(".png"))
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
