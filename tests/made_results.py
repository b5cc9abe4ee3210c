"""Results as `polyshot evaluate` writes them, from made-up predictions."""

from typing import Any

import numpy as np
from scipy.special import log_softmax

from polyshot.evaluation.measures import Predictions
from polyshot.evaluation.protocols import ProtocolSettings
from polyshot.evaluation.results import ExampleEpisode, Result
from polyshot.evaluation.summaries import summarise
from polyshot.evaluation.temperature import Temperature

CHARACTERS = "omniglot-to-chars74k"


def make_result(
    run: str = "ove",
    protocol: str = "accuracy",
    *,
    scenario: str = CHARACTERS,
    ways: int = 2,
    shots: int = 2,
    strength: float = 1.5,
    corruption: str | None = None,
    severity: int = 5,
    temperature: float | None = None,
    seed: int = 0,
    **changes: Any,
) -> Result:
    """20 episodes with 3 queries per class; `strength` is how much the right class stands out."""
    extra = ways if protocol == "out-of-episode" else 0
    labels = np.repeat([*range(ways), *[-1] * extra], 3)
    scores = np.random.default_rng(0).normal(size=(20, len(labels), ways))
    scores[:, np.arange(3 * ways), labels[: 3 * ways]] += strength
    log_probs = log_softmax(scores, -1)
    settings = ProtocolSettings(protocol, 2, 10, ways, shots, 3, 0, corruption, severity if corruption else None)
    figures = summarise(Predictions(log_probs, scores, labels), 2, temperature or 1.0)
    method = changes.get("method", "ove-gp")
    options = {"kernel": "cosine"} if method == "ove-gp" else {}
    given = {
        "run": run, "method": method, "options": options, "scenario": scenario, "settings": settings, "weights": "abc",
        "training": {"method": "ove-gp", "seed": seed}, "test_data": "0", "test_set": "chars74k test",
        "trained_episodes": 7, "packages": {"torch": "2"}, "seconds": 1.0,
        "temperature": Temperature(temperature, n_episodes=9) if temperature else None,
        "examples": tuple(ExampleEpisode(k, labels, np.exp(log_probs[k]), scores[k]) for k in range(2)),
    }  # fmt: skip
    return Result(**(vars(figures) | given | changes))


def all_protocols(run: str, **changes: Any) -> list[Result]:
    return [
        make_result(run, **changes),
        make_result(run, temperature=0.7, **changes),
        make_result(run, "out-of-episode", **changes),
        *(make_result(run, "corruption", corruption=c, **changes) for c in ("gaussian_noise", "defocus_blur")),
    ]
