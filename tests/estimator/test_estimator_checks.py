import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from polyshot.estimator import OneVsEachClassifier


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([OneVsEachClassifier()])
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)
