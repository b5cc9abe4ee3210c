"""Do the Gibbs samplers draw from the right posterior? Two tests, longer than those of the suite.

    python -m benchmarks.samplers [--replications 1000] [--chains 2000] [--rounds 20] [--out FILE]

Writes the table into docs/robustness.md. Simulation-based calibration (Talts et al. 2018): logits and labels drawn
from the joint distribution, and then the rank of these logits among posterior draws, which is uniform if the sampler is
right; p is that of a chi-square test. Geweke's joint test (Geweke 2004): drawing labels and logits in turn must leave
the joint distribution as it is; z is the largest change of a first or second moment in standard errors. `fails` allows
for the number of comparisons (Bonferroni) at a false alarm rate of 1 % for the whole table.

The joint density is the prior times the likelihood. From three classes on, the one-vs-each likelihood sums to less than
one over the labels, so logits of this density are not the prior's: they are drawn from it by rejection.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch import Generator, Tensor

from benchmarks.estimator_table import put_into_docs
from polyshot.gp import (
    GPModel,
    LogisticSoftmaxGP,
    OneVsEachGP,
    Prior,
    as_generators,
    draw_latent,
    draw_prior,
    gibbs,
)

MODELS: dict[str, GPModel] = {"one-vs-each": OneVsEachGP(), "logistic-softmax": LogisticSoftmaxGP()}
N, N_POSTERIOR, STEPS = 3, 19, 30
MEAN = torch.tensor([1.0, -0.5, 0.0], dtype=torch.float64)  # favours the first class, so that labels are unbalanced
FALSE_ALARM = 0.01


def covariance(log_scale: float) -> Tensor:
    """Of three examples in the plane."""
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(N, 2)))
    return float(np.exp(log_scale)) * (x @ x.T + 0.1 * torch.eye(N))


def draw_labels(model: GPModel, f: Tensor, rng: np.random.Generator) -> Tensor:
    """Labels [..., N] of logits [..., N, C]."""
    shares = model.likelihood.log_probs(f).exp().numpy().cumsum(-1)
    return torch.from_numpy((rng.random((*shares.shape[:-1], 1)) > shares[..., :-1]).sum(-1))


def prior_of(n_way: int, log_scale: float, batch: int) -> Prior:
    K = covariance(log_scale)
    parts = (x.expand(batch, N, N) for x in (K, torch.linalg.cholesky(K)))
    return Prior(*parts, MEAN[:n_way].expand(batch, 1, N, n_way))


def draw_logits(model: GPModel, prior: Prior, rng: np.random.Generator, generators: Sequence[Generator]) -> Tensor:
    """Logits [batch, 1, N, C] with the density of the prior times the likelihood's sum over the labels."""
    f, undecided = torch.zeros_like(prior.mean), torch.ones(len(prior.mean), dtype=torch.bool)
    while undecided.any():
        drawn = draw_prior(prior, 1, generators)
        f = torch.where(undecided[:, None, None, None], drawn, f)
        accepted = model.likelihood.log_all(drawn).logsumexp(-1).sum(-1).exp()[:, 0]
        undecided &= torch.from_numpy(rng.random(len(f))) > accepted
    return f


def calibration(model: GPModel, n_way: int, log_scale: float, replications: int) -> list[float]:
    """P-values of a few scalars' ranks."""
    rng = np.random.default_rng(1)
    f = draw_logits(model, prior_of(n_way, log_scale, replications), rng, as_generators(2, replications))[:, 0]
    y = draw_labels(model, f, rng)
    K = covariance(log_scale).expand(replications, N, N)
    chain = gibbs(model, K, y, n_way, mean=MEAN[:n_way], n_chains=N_POSTERIOR, n_steps=STEPS, seed=3)
    draws = chain.f[:, 0]  # [replications, chains, N, C]

    def scalars(f: Tensor, y: Tensor) -> Tensor:
        likelihood = model.likelihood.log_likelihood(f, y).sum(-1)
        return torch.stack([f[..., 0, 0], f[..., 1, 1], f[..., 0, 0] * f[..., 1, 1], likelihood], -1)

    truth = scalars(f[:, None], y[:, None])
    ranks = (scalars(draws, y[:, None].expand(draws.shape[:-1])) < truth).sum(1).numpy()
    return [float(stats.chisquare(np.bincount(column, minlength=N_POSTERIOR + 1)).pvalue) for column in ranks.T]


def moments(f: Tensor) -> np.ndarray:
    """First and second moments of logits [chains, 1, N, C], one row per chain."""
    flat = f[:, 0].flatten(1).numpy() - np.tile(MEAN[: f.shape[-1]].numpy(), N)
    i, j = np.triu_indices(flat.shape[1])
    return np.hstack([flat, flat[:, i] * flat[:, j]])


def geweke(model: GPModel, n_way: int, log_scale: float, chains: int, rounds: int) -> list[float]:
    """Changes of first and second moments from the first draw to the last, in standard errors."""
    rng, generators = np.random.default_rng(4), as_generators(5, chains)
    prior = prior_of(n_way, log_scale, chains)
    f = start = draw_logits(model, prior, rng, generators)
    for _ in range(rounds):
        y = draw_labels(model, f[:, 0], rng)
        f = draw_latent(model, prior, y, model.draw_sites(f, y, generators), generators)
    change = moments(f) - moments(start)
    return [float(z) for z in np.abs(change.mean(0)) / (change.std(0) / np.sqrt(chains))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/samplers.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start, rows = time.process_time(), []
    for name, model in MODELS.items():
        for n_way in (2, 3):
            for log_scale in (-2.0, 0.0, 2.0):
                p = calibration(model, n_way, log_scale, arguments.replications)
                z = geweke(model, n_way, log_scale, arguments.chains, arguments.rounds)
                rows.append({"model": name, "classes": n_way, "log_scale": log_scale, "p": p, "z": z})
                print(f"{name}, {n_way} classes, log scale {log_scale:g}: p {min(p):.3f}, z {max(z):.1f}", flush=True)
    n_tests = sum(len(row["p"]) + len(row["z"]) for row in rows)
    least, most = FALSE_ALARM / n_tests, float(stats.norm.isf(FALSE_ALARM / n_tests / 2))
    lines = [
        "| sampler | classes | log scale | smallest p | largest z | comparisons | fails |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        row["fails"] = sum(p < least for p in row["p"]) + sum(z > most for z in row["z"])
        numbers = f"{min(row['p']):.4f} | {max(row['z']):.1f} | {len(row['p']) + len(row['z'])} | {row['fails']}"
        lines.append(f"| {row['model']} | {row['classes']} | {row['log_scale']:g} | {numbers} |")
    print(*lines, sep="\n")
    put_into_docs("samplers", "\n".join(lines))
    record = {
        "replications": arguments.replications, "chains": arguments.chains, "rounds": arguments.rounds,
        "comparisons": n_tests, "least_p": least, "most_z": most, "fails": sum(row["fails"] for row in rows),
        "processor_seconds": round(time.process_time() - start, 1),
        "rows": [{**r, "p": [round(x, 4) for x in r["p"]], "z": [round(x, 2) for x in r["z"]]} for r in rows],
    }  # fmt: skip
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
