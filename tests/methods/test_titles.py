"""What a method says about itself: titles, citation, the help of its options."""

import re
from typing import Any

import pytest

from polyshot.methods import METHODS
from polyshot.methods.gaussian_process import GPMethod
from polyshot.methods.ove_gp import OVEGP
from polyshot.system.settings import keyword_settings, read_settings


@pytest.mark.parametrize("name", METHODS)
def test_the_papers_options_are_options_of_the_method_and_not_the_defaults(name: str) -> None:
    method = METHODS[name]
    options = method.paper_options
    assert options
    assert read_settings(name, keyword_settings(method), options) == options
    assert all(keyword_settings(method)[key].default != value for key, value in options.items())


def test_titles_are_unique() -> None:
    assert len({method.title for method in METHODS.values()}) == len(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_a_citation_names_authors_title_and_year(name: str) -> None:
    assert re.search(r'\w+.*, ".+", .*\b(19|20)\d\d\b', METHODS[name].citation)


@pytest.mark.parametrize("name", METHODS)
def test_every_option_is_documented_with_its_choices(name: str) -> None:
    method = METHODS[name]
    text = method.__doc__ or ""
    entries: dict[str, str] = {}
    for names, kind in re.findall(r"^    (\w[\w, ]*) : (.+)$", text.partition("Parameters\n")[2], re.MULTILINE):
        entries |= dict.fromkeys(names.split(", "), kind)
    options = keyword_settings(method)
    assert {"space", "backbone", *options} == set(entries) or not options
    for option in options.values():
        for choice in option.choices:
            assert option.name == "start" or f'"{choice}"' in entries[option.name]


@pytest.mark.parametrize(
    ("name", "options", "title"),
    [
        ("protonet", {}, "ProtoNet"),
        ("bayesian-maml-chaser", {"distance": "square"}, "Bayesian MAML (Chaser), distance square"),
        ("maml", {"head": "zero", "n_steps": 3}, "MAML, n_steps 3"),
        ("ove-gp", {}, "OVE PG GP + Cosine + RBF (PL)"),
        ("ove-gp", {"kernel": "cosine"}, "OVE PG GP + Cosine (PL)"),
        (
            "ove-gp",
            {"calibrate": False, "average": "log", "objective": "ml", "kernel": "rbf"},
            "OVE PG GP + RBF (ML), average log, calibrate False",
        ),
        ("ove-gp", {"kernel": "normalized-rbf"}, "OVE PG GP + RBF (normalized) (PL)"),
        ("ove-gp", {"kernel": "dkt-cosine"}, "OVE PG GP + DKT's Cosine (PL)"),
        ("ove-gp", {"kernel": "a kernel of mine", "colour": "red"}, "OVE PG GP + a kernel of mine (PL), colour red"),
        ("logistic-softmax-gp", {"objective": "ml"}, "Logistic Softmax GP + Cosine (ML)"),
        ("dkt", {}, "DKT + Cosine"),
        ("dkt", {"kernel": "cosine"}, "DKT + OVE's Cosine"),
        ("dkt", {"kernel": "linear", "noise": 0.2}, "DKT + Linear, noise 0.2"),
    ],
)
def test_the_row_title_names_kernel_objective_and_changed_options(
    name: str, options: dict[str, Any], title: str
) -> None:
    assert METHODS[name].row_title(options) == title


def test_the_short_title_leaves_out_other_options() -> None:
    assert OVEGP.short_title({"average": "log", "kernel": "rbf"}) == "OVE PG GP + RBF (PL)"


@pytest.mark.parametrize("name", METHODS)
def test_only_gps_have_a_kernel_title(name: str) -> None:
    assert bool(METHODS[name].kernel_title({})) == issubclass(METHODS[name], GPMethod)
