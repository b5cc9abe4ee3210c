import importlib
import json
from pathlib import Path

from blobs import blobs


def test_without_a_limit_of_time_every_method_gets_all_its_episodes(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    benchmark = importlib.import_module("benchmarks.estimator")
    X, labels, *_ = blobs(n_way=3, n_shot=20, dim=4)
    monkeypatch.setattr(benchmark, "load_all", lambda: {"wine": benchmark.Data(X, labels, X[:0], scale=True)})
    monkeypatch.setattr(benchmark, "spent", lambda _: 1e9)
    argv = ["x", "--episodes", "2", "--match", "/1-shot", "--methods", "proto|One", "--out", str(tmp_path / "x.json")]
    monkeypatch.setattr("sys.argv", argv)
    benchmark.main()
    (methods,) = json.loads((tmp_path / "x.json").read_text()).values()
    assert {name: len(entry["log_loss"]) for name, entry in methods.items()} == {
        "OneVsEachClassifier": 2,
        "prototypes": 2,
    }
    assert "| wine/all/3-way/1-shot | 2 |" in (tmp_path / "x.md").read_text()
