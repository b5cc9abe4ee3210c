"""What users add from outside: a module of their own, and any network as backbone."""

from pathlib import Path

import pytest

from processes import polyshot
from small_runs import SMALL

_PLUGIN = """
from polyshot.methods import METHODS
from polyshot.methods.protonet import ProtoNet

class Toy(ProtoNet):
    \"\"\"A toy.\"\"\"

METHODS.register("toy", Toy)
"""
_NETWORK = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 3), nn.ReLU())
"""


def sizes() -> list[str]:
    return [text for name, value in SMALL.items() for text in (f"--{name.replace('_', '-')}", str(value))]


def test_a_plugin_and_a_network_of_the_current_folder_are_found(embeddings: str, tmp_path: Path) -> None:
    (tmp_path / "my_methods.py").write_text(_PLUGIN)
    (tmp_path / "my_nets.py").write_text(_NETWORK)
    train = [
        "train",
        "--method",
        "toy",
        "--scenario",
        embeddings,
        "--backbone",
        "my_nets:Net",
        *sizes(),
        "--out",
        "run",
    ]
    done = polyshot(tmp_path, "--plugin", "my_methods", *train)
    assert done.code == 0, done.output
    assert '"backbone": "my_nets:Net"' in (tmp_path / "run" / "config.json").read_text()
    evaluate = ["evaluate", "run", "--protocol", "accuracy", "--episodes", "2", "--batches", "1", "--queries", "2"]
    done = polyshot(tmp_path, "--plugin", "my_methods", *evaluate)
    assert done.code == 0, done.output
    done = polyshot(tmp_path, *evaluate)
    assert done.code == 1
    assert "unknown method 'toy'; choose from feature-transfer" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plugin", "no_such_module", "methods"], "error: the plugin 'no_such_module' cannot be imported"),
        (["train", "--method", "protonet", "--scenario", "glyphs", "--backbone", "no_such:Net", "--out", "x"],
         "the backbone 'no_such:Net' cannot be imported"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_an_error_message(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = polyshot(tmp_path, *arguments)
    assert done.code == 1
    assert message in done.output
    assert "Traceback" not in done.output
