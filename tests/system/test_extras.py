"""What happens where the packages of an extra are not installed; here their import is blocked."""

import subprocess
import sys

import pytest

_EXTRA_PACKAGES = ("typer", "rich", "PIL", "matplotlib", "contourpy", "pandas")


def run_without(packages: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    block = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(name, path=None, target=None):\n"
        f"        if name in {packages!r}: raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)\n"
        "sys.meta_path.insert(0, Missing)\n"
    )
    return subprocess.run([sys.executable, "-c", block + code], capture_output=True, text=True, check=False)


def test_the_estimator_and_the_mathematics_need_no_extra() -> None:
    code = (
        "import numpy as np, torch, polyshot, polyshot.gp\n"
        "x = np.random.default_rng(0).normal(size=(12, 4)); y = np.repeat([0, 1, 2], 4)\n"
        "print(polyshot.OneVsEachClassifier().fit(x, y).predict_proba(x).shape)\n"
    )
    done = run_without(_EXTRA_PACKAGES, code)
    assert done.stdout == "(12, 3)\n", done.stderr


def test_the_command_says_what_to_install() -> None:
    done = run_without(("typer",), "from polyshot.__main__ import main; main()")
    assert done.returncode == 1
    assert done.stderr == "error: typer is not installed; install it with: pip install 'polyshot[cli]'\n"


@pytest.mark.parametrize(("package", "arguments"), [("PIL", "['data', 'list']"), ("rich", "['demo']")])
def test_a_subcommand_says_what_to_install(package: str, arguments: str) -> None:
    done = run_without((package,), f"from polyshot.cli import app; app({arguments})")
    assert done.returncode == 1
    assert done.stderr == f"error: {package} is not installed; install it with: pip install 'polyshot[cli]'\n"


def test_load_says_what_to_install() -> None:
    done = run_without(("PIL",), "import polyshot\ntry: polyshot.load('x')\nexcept ImportError as error: print(error)")
    assert done.stdout == "polyshot.load: PIL is not installed; install it with: pip install 'polyshot[cli]'\n"
