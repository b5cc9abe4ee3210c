import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from polyshot.data import EpisodeSampler, load_scenario
from polyshot.errors import InputError, TrainingError
from polyshot.evaluation import compare_paired, fit_temperature, outputs, protocols
from polyshot.evaluation.evaluate import evaluate
from polyshot.evaluation.protocols import Changes, ProtocolSettings, temperature_settings
from polyshot.evaluation.results import Result, read_result
from polyshot.evaluation.typed_json import encode
from polyshot.runs.config import TrainingConfig
from polyshot.runs.folder import Checkpoint, RunFolder
from polyshot.task import Space
from small_runs import edit_config

FEW = Changes(episodes=7, batches=2, queries=3)
cli = CliRunner().invoke


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven episodes are three chunks, and 11 validation episodes fit a temperature."""
    monkeypatch.setattr(protocols, "_CHUNK", 3)
    default = protocols._DEFAULTS["temperature"]
    monkeypatch.setitem(protocols._DEFAULTS, "temperature", default._replace(episodes=11))


def content(result: Result, **changes: Any) -> dict[str, Any]:
    """All of a result but where it is and what it cost."""
    return encode(replace(result, seconds=0.0, path=None, **changes))


def predict_slowly(
    run: Path, settings: ProtocolSettings, split: str = "test"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities, scores and labels of every episode, adapting to one after the other."""
    config, (method, _) = RunFolder(run).config, RunFolder(run).load_method()
    log_probs, scores, labels = [], [], []
    for batch in range(settings.batches):
        sampler = EpisodeSampler(getattr(load_scenario(config.scenario), split), **settings.sampler_arguments(batch))
        for k in range(settings.episodes):
            episode = sampler[k]
            predictor = method.adapt(episode.support, settings.ways, np.random.default_rng((sampler.seed, k, 1)))
            prediction = predictor(episode.query.x)
            log_probs.append(prediction.log_probs.double().numpy())
            scores.append(prediction.scores.double().numpy())
            labels.append(episode.query.y.numpy())
    return np.stack(log_probs), np.stack(scores), np.stack(labels)


def write_first_weights(folder: Path) -> None:
    """Give a run folder the first weights of the method in its configuration."""
    run = RunFolder(folder)
    tensors = {f"method.{name}": t for name, t in run.new_method().state_dict().items()}
    run.save_best(tensors, {"episodes": 3})


@pytest.mark.parametrize("name", ["ove", "match", "dkt"])
def test_results_agree_with_a_slow_computation(name: str, trained: Path, tmp_path: Path) -> None:
    done = evaluate([trained / name], ["calibration", "out-of-episode"], FEW, out=tmp_path, quiet=True)
    accuracy, outside = done.results
    assert accuracy.path == tmp_path / name / "accuracy.json"
    assert done.comparisons == []
    log_probs, scores, labels = predict_slowly(trained / name, ProtocolSettings("accuracy", 2, 7, 3, 2, 3, 0))
    right = log_probs.argmax(-1) == labels
    np.testing.assert_allclose(accuracy.episodes["accuracy"], right.mean(1), rtol=1e-5)
    true = np.take_along_axis(log_probs, labels[..., None], -1)[..., 0]
    # MatchingNet computes in single precision
    np.testing.assert_allclose(accuracy.episodes["log_likelihood"], true.mean(1), rtol=1e-4, atol=1e-6)
    error = np.square(np.exp(log_probs) - np.eye(3)[labels]).sum(-1)
    assert accuracy.summary["brier"].estimate == pytest.approx(error.mean(), rel=1e-4)
    assert [example.episode for example in accuracy.examples] == [0, 1, 2]
    np.testing.assert_allclose(accuracy.examples[2].probs, np.exp(log_probs[2]), rtol=1e-4, atol=1e-6)

    log_probs, scores, labels = predict_slowly(trained / name, ProtocolSettings("out-of-episode", 2, 7, 3, 5, 3, 0))
    for key, outlier in (
        ("auroc", -scores.max(-1)),
        ("auroc_entropy", -(np.exp(log_probs) * log_probs).sum(-1)),
    ):
        inside, outside_scores = outlier[:, :9], outlier[:, 9:]
        above = (outside_scores[:, None] > inside[..., None]).mean((1, 2))
        assert labels[0].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, *[-1] * 9]
        np.testing.assert_allclose(outside.episodes[key], above, atol=1e-5)


