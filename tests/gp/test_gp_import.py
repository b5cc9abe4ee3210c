import subprocess
import sys

import polyshot.gp

HEAVY = (
    "polyshot.methods", "polyshot.estimator", "polyshot.data", "polyshot.runs", "polyshot.evaluation",
    "polyshot.report", "polyshot.cli", "typer", "rich", "PIL", "matplotlib", "sklearn",
)  # fmt: skip


def test_importing_the_mathematics_loads_no_other_room_and_no_heavy_package():
    code = f"import polyshot.gp, sys; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_every_public_name_is_there_and_in_order():
    assert all(hasattr(polyshot.gp, name) for name in polyshot.gp.__all__)
    assert len(set(polyshot.gp.__all__)) == len(polyshot.gp.__all__)
