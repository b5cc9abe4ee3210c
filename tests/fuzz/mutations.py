"""Damage: bytes that changed, and parts of a structure that became something else."""

import json
from copy import deepcopy

from hypothesis import strategies as st

TEXTS = ["", "=1+1", "\x1b[31mred", "\u202eno", "\udce9", "a\nb", "../../x", "a,b", '"', "nan", "1e999", "x" * 300]
NUMBERS = [0, -1, 1, 2, 7, 2**31, 2**63, 10**30, 10**400, -(10**18), 0.5, 1e308, -1e-308, float("nan"), float("inf")]
ODD = [*NUMBERS, *TEXTS, None, True, False, [], {}, [[]], [1, [2]], {"a": {}}, [None], ["a", 1], "DEEP"]


@st.composite
def damaged_bytes(draw, content: bytes) -> bytes:
    """The content after one to four changes, each at a place of its own."""
    out = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place, length = draw(st.integers(0, max(0, len(out) - 1))), draw(st.integers(1, 40))
        how = draw(st.sampled_from(["flip", "flip", "set", "cut", "end", "insert", "repeat", "zero"]))
        if how == "flip" and out:
            out[place] ^= 1 << draw(st.integers(0, 7))
        elif how == "set" and out:
            out[place] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        elif how == "cut":
            del out[place : place + length]
        elif how == "end":
            del out[place:]
        elif how == "insert":
            out[place:place] = draw(st.binary(min_size=1, max_size=20))
        elif how == "repeat":
            out[place:place] = out[place : place + length]
        elif how == "zero":
            out[place : place + length] = bytes(len(out[place : place + length]))
    return bytes(out)


@st.composite
def damaged_tree(draw, tree):
    """A copy of JSON or TOML values in which one to three places hold something odd, are gone, or have another name."""
    tree = deepcopy(tree)
    for _ in range(draw(st.integers(1, 3))):
        parent, key = draw(st.sampled_from(list(places(tree)) or [(None, None)]))
        if parent is None:
            return draw(st.sampled_from(ODD))
        how = draw(st.sampled_from(["odd", "odd", "odd", "remove", "rename", "repeat"]))
        if how == "odd":
            parent[key] = deepcopy(draw(st.sampled_from(ODD)))
        elif how == "remove":
            del parent[key]
        elif how == "rename" and isinstance(parent, dict):
            parent[draw(st.sampled_from(TEXTS))] = parent.pop(key)
        elif how == "repeat" and isinstance(parent, list):
            parent.append(deepcopy(parent[key]))
    return tree


def places(tree):
    """Every (container, key) of a tree."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else []
    for key in keys:
        yield tree, key
        yield from places(tree[key])


def json_text(tree) -> str:
    """JSON, also of what only Python's reader takes; "DEEP" becomes lists within lists."""
    return json.dumps(tree).replace('"DEEP"', "[" * 10_000 + "]" * 10_000)