def test_interrupted_work_goes_on_to_the_same_result(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluate([trained / "ove"], ["accuracy"], FEW, out=tmp_path / "whole", quiet=True).results[0]
    computed: list[int] = []
    compute = outputs._Work.compute

    def stop_after_two(work: outputs._Work, number: int) -> None:
        if len(computed) == 2:
            raise KeyboardInterrupt
        computed.append(number)
        compute(work, number)

    with monkeypatch.context() as patch:
        patch.setattr(outputs._Work, "compute", stop_after_two)
        with pytest.raises(KeyboardInterrupt):
            evaluate([trained / "ove"], ["accuracy"], FEW, out=tmp_path, quiet=True)
    part = tmp_path / "ove" / "accuracy.part"
    assert sorted(path.name for path in part.iterdir()) == ["0000.safetensors", "0001.safetensors"]
    assert not (tmp_path / "ove" / "accuracy.json").exists()
    kept = (part / "0001.safetensors").read_bytes()
    monkeypatch.setattr(outputs._Work, "compute", lambda w, k: computed.append(k) or compute(w, k))
    resumed = evaluate([trained / "ove"], ["accuracy"], FEW, out=tmp_path, quiet=True).results[0]
    assert computed == [0, 1, 2, 3, 4, 5]
    assert content(resumed) == content(whole)
    assert not part.exists()

    part.mkdir()
    (part / "0001.safetensors").write_bytes(kept)
    other = evaluate([trained / "ove"], ["accuracy"], FEW, out=tmp_path, quiet=True).results[0]
    assert computed == [0, 1, 2, 3, 4, 5]  # done: nothing is computed, and what was left over is tidied up
    assert content(other) == content(resumed)
    assert not part.exists()


def test_parts_of_other_work_are_not_used(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compute = outputs._Work.compute

    def fail(work: outputs._Work, number: int) -> None:
        compute(work, number)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(outputs._Work, "compute", fail)
        with pytest.raises(KeyboardInterrupt):
            evaluate([trained / "match"], ["accuracy"], replace(FEW, seed=1), out=tmp_path / "a", quiet=True)
    found = evaluate([trained / "match"], ["accuracy"], FEW, out=tmp_path / "a", quiet=True).results[0]
    clean = evaluate([trained / "match"], ["accuracy"], FEW, out=tmp_path / "b", quiet=True).results[0]
    assert content(found) == content(clean)


def test_two_processes_give_the_same_bits_as_one(trained: Path, tmp_path: Path, forked_workers: None) -> None:
    one, two = (
        evaluate([trained / "ove"], ["accuracy"], FEW, out=tmp_path / str(n), workers=n, quiet=True).results[0]
        for n in (1, 2)
    )
    assert content(one) == content(two)
    assert not (tmp_path / "2" / "ove" / "accuracy.part").exists()


def test_an_error_in_a_worker_is_the_error_of_the_command(trained: Path, tmp_path: Path, forked_workers: None) -> None:
    folder = tmp_path / "maml"
    shutil.copytree(trained / "match", folder)
    edit_config(folder, method="maml", options={"head": "per-class", "n_way": 4})
    write_first_weights(folder)
    with pytest.raises(InputError, match="built for n_way=4, not 3"):
        evaluate([folder], ["accuracy"], FEW, workers=2, quiet=True)


def test_runs_are_compared_on_the_same_episodes(trained: Path, tmp_path: Path) -> None:
    runs = [trained / name for name in ("ove", "match", "dkt")]
    done = evaluate(runs, ["accuracy"], FEW, out=tmp_path, quiet=True)
    ove, match, _ = done.results
    assert [(c.run, c.against) for c in done.comparisons] == [("match", "ove"), ("dkt", "ove")]
    expected = compare_paired(match.episodes["brier"], ove.episodes["brier"], seed=0)
    assert done.comparisons[0].measures["brier"] == expected
    assert expected.n_episodes == 14
    assert set(done.comparisons[0].measures) == {"accuracy", "log_likelihood", "brier"}

    later = evaluate(runs[:2], ["out-of-episode"], FEW, out=tmp_path, against=runs[1], quiet=True)
    assert [r.run for r in later.results] == ["match", "ove"]
    written = json.loads((tmp_path / "comparison.json").read_text("utf-8"))["comparisons"]
    assert written == encode(later.comparisons)
    assert [(c["run"], c["against"], c["settings"]["protocol"]) for c in written] == [
        ("ove", "match", "accuracy"),
        ("ove", "match", "out-of-episode"),
    ]
    assert "auroc" in written[1]["measures"]
    lines = list(csv.DictReader((tmp_path / "comparison.csv").read_text("utf-8").splitlines()))
    assert len(lines) == sum(len(c["measures"]) for c in written)
    brier = next(line for line in lines if line["measure"] == "brier")
    assert (brier["run"], brier["against"], brier["episodes"]) == ("ove", "match", "14")
    assert float(brier["p_value"]) == pytest.approx(expected.p_value, rel=1e-5)
    assert float(brier["difference"]) == pytest.approx(-expected.difference.estimate, rel=1e-5)


def test_results_of_other_settings_are_kept_and_of_other_weights_are_not(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "match", tmp_path / "match")
    run = [tmp_path / "match"]
    first = evaluate(run, ["accuracy"], FEW, quiet=True).results[0]
    path = tmp_path / "match" / "results" / "accuracy.json"
    with pytest.raises(InputError, match=r"other settings \(episodes 7 -> 8\); delete it .* or .* --out"):
        evaluate(run, ["accuracy"], replace(FEW, episodes=8), quiet=True)
    assert content(read_result(path)) == content(first)
    write_first_weights(tmp_path / "match")
    again = evaluate(run, ["accuracy"], FEW, quiet=True).results[0]
    assert again.weights != first.weights
    assert content(read_result(path)) == content(again)


def test_results_of_other_data_are_computed_again_and_not_compared(trained: Path, tmp_path: Path) -> None:
    with np.load(trained / "data.npz") as arrays:
        np.savez(tmp_path / "data.npz", X=arrays["X"][:, ::-1], labels=arrays["labels"])
    for name in ("match", "dkt"):
        shutil.copytree(trained / name, tmp_path / name)
    runs = [tmp_path / "match", tmp_path / "dkt"]
    before = evaluate(runs, ["accuracy"], FEW, quiet=True)
    assert len(before.comparisons) == 1
    edit_config(tmp_path / "match", scenario=f"embeddings:{tmp_path / 'data.npz'}")
    after = evaluate(runs, ["accuracy"], FEW, quiet=True)
    assert after.results[0].test_set == before.results[0].test_set
    assert after.results[0].test_data != before.results[0].test_data
    assert content(after.results[0]) != content(before.results[0], test_data=after.results[0].test_data)
    assert content(after.results[1]) == content(before.results[1])
    assert after.comparisons == []
    assert list((tmp_path / "match" / "results").glob("comparison.*")) == []


def test_a_temperature_is_fitted_on_validation_episodes_and_kept_apart(trained: Path, tmp_path: Path) -> None:
    run = trained / "match"
    done = evaluate([run, trained / "ove"], ["accuracy"], FEW, out=tmp_path, temperature=True, quiet=True)
    plain, scaled = done.results[:2]
    assert scaled.path == tmp_path / "match" / "accuracy-temperature.json"
    log_probs, _, labels = predict_slowly(
        run, temperature_settings(ProtocolSettings("accuracy", 1, 1, 3, 2, 3, 0)), "validation"
    )
    assert len(log_probs) == 11
    expected = fit_temperature(log_probs.reshape(-1, 3), labels.ravel())
    assert plain.temperature is None
    assert scaled.temperature is not None
    assert scaled.temperature.value == pytest.approx(expected.value, rel=1e-4)
    assert scaled.temperature.n_episodes == 11
    assert scaled.episodes["accuracy"].tolist() == plain.episodes["accuracy"].tolist()
    assert scaled.episodes["brier"].tolist() != plain.episodes["brier"].tolist()
    assert {(c.run, c.against) for c in done.comparisons} == {
        (a, b) for a in ("ove", "ove (temperature)") for b in ("match", "match (temperature)")
    }
    assert list(tmp_path.rglob("*.part")) == []


def test_images_are_corrupted_in_support_and_query(tmp_path: Path) -> None:
    run = tmp_path / "maml"
    config = TrainingConfig("maml", "glyphs", epochs=1, episodes_per_epoch=1)
    RunFolder(run).create(config, Space((1, 28, 28), 1543), 1, Checkpoint({}, {}))
    write_first_weights(run)
    changes = Changes(episodes=2, queries=2, shots=1, corruptions=["impulse_noise"], severity=3)
    with pytest.raises(TrainingError, match=r"0 of 1 episodes; `polyshot train .* resumes it, .*--unfinished"):
        evaluate([run], ["corruption"], changes, quiet=True)
    result = evaluate([run], ["corruption"], changes, quiet=True, unfinished=True).results[0]
    assert result.path == run / "results" / "corruption-impulse_noise-3.json"
    assert result.settings.corruption_arguments() == {
        "corruption": "impulse_noise", "severity": 3, "seed": 0, "crops": False,
    }  # fmt: skip
    test = load_scenario("glyphs").test.corrupted("impulse_noise", severity=3, seed=0)
    episode = EpisodeSampler(test, **result.settings.sampler_arguments(0))[1]
    prediction = RunFolder(run).load_method()[0].adapt(episode.support, 5)(episode.query.x)
    expected = prediction.log_probs.exp().double().numpy()
    np.testing.assert_allclose(result.examples[1].probs, expected, atol=1e-5)
