from pathlib import Path

import numpy as np
import pytest
import torch

from polyshot.data import CORRUPTIONS, ClassSet, EpisodeSampler
from polyshot.data.transforms import scale_characters
from polyshot.errors import DataError, InputError
from polyshot.evaluation import outputs
from polyshot.evaluation.outputs import predict_all
from polyshot.evaluation.protocols import Changes, ProtocolSettings, plan, temperature_settings
from polyshot.methods import build_method
from polyshot.runs.config import TrainingConfig
from polyshot.task import Space

SETTINGS = ProtocolSettings("accuracy", batches=2, episodes=3, ways=3, shots=2, queries=2, seed=5)


@pytest.fixture
def images() -> ClassSet:
    """Six classes of five noisy patterns of 16x16 pixels."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 5)
    patterns = rng.integers(0, 200, size=(6, 1, 4, 4)).repeat(4, 2).repeat(4, 3)
    x = (patterns[y] + rng.integers(0, 56, size=(30, 1, 16, 16))).astype(np.uint8)
    return ClassSet("images", torch.from_numpy(x), torch.from_numpy(y), tuple("abcdef"), scale_characters)


def test_defaults_are_the_papers() -> None:
    config = TrainingConfig("protonet", "glyphs", shots=1)
    assert plan("accuracy", config, Changes()) == [ProtocolSettings("accuracy", 5, 600, 5, 1, 15, 0)]
    assert plan("calibration", config, Changes()) == plan("accuracy", config, Changes())
    assert plan("out-of-episode", config, Changes()) == [ProtocolSettings("out-of-episode", 1, 1000, 5, 5, 15, 0)]
    corruption = plan("corruption", config, Changes())
    assert [s.corruption for s in corruption] == ["gaussian_noise", "impulse_noise", "defocus_blur"]
    assert {(s.severity, s.shots, s.batches * s.episodes) for s in corruption} == {(5, 5, 1000)}
    changed = plan("corruption", config, Changes(20, 2, 3, 4, 6, 9, ["impulse_noise"], 1))
    assert changed == [ProtocolSettings("corruption", 2, 20, 4, 3, 6, 9, "impulse_noise", 1)]
    assert changed[0].name == "corruption-impulse_noise-1"


def test_wrong_protocols_and_corruptions_are_told() -> None:
    config = TrainingConfig("protonet", "glyphs")
    with pytest.raises(InputError, match=r"unknown protocol 'speed'; choose from accuracy, calibration, .*, all"):
        plan("speed", config, Changes())
    with pytest.raises(InputError, match="unknown corruption 'fog'; choose from gaussian_noise"):
        plan("corruption", config, Changes(corruptions=["fog"]))
    with pytest.raises(InputError, match="severity must be"):
        plan("corruption", config, Changes(severity=6))
    with pytest.raises(InputError, match="at least 1"):
        plan("accuracy", config, Changes(episodes=-1))


def test_every_episode_is_in_one_chunk_and_a_chunk_in_one_batch() -> None:
    chunks = ProtocolSettings("accuracy", 2, 250, 5, 5, 15, 0).chunks()
    assert [(b, k) for b, first, last in chunks for k in range(first, last)] == [
        (b, k) for b in range(2) for k in range(250)
    ]
    assert len(chunks) == 6


def test_corruptions_share_their_episodes_and_batches_do_not() -> None:
    one, two = (ProtocolSettings("corruption", 2, 1, 5, 5, 15, 0, name, 5) for name in list(CORRUPTIONS)[:2])
    assert one.sampler_arguments(0) == two.sampler_arguments(0)
    seeds = {s.sampler_arguments(b)["seed"] for s in (one, SETTINGS, temperature_settings(one)) for b in range(2)}
    assert len(seeds) == 6


def test_out_of_episode_needs_twice_as_many_classes(images: ClassSet) -> None:
    sampler = ProtocolSettings("out-of-episode", 1, 1, 3, 1, 2, 0).samplers(images)[0]
    assert sampler[0].query.y.tolist() == [0, 0, 1, 1, 2, 2, *[-1] * 6]
    with pytest.raises(DataError, match=r"6 classes, but out-of-episode needs 2 x 4 ways = 8; use at most 3 ways"):
        ProtocolSettings("out-of-episode", 1, 1, 4, 1, 2, 0).samplers(images)


@pytest.mark.parametrize("method", ["protonet", "ove-gp", "dkt", "maml"])
def test_predictions_are_those_of_adapting_to_one_episode_after_the_other(
    method: str, images: ClassSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded = []
    monkeypatch.setattr(outputs, "on_features", lambda *a, f=outputs.on_features: embedded.append(1) or f(*a))
    options = {"n_chains": 3, "test_steps": 4} if method == "ove-gp" else {}
    torch.manual_seed(0)
    model = build_method(method, Space((1, 16, 16), 6), options=options).eval()
    found = predict_all(model, images, SETTINGS, tmp_path / "x.part", {}, title="", quiet=True)
    assert len(embedded) == (method != "maml")
    row = 0
    for batch in range(2):
        sampler = EpisodeSampler(images, **SETTINGS.sampler_arguments(batch))
        for k in range(3):
            episode = sampler[k]
            one = model.adapt(episode.support, 3, np.random.default_rng((sampler.seed, k, 1)))(episode.query.x)
            np.testing.assert_allclose(found.log_probs[row], one.log_probs.double(), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(found.scores[row], one.scores.double(), rtol=1e-4, atol=1e-5)
            row += 1
    assert found.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert found.log_probs.shape == (6, 6, 3)
