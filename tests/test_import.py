import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import polyshot
from polyshot.estimator import OneVsEachClassifier


def test_import_polyshot_leaves_slow_packages_alone_until_they_are_needed() -> None:
    code = "import polyshot, sys; print([name for name in ('sklearn', 'matplotlib', 'pandas') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_the_public_names_are_there() -> None:
    assert polyshot.OneVsEachClassifier is OneVsEachClassifier
    assert set(polyshot.__all__) <= set(dir(polyshot))
    with pytest.raises(AttributeError, match="'polyshot' has no attribute 'Classifier'"):
        _ = polyshot.Classifier


def test_the_version_is_the_same_wherever_it_is_stated() -> None:
    root = Path(__file__).parents[1]
    version = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    changes = re.search(r"^## (\S+) \((\S+)\)$", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    citation = (root / "CITATION.cff").read_text("utf-8")
    assert changes is not None
    assert changes[1] == version
    assert f"\nversion: {version}\ndate-released: {changes[2]}\n" in citation
