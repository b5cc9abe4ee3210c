"""What weights of the one-vs-each likelihood's comparisons do to accuracy and calibration, on frozen features.

    python -m benchmarks.composite_weights embeddings:clinc150_minilm [--ways 5] [--shots 5] [--episodes 200]

The comparison of classes c and c' counts w exp(b s_cc') times, where s_cc' is the cosine of the two classes' prototypes
in the episode, standardised over its pairs. b = 0 is a uniform weight. Classes are exchangeable between episodes, so a
weight can be learned only as a function of what an episode shows, as here. Cosine kernel; the posterior is variational,
which takes any weight. For each (w, b) the kernel's scale is the one with the best likelihood on 30 validation
episodes. The best (w, b) by those episodes is marked: that is what learning them would choose.
"""

import argparse

import numpy as np
import torch
from torch import Tensor

from polyshot.data import EpisodeSampler, load_scenario
from polyshot.data.dataset import ClassSet
from polyshot.evaluation.metrics import accuracy, expected_calibration_error, log_likelihood_of_logs
from polyshot.gp import Cosine, OneVsEachGP, climb, fit_variational, predict, unit_rows
from polyshot.methods.protonet import prototypes
from polyshot.task import Episode

WEIGHTS = [(w, 0.0) for w in (0.25, 0.5, 1.0, 2.0, 4.0)] + [(1.0, b) for b in (-0.4, -0.2, 0.2, 0.4)]
N_VALIDATION, START = 30, 5.0


def pair_weights(episode: Episode, w: float, b: float) -> Tensor:
    centres = unit_rows(prototypes(episode.support.x.double(), episode.support.y, episode.n_way))
    similarity = centres @ centres.mT
    i, j = torch.triu_indices(episode.n_way, episode.n_way, 1)
    pairs = similarity[i, j]
    return w * (b * (similarity - pairs.mean()) / pairs.std().clamp(min=1e-9)).exp()


@torch.no_grad()
def log_probs(episode: Episode, log_scale: float, w: float, b: float) -> np.ndarray:
    kernel, model = Cosine(log_scale).double(), OneVsEachGP(pair_weights(episode, w, b))
    x, y, queries = episode.support.x.double(), episode.support.y, episode.query.x.double()
    K = kernel(x)
    sites = fit_variational(model, K, y, episode.n_way, tolerance=1e-3).sites
    covariances = kernel(queries, x), kernel.diagonal(queries)
    return predict(model, K, y, sites, *covariances).log_probs.numpy()


def outputs(episodes: list[Episode], log_scale: float, w: float, b: float) -> tuple[np.ndarray, np.ndarray]:
    each = [log_probs(episode, log_scale, w, b) for episode in episodes]
    return np.concatenate(each), np.concatenate([e.query.y.numpy() for e in episodes])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario")
    parser.add_argument("--ways", type=int, default=5)
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=200)
    arguments = parser.parse_args()
    scenario = load_scenario(arguments.scenario)

    def drawn(classes: ClassSet, n_episodes: int, seed: int) -> list[Episode]:
        sampler = EpisodeSampler(classes, arguments.ways, arguments.shots, 15, seed=seed)
        return [sampler[k] for k in range(n_episodes)]

    validation, test = drawn(scenario.validation, N_VALIDATION, 1), drawn(scenario.test, arguments.episodes, 2)
    rows = []
    for w, b in WEIGHTS:

        def likelihood(step: int, w: float = w, b: float = b) -> float:
            return log_likelihood_of_logs(*outputs(validation, START + 0.5 * step, w, b))

        step = climb(likelihood, 30)
        found, labels = outputs(test, START + 0.5 * step, w, b)
        measures = accuracy(np.exp(found), labels), expected_calibration_error(np.exp(found), labels)
        rows.append((likelihood(step), w, b, START + 0.5 * step, *measures, log_likelihood_of_logs(found, labels)))
        print(
            "w {1:4} b {2:4}: log-scale {3:.1f}, accuracy {4:.4f}, ECE {5:.4f}, log-likelihood {6:.4f}; "
            "validation {0:.4f}".format(*rows[-1]),
            flush=True,
        )
    print("best on validation: w {1}, b {2}".format(*max(rows)))


if __name__ == "__main__":
    main()
