"""What the mean variance of an example's differences of logits costs: python -m benchmarks.estimator_averages

Design classes of the embeddings, features as the cosine kernel has them, two fixed scales. Each row is one draw of
classes and examples (seed 0). It is written into docs/estimator-size.md.
"""

import numpy as np
import torch

from benchmarks.estimator_table import put_into_docs
from benchmarks.estimator_tasks import load_all
from polyshot.estimator.covariance import Covariance
from polyshot.estimator.projection import with_constant
from polyshot.gp import FactoredKernel, fit_tied_propagation

TASKS = (  # data set, classes, shots
    ("clinc150_minilm", 5, 20),
    ("clinc150_minilm", 20, 20),
    ("clinc150_minilm", 60, 20),
    ("cub_efficientnet", 20, 20),
    ("cub_efficientnet", 60, 10),
)
LOG_SCALES = 2.0, 4.0
QUERIES = 15


def main() -> None:
    data, rng = load_all(), np.random.default_rng(0)
    lines = [
        "| task | log-scale | log-loss, each variance | with their mean | ratio | largest change of a probability |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, n_way, n_shot in TASKS:
        all_X, all_labels = data[name].X, data[name].labels
        classes = rng.choice(np.unique(all_labels)[::2], n_way, replace=False)
        drawn = [rng.permutation(np.flatnonzero(all_labels == c))[: n_shot + QUERIES] for c in classes]
        rows, truth = np.concatenate([d[:n_shot] for d in drawn]), np.concatenate([d[n_shot:] for d in drawn])
        y = torch.arange(n_way).repeat_interleave(n_shot)
        labels = torch.tensor(np.repeat(np.arange(n_way), [len(d) - n_shot for d in drawn]))
        X, queries = torch.from_numpy(all_X[rows]), torch.from_numpy(all_X[truth])
        covariance = Covariance.of("cosine", X)
        span = torch.linalg.svd(covariance.features(X), full_matrices=False)[2].mT  # the same kernel, fewer features
        for log_scale in LOG_SCALES:
            phi, phi_star = (
                with_constant(np.exp(log_scale / 2) * covariance.features(x) @ span, covariance.intercept)
                for x in (X, queries)
            )
            log_probs = [
                torch.log_softmax(phi_star @ fit_tied_propagation(FactoredKernel(phi, each_pair), y, n_way)[1].a, -1)
                for each_pair in (True, False)
            ]
            each, mean = (float(-x.gather(1, labels[:, None]).mean()) for x in log_probs)
            largest = float((log_probs[0].exp() - log_probs[1].exp()).abs().max())
            lines.append(
                f"| {name}/{n_way}-way/{n_shot}-shot | {log_scale:g} | {each:.4f} | {mean:.4f} | {mean / each:.3f} "
                f"| {largest:.3f} |"
            )
            print(lines[-1], flush=True)
    put_into_docs("averages", "\n".join(lines))


if __name__ == "__main__":
    main()
