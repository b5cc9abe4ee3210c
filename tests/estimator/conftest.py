import numpy as np
import pytest
from blobs import blobs

from polyshot.estimator import OneVsEachClassifier


@pytest.fixture(scope="session")
def fitted():
    X, y, *_ = blobs()
    return OneVsEachClassifier().fit(X, np.array(["ant", "bee", "cat", "dog"])[y])
