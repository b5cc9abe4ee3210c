import doctest

import pytest

from polyshot.estimator import answers, classifier, decisions


@pytest.mark.parametrize("module", [answers, classifier, decisions], ids=lambda module: module.__name__)
def test_the_examples_of_the_docstrings_print_what_they_say(module):
    assert doctest.testmod(module).failed == 0
