"""Validation: how accurate a method is on episodes of the validation classes."""

import torch

from polyshot.data import EpisodeSampler, Scenario
from polyshot.methods import FewShotMethod
from polyshot.runs.config import TrainingConfig
from polyshot.runs.distributed import Team
from polyshot.runs.features import on_features
from polyshot.task import Episode, LabelledSet

TO_CALIBRATE = 50  # validation episodes: thousands of queries, to choose a single number
_SEED = 2**31  # far from any training seed
_AT_ONCE = 20  # episodes of one shape that a method may batch


def validation_sampler(scenario: Scenario, config: TrainingConfig) -> EpisodeSampler:
    """Return the validation episodes: the protocol's 15 queries per class, or what the smallest class has left."""
    classes = scenario.validation
    n_queries = max(1, min(15, int(classes.class_sizes.min()) - config.shots))
    return EpisodeSampler(classes, config.ways, config.shots, n_queries, _SEED)


def validate(
    method: FewShotMethod, sampler: EpisodeSampler, n_episodes: int, device: torch.device, team: Team
) -> float:
    """Calibrate the method and return its mean accuracy on the first episodes of the sampler.

    Every process calibrates on the same episodes and scores its share of them.
    """
    mine, to_calibrate = team.share(range(n_episodes)), range(min(n_episodes, TO_CALIBRATE))
    if method.embeds_once:  # once in all, because calibration looks at its episodes many times
        drawn = [sampler.indices(k) for k in {*mine, *to_calibrate}]
        rows = torch.unique(torch.cat([part for episode in drawn for part in episode[::2]]))
        method, class_set = on_features(method, sampler.class_set, rows)
        sampler = sampler.over(class_set)
    method.calibrate([to_device(sampler[k], device) for k in to_calibrate])
    right = torch.zeros((), dtype=torch.float64)
    for first in range(0, len(mine), _AT_ONCE):
        numbers = mine[first : first + _AT_ONCE]
        episodes = [to_device(sampler[k], device) for k in numbers]
        for episode, prediction in zip(episodes, method.predict_episodes(episodes, numbers), strict=True):
            right += (prediction.log_probs.argmax(-1) == episode.query.y).double().mean().cpu()
    team.add_up([right])
    return float(right) / n_episodes


def to_device(episode: Episode, device: torch.device) -> Episode:
    """Return the episode with its tensors on the device."""
    support, query = (LabelledSet(part.x.to(device), part.y.to(device)) for part in episode[:2])
    return Episode(support, query, episode.n_way)
