import subprocess
import sys

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
