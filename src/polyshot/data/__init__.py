"""Data sets, scenarios and episodes."""

from polyshot.data.batches import BatchSampler
from polyshot.data.corruptions import CORRUPTIONS, corrupt
from polyshot.data.dataset import ClassSet
from polyshot.data.episodes import EpisodeIndices, EpisodeSampler
from polyshot.data.registry import DATASETS, data_root, import_dataset, load
from polyshot.data.scenarios import SCENARIOS, Scenario, load_scenario
from polyshot.data.verify import verify

__all__ = [
    "CORRUPTIONS",
    "DATASETS",
    "SCENARIOS",
    "BatchSampler",
    "ClassSet",
    "EpisodeIndices",
    "EpisodeSampler",
    "Scenario",
    "corrupt",
    "data_root",
    "import_dataset",
    "load",
    "load_scenario",
    "verify",
]
