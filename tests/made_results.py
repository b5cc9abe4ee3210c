"""Results as `polyshot evaluate` writes them, of made-up predictions."""

from typing import Any

import numpy as np
from scipy.special import log_softmax

from polyshot.evaluation.results import Result, rounded
from polyshot.evaluation.summaries import summarise

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
    **changes: Any,
) -> Result:
    """20 episodes with 3 queries a class; `strength` is how much the right class stands out."""
    extra = ways if protocol == "out-of-episode" else 0
    labels = np.repeat([*range(ways), *[-1] * extra], 3)
    scores = np.random.default_rng(0).normal(size=(20, len(labels), ways))
    scores[:, np.arange(3 * ways), labels[: 3 * ways]] += strength
    log_probs = log_softmax(scores, -1)
    settings = {
        "protocol": protocol, "batches": 2, "episodes": 10, "ways": ways, "shots": shots, "queries": 3, "seed": 0,
        "corruption": corruption, "severity": severity if corruption else None,
    }  # fmt: skip
    arguments = {"corruption": corruption, "severity": severity, "seed": 0}
    examples = {
        "sampler": {"n_way": ways, "n_shot": shots, "n_query": 3, "seed": 5, "n_extra_way": extra},
        "corruption": arguments if corruption else None,
        "episodes": [
            {"episode": k, "labels": labels, "probs": np.exp(log_probs[k]), "scores": scores[k]} for k in range(2)
        ],
    }
    given = {
        "protocol": protocol, "run": run, "method": "ove-gp", "options": {}, "scenario": scenario,
        "test_set": "chars74k test", "test_data": "0", "training": {"method": "ove-gp", "seed": 0},
        "trained_episodes": 7, "settings": settings, "packages": {"torch": "2"}, "seconds": 1.0, "weights": "abc",
        "temperature": {"value": temperature, "bound": None, "episodes": 9} if temperature else None,
        "examples": rounded(examples), **rounded(summarise(log_probs, scores, labels, 2, temperature or 1.0)),
    }  # fmt: skip
    return Result(**(given | changes))


def all_protocols(run: str, **changes: Any) -> list[Result]:
    return [
        make_result(run, **changes),
        make_result(run, temperature=0.7, **changes),
        make_result(run, "out-of-episode", **changes),
        *(make_result(run, "corruption", corruption=c, **changes) for c in ("gaussian_noise", "defocus_blur")),
    ]
