"""The contract of every registered data set and scenario; on real data where it is there."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from polyshot.data import DATASETS, SCENARIOS, EpisodeSampler, Splits, images, load, load_scenario, verify
from polyshot.data.loading import read_dataset
from polyshot.data.sets.emnist import CHARACTERS
from polyshot.errors import InputError

NAMED = [name for name, dataset in DATASETS.items() if not dataset.takes_path]
Need = Callable[[str], Path]


@pytest.mark.parametrize("name", DATASETS)
def test_a_data_set_says_what_it_is_and_where_it_comes_from(name: str) -> None:
    dataset = DATASETS[name]
    assert dataset.name == name
    assert all((dataset.title, dataset.summary, dataset.official, dataset.licence))
    assert dataset.takes_path or dataset.citation
    assert dataset.built_in or dataset.accepts


@pytest.mark.parametrize("name", NAMED)
def test_splits_have_provenance_and_do_not_overlap(name: str) -> None:
    splits = DATASETS[name].splits
    assert len(splits.provenance) > 20
    parts = [set(splits.members[split]) for split in ("train", "validation", "test") if split in splits.members]
    assert len(parts) >= 2
    assert len(set().union(*parts)) == sum(map(len, parts))


@pytest.mark.parametrize("name", NAMED)
def test_every_split_loads_sorted_by_class_and_gives_episodes(name: str, need_file: Need) -> None:
    need_file(name)
    dataset = DATASETS[name]
    split = "validation"
    classes = load(name, split)
    assert len(classes.class_names) == dataset.splits.counts.get(split, len(classes.class_names))
    assert classes.x.dtype == torch.uint8
    assert classes.x.shape[1] == (1 if dataset.kind == "characters" else 3)
    assert classes.y.tolist() == sorted(classes.y.tolist())
    assert classes.class_sizes.min() >= 20
    episode = EpisodeSampler(classes, 5, 5, 15, seed=0)[0]
    side = 28 if dataset.kind == "characters" else 84
    assert episode.query.x.shape == (75, classes.x.shape[1], side, side)
    assert torch.isfinite(episode.query.x).all()


@pytest.fixture
def images_without_type_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks of every call take longer than decoding mini-ImageNet's 60,000 images; other tests make them."""
    for name in ("open_image", "_open", "_decoded"):
        monkeypatch.setattr(images, name, inspect.unwrap(getattr(images, name)))


@pytest.mark.parametrize("name", [*NAMED, "embeddings:clinc150_minilm", "embeddings:cub_efficientnet"])
def test_real_data_is_verified(name: str, need_file: Need, images_without_type_checks: None) -> None:
    need_file(f"{name.partition(':')[2]}.npz" if ":" in name else name)
    assert [check for check in verify(name) if not check.passed] == []


def test_verify_says_which_edition_it_found() -> None:
    emnist = DATASETS["emnist"]
    assert emnist.edition(116_323) == "official test split, 116,323 of 814,255 images"
    assert emnist.edition(814_255) == "all 814,255"
    assert emnist.edition(814_254) is None


def test_the_edition_of_real_emnist_is_named(need_file: Need) -> None:
    need_file("emnist")
    found = {check.what: check.detail for check in verify("emnist")}
    assert found["examples"] in ("official test split, 116,323 of 814,255 images", "all 814,255")


@pytest.mark.parametrize("name", [name for name in NAMED if DATASETS[name].kind == "characters"])
def test_ink_is_one_on_every_character_set(name: str, need_file: Need) -> None:
    need_file(name)
    classes = load(name, "validation")
    x = classes.transform(classes.x, np.random.default_rng(0))
    assert x.min() == 0
    assert x.max() == 1
    assert x.mean() < 0.3  # most of the paper is empty
    border = torch.cat([x[:, :, 0], x[:, :, -1], x[..., 0], x[..., -1]], dim=-1)
    assert border.mean() < 0.1 < float(x[:, :, 8:20, 8:20].mean())


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_names_splits_that_exist(name: str) -> None:
    for source in SCENARIOS[name].sources:
        assert source.split in DATASETS[source.dataset].splits.members


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenarios_test_classes_are_unseen_and_give_episodes(name: str, need_file: Need) -> None:
    for source in SCENARIOS[name].sources:
        need_file(source.dataset)
    train, validation, test = (
        {(s.dataset, c) for c in DATASETS[s.dataset].splits.classes(s.split, read_dataset(s.dataset)).tolist()}
        for s in SCENARIOS[name].sources
    )
    assert not train & validation
    assert not (train | validation) & test
    scenario = load_scenario(name)
    assert "train" not in vars(scenario)  # nothing is decoded before it is asked for
    episode = EpisodeSampler(scenario.test, 5, 5, 15, seed=0, n_extra_way=5)[0]
    assert episode.query.x.shape[0] == 150


