"""Data sets, scenarios and episodes."""

from polyshot.data.batches import BatchSampler
from polyshot.data.class_splits import Splits
from polyshot.data.corruptions import CORRUPTIONS, corrupt
from polyshot.data.dataset import ClassSet, DataSet
from polyshot.data.episodes import EpisodeIndices, EpisodeSampler
from polyshot.data.loading import data_root, import_dataset, load
from polyshot.data.registry import DATASETS
from polyshot.data.scenarios import SCENARIOS, Scenario, Source, load_scenario
from polyshot.data.verification import verify

__all__ = [
    "CORRUPTIONS",
    "DATASETS",
    "SCENARIOS",
    "BatchSampler",
    "ClassSet",
    "DataSet",
    "EpisodeIndices",
    "EpisodeSampler",
    "Scenario",
    "Source",
    "Splits",
    "corrupt",
    "data_root",
    "import_dataset",
    "load",
    "load_scenario",
    "verify",
]
