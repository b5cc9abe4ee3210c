"""Real episodes drawn for the report: support, queries, and what each run said of them."""

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from polyshot.data import ClassSet, EpisodeSampler, load_scenario
from polyshot.data.episodes import EpisodeIndices
from polyshot.errors import PolyshotError
from polyshot.evaluation.results import Result
from polyshot.report.groups import Group
from polyshot.report.svg import shares, shortened
from polyshot.task import OUTSIDE

_N_EPISODES = 2
_QUERIES, _STRANGERS = 6, 3  # a class, known and unknown
_RUNS = 3
_FALSE_ALARMS = 0.1  # share of an episode's known queries above the mark for "unknown"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SAMPLES = 6


def load_images(result: Result, root: Path | None) -> ClassSet | str:
    """The test classes without corruption, or why they cannot be drawn."""
    try:
        test = load_scenario(result.scenario, root).test
    except PolyshotError as error:
        return f"The images are not drawn, because the data set is not here: {error}"
    if test.x.ndim != 4:
        return "The examples are embeddings, of which there is no picture."
    if test.digest != result.test_data:
        return f"The images are not drawn: the results are of other data than {test.name} here."
    return test


def draw_episodes(group: Group, test: ClassSet) -> str:
    """The first episodes of a group as HTML, with the first three runs; runs that were given others are left out."""
    first = group.results[0].examples
    every = [r for r in group.results if r.temperature is None]
    runs = [r for r in every if r.examples["sampler"] == first["sampler"]][:_RUNS]
    sampler = EpisodeSampler(test, **first["sampler"])
    parts = []
    for number in range(min([_N_EPISODES, *(len(r.examples["episodes"]) for r in runs)])):
        k = first["episodes"][number]["episode"]
        rows = sampler.indices(k)
        if rows.query_y.tolist() != first["episodes"][number]["labels"]:
            return "<p>The episodes are not drawn: those of the data here differ from those in the results.</p>"
        parts.append(_episode(test, rows, sampler.n_way, k, runs, number))
    names = "".join(f"<li><strong>{i}</strong> {escape(r.label)}</li>" for i, r in enumerate(runs, start=1))
    cut = f'<p class="note">Drawn: {len(runs)} of {len(every)} runs.</p>' if len(runs) < len(every) else ""
    return f'<ol class="runs">{names}</ol>{cut}{"".join(parts)}'


def draw_samples(groups: Sequence[Group], test: ClassSet) -> str:
    """The same few support images without corruption and under that of each group."""
    first = groups[0].results[0].examples
    rows = EpisodeSampler(test, **first["sampler"]).indices(0).support[:_SAMPLES].tolist()
    sets = [("no corruption", test)]
    for group in groups:
        name = f"{(group.corruption or '').replace('_', ' ')}, severity {group.severity}"
        sets.append((name, test.corrupted(**group.results[0].examples["corruption"])))
    lines = []
    for name, images in sets:
        tags = "".join(image_tag(images.x[row], f"support example, {name}") for row in rows)
        lines.append(f'<div class="sample"><span>{escape(name)}</span><div class="support">{tags}</div></div>')
    return "".join(lines)


def image_tag(pixels: Tensor, description: str) -> str:
    """An image [c, h, w] of uint8 within the page: PNG for characters, JPEG for photographs."""
    buffer = io.BytesIO()
    if len(pixels) == 1:
        Image.fromarray(pixels[0].numpy()).save(buffer, "PNG", optimize=True)
    else:
        Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()).save(buffer, "JPEG", quality=85)
    kind = "png" if len(pixels) == 1 else "jpeg"
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img src="data:image/{kind};base64,{data}" alt="{escape(description)}"/>'


def _episode(test: ClassSet, rows: EpisodeIndices, n_way: int, k: int, runs: Sequence[Result], number: int) -> str:
    said = [r.examples["episodes"][number] for r in runs]
    alarms = [_alarm_level(s) for s in said] if OUTSIDE in said[0]["labels"] else None
    n_query = len(rows.query) // len(rows.classes)
    lines = []
    for c, class_number in enumerate(rows.classes.tolist()):
        name = test.class_names[class_number]
        known = c < n_way
        support = rows.support[rows.support_y == c].tolist() if known else []
        images = "".join(image_tag(test.x[row], f"support example of {_letter(c)}") for row in support)
        queries = range(c * n_query, c * n_query + min(n_query, _QUERIES if known else _STRANGERS))
        tiles = "".join(_tile(test.x[rows.query[q]], q, c if known else OUTSIDE, said, alarms) for q in queries)
        head = f"<b>{_letter(c)}</b> " if known else '<b class="outside">unknown</b> '
        lines.append(
            f'<div class="class"><div class="name">{head}{_breakable(name)}</div>'
            f'<div class="support">{images}</div><div class="queries">{tiles}</div></div>'
        )
    return f'<section class="episode"><h4>Episode {k}</h4>{"".join(lines)}</section>'


def _tile(pixels: Tensor, q: int, label: int, said: Sequence[dict[str, Any]], alarms: Sequence[float] | None) -> str:
    """A query with each run's answer beneath: the bars are the classes' probabilities in order."""
    answers, failed = [], False
    for i, one in enumerate(said):
        probs = one["probs"][q]
        answer = int(np.argmax(probs))
        alarmed = alarms is not None and -max(one["scores"][q]) > alarms[i]
        wrong = not alarmed if label == OUTSIDE else answer != label
        failed |= wrong
        marks = ("⚑" if alarmed else "") + ("✗" if wrong else "")
        css = "answer wrong" if wrong else "answer"
        answers.append(
            f'<span class="{css}"><i>{i + 1}</i>{shares(probs, answer)}'
            f"<span>{_letter(answer)}&#160;{100 * probs[answer]:.0f}</span><b>{marks}</b></span>"
        )
    truth = "of an unknown class" if label == OUTSIDE else f"of class {_letter(label)}"
    css = "tile failed" if failed else "tile"
    return f'<div class="{css}">{image_tag(pixels, f"query {truth}")}{"".join(answers)}</div>'


def _alarm_level(said: dict[str, Any]) -> float:
    """The out-of-episode score that a tenth of the episode's known queries exceed."""
    score = -torch.tensor(said["scores"]).amax(1)
    known = torch.tensor(said["labels"]) != OUTSIDE
    return float(score[known].quantile(1 - _FALSE_ALARMS))


def _breakable(name: str) -> str:
    """A class's name, which may be long and without a space."""
    return escape(shortened(name, 40)).replace("/", "/<wbr/>")


def _letter(c: int) -> str:
    return _LETTERS[c] if c < len(_LETTERS) else str(c)
