"""Episodes per second of an evaluation: 5-way 5-shot, 15 queries per class, 28x28 images, one process.

    python -m benchmarks.evaluation [--out benchmarks/results/evaluation.json] [--threads 1] [--episodes 60]

OVE (20 chains of 50 steps, or expectation propagation, the default), DKT and ProtoNet on Conv4, through the sampler:
with every image embedded once beforehand, as `polyshot evaluate` does it, and with the network run for each episode.
The rival is OVE with the dense algorithm of benchmarks/dense.py for its chains and everything else ours. Bar: OVE's
chains are at least 8 times as fast. Rates are medians over rounds in which all take turns. Only the ratios matter; the
rates themselves depend on the machine.
"""

import argparse
import json
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.dense import DenseGibbs
from benchmarks.gp import median_seconds, show
from polyshot.data import ClassSet, EpisodeSampler, load
from polyshot.evaluation.outputs import predict_chunk
from polyshot.gp import Sites
from polyshot.methods import FewShotMethod
from polyshot.methods.dkt import DKT
from polyshot.methods.ove_gp import OVEGP
from polyshot.methods.protonet import ProtoNet
from polyshot.runs.features import on_features
from polyshot.task import Space

BAR = 8.0
N_CLASSES = 40


class DenseOVE(OVEGP):
    """OVE with the dense algorithm for its chains, one episode after the other."""

    def posterior(self, K: Tensor, y: Tensor, n_way: int, rngs: Sequence[np.random.Generator]) -> Sites:
        tasks = zip(K, y, rngs, strict=True)
        omega = torch.stack([self.last_omega(DenseGibbs(*task[:2], n_way, task[2])) for task in tasks])
        return Sites(omega, (omega > 0) * 0.5)

    def last_omega(self, chains: DenseGibbs) -> Tensor:
        f = chains.prior(self.n_chains)
        for _ in range(self.test_steps):
            omega = chains.draw_omega(f)
            f = chains.draw_f(omega)
        return omega.mT.contiguous()


def rates(class_set: ClassSet, n_episodes: int, rounds: int) -> tuple[list[dict[str, object]], float]:
    """One row per method, and the mean difference between our probabilities and the dense algorithm's."""
    sampler = EpisodeSampler(class_set, 5, 5, 15, seed=0)
    space = Space(tuple(sampler[0].support.x.shape[1:]), len(class_set.class_names))
    methods: dict[str, FewShotMethod] = {
        "OVE": OVEGP(space, log_scale=2.0, inference="gibbs"),
        "OVE, dense": DenseOVE(space, log_scale=2.0),
    }
    methods |= {"OVE, propagation": OVEGP(space, log_scale=2.0), "DKT": DKT(space), "ProtoNet": ProtoNet(space)}
    for method in methods.values():
        method.backbone.load_state_dict(methods["OVE"].backbone.state_dict())
    embedded = {name: on_features(method.eval(), class_set) for name, method in methods.items()}
    counts = {name: max(2, n_episodes // 20) if "dense" in name else n_episodes for name in methods}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    for _ in range(rounds):
        for name, method in methods.items():
            numbers = range(counts[name])
            head, features = embedded[name]
            over = sampler.over(features)
            once = median_seconds(lambda h=head, s=over, n=numbers: predict_chunk(h, s, n), 1)
            each = median_seconds(lambda m=method, n=numbers: predict_chunk(m, sampler, n), 1)
            seconds[name].append((once, each))
    medians = {name: np.median(s, 0) / counts[name] for name, s in seconds.items()}
    rows: list[dict[str, object]] = [
        {"method": name, "episodes_per_s": float(1 / once), "episodes_per_s_network_each_time": float(1 / each)}
        | {"times_dense": float(medians["OVE, dense"][0] / once)}
        for name, (once, each) in medians.items()
    ]
    few = range(counts["OVE, dense"])
    ours, theirs = (
        predict_chunk(embedded[name][0], sampler.over(embedded[name][1]), few)["log_probs"].exp()
        for name in ("OVE", "OVE, dense")
    )
    return rows, float((ours - theirs).abs().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/evaluation.json"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    glyphs = load("glyphs", "test")
    few = int(glyphs.class_sizes[:N_CLASSES].sum())
    some = replace(glyphs, x=glyphs.x[:few], y=glyphs.y[:few], class_names=glyphs.class_names[:N_CLASSES])
    rows, difference = rates(some, arguments.episodes, arguments.rounds)
    results = {
        "machine": {"processor": platform.processor() or platform.machine(), "threads": arguments.threads}
        | {"torch": torch.__version__, "python": platform.python_version()},
        "evaluation, 5-way 5-shot, 28x28": rows,
        "mean difference of probabilities, ours and dense": difference,
        "bar": f"OVE at least {BAR:g} times dense",
    }
    show(results)
    print(f"ours and dense differ by {difference:.4f} in probability on average (Monte Carlo noise of 20 chains)")
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written to {arguments.out}")
    if rows[0]["times_dense"] < BAR:
        raise SystemExit(f"OVE is only {rows[0]['times_dense']:.1f} times as fast as the dense algorithm")


if __name__ == "__main__":
    main()
