"""Which predictive rule should be the default? Log-likelihood, ECE and accuracy of each on real embeddings.

    python -m benchmarks.predictive_rules [--episodes 100] [--out benchmarks/results/predictive_rules.json]

5-way 5-shot, 15 queries per class, cosine kernel. Data: scikit-learn's digits, and the embeddings in $POLYSHOT_DATA if
they are there. Posterior by Algorithm 1 (20 chains, last of 50 steps) and by expectation propagation.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

from polyshot.data import ClassSet, EpisodeSampler, load
from polyshot.data.transforms import identity
from polyshot.evaluation import expected_calibration_error
from polyshot.gp import Cosine, OneVsEachGP, fit_propagation, gibbs, predict

RULES = ("sigmoid", "log-sigmoid", "monte-carlo")
LOG_SCALES = (0.0, 2.0, 4.0, 6.0)


def data_sets() -> dict[str, ClassSet]:
    x, y = load_digits(return_X_y=True)
    order = np.argsort(y, kind="stable")
    digits = ClassSet(
        "digits", torch.from_numpy(x[order]).float(), torch.from_numpy(y[order]), tuple("0123456789"), identity
    )
    root = Path(os.environ.get("POLYSHOT_DATA", "."))
    names = [name for name in ("clinc150_minilm", "cub_efficientnet") if (root / f"{name}.npz").is_file()]
    return {"digits": digits} | {name: load(f"embeddings:{name}", "test") for name in names}


def measure(data: str, class_set: ClassSet, n_episodes: int) -> list[dict[str, object]]:
    sampler = EpisodeSampler(class_set, n_way=5, n_shot=5, n_query=15, seed=0)
    model = OneVsEachGP()
    probs: dict[tuple[float, str, str], list[np.ndarray]] = {}
    labels = []
    for k in range(n_episodes):
        (x, y), (queries, query_labels), _ = sampler[k]
        labels.append(query_labels.numpy())
        for log_scale in LOG_SCALES:
            kernel = Cosine(log_scale)
            with torch.no_grad():
                K, K_star, k_star_star = kernel(x), kernel(queries, x), kernel.diagonal(queries)
            posteriors = {
                "Gibbs": gibbs(model, K, y, 5, latent=False, seed=k).draws,
                "EP": fit_propagation(model, K, y, 5).sites,
            }
            for name, sites in posteriors.items():
                for rule in RULES:
                    log_probs = predict(model, K, y, sites, K_star, k_star_star, rule=rule, seed=k).log_probs
                    probs.setdefault((log_scale, name, rule), []).append(log_probs.exp().numpy())
    truth = np.concatenate(labels)
    rows = []
    for (log_scale, name, rule), parts in probs.items():
        p = np.concatenate(parts)
        rows.append(
            {"data": data, "scale": f"exp({log_scale:.0f})", "posterior": name, "rule": rule}
            | {"log_likelihood": float(np.log(p[np.arange(len(truth)), truth].clip(1e-12)).mean())}
            | {"ECE": expected_calibration_error(p, truth), "accuracy": float((p.argmax(-1) == truth).mean())}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/predictive_rules.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for data, class_set in data_sets().items() for row in measure(data, class_set, arguments.episodes)]
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=120).print(table)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"episodes": arguments.episodes, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
