from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands work on, for reading."""
    from commands import write_inputs

    return write_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="session")
def whole(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, float]]:
    """What each command writes when nothing interrupts it, and the seconds that it takes."""
    from commands import COMMANDS, live

    made = {}
    for name, command in COMMANDS.items():
        folder = tmp_path_factory.mktemp("whole")
        seconds = live(command, inputs, folder)
        assert seconds is not None
        made[name] = folder, seconds
    return made