def test_the_published_split_sizes() -> None:
    sizes = {
        name: [len(DATASETS[name].splits.members[s]) for s in ("train", "validation", "test")]
        for name in ("cub", "mini-imagenet", "tiny-imagenet")
    }
    assert sizes == {"cub": [100, 50, 50], "mini-imagenet": [64, 16, 20], "tiny-imagenet": [61, 17, 45]}


def test_cubs_split_file_is_the_index_rule() -> None:
    members = DATASETS["cub"].splits.members
    names = sorted(name for part in members.values() for name in part)
    assert [int(name[:3]) for name in names] == list(range(1, 201))
    assert names[0::2] == list(members["train"])
    assert names[1::4] == list(members["validation"])
    assert names[3::4] == list(members["test"])


@pytest.mark.parametrize("name", ["emnist", "chars74k"])
def test_emnists_split_file_is_the_even_odd_rule(name: str) -> None:
    members = DATASETS[name].splits.members
    assert "".join(members["validation"]) == CHARACTERS[0::2]
    assert "".join(members["test"]) == CHARACTERS[1::2]


def test_omniglot_trains_on_every_alphabet_but_latin(need_file: Need) -> None:
    members = DATASETS["omniglot"].splits.members
    every = {a for split in ("train", "validation", "test") for a in members[split]}
    assert len(every) == 50
    assert set(members["all-but-latin"]) == every - {"Latin"}
    need_file("omniglot")
    train = load_scenario("omniglot-to-chars74k").train
    assert len(train.class_names) == 1597
    rotated = load_scenario("omniglot-to-chars74k", rotations=True).train
    assert len(rotated.class_names) == 4 * 1597
    assert EpisodeSampler(train, 5, 5, 15, seed=0)[0].n_way == 5


def test_mini_imagenets_classes_are_wordnet_ids() -> None:
    members = Splits.packaged("mini-imagenet").members
    every = [wnid for part in members.values() for wnid in part]
    assert len(set(every)) == 100
    assert all(re.fullmatch(r"n\d{8}", wnid) for wnid in every)


def test_the_root_is_the_option_then_the_environment_then_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    from polyshot.data import data_root

    monkeypatch.setenv("POLYSHOT_DATA", "/somewhere")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_root("/here") == Path("/here")
    assert data_root() == Path("/somewhere")
    monkeypatch.delenv("POLYSHOT_DATA")
    assert data_root() == Path("/cache/polyshot")


def test_titles_are_those_of_the_paper() -> None:
    titles = {
        "mini-imagenet-to-cub": "mini-ImageNet→CUB",
        "omniglot-to-emnist": "Omniglot→EMNIST",
        "omniglot-to-chars74k": "Omniglot→Chars74K",
        "tiny-imagenet-to-cub": "Tiny-ImageNet→CUB",
        "omniglot": "Omniglot",
        "omniglot-gray": "Omniglot (grey)",
        "cub": "CUB",
        "mini-imagenet": "mini-ImageNet",
        "tiny-imagenet": "Tiny-ImageNet",
        "glyphs": "glyphs",
    }
    assert {name: SCENARIOS[name].title for name in titles} == titles
    assert set(titles) <= set(SCENARIOS)
    assert load_scenario("folder:some/where").title == "folder:some/where"


def test_only_data_sets_with_all_three_splits_are_scenarios() -> None:
    assert "omniglot" in SCENARIOS
    assert "folder:x" in SCENARIOS
    for name in ("emnist", "folder", "cub:x", "nothing"):
        assert name not in SCENARIOS
        with pytest.raises(InputError, match=f"unknown scenario '{name}'; choose from"):
            load_scenario(name)


@pytest.mark.parametrize(("name", "epochs"), [("glyphs", 5), ("cub", 200), ("mini-imagenet", 400)])
def test_class_sets_carry_the_protocols_epochs_of_a_classifier(name: str, epochs: int, need_file: Need) -> None:
    need_file(name)
    assert load(name, "validation").classifier_epochs == epochs
