"""Real episodes drawn for the report: support examples, queries, and each run's answers."""

import base64
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from polyshot.data import ClassSet, EpisodeSampler, load_scenario
from polyshot.data.episodes import EpisodeIndices
from polyshot.errors import PolyshotError
from polyshot.evaluation.results import ExampleEpisode, Result
from polyshot.report.groups import Group
from polyshot.report.markup import escape, note
from polyshot.report.svg import shares, shortened
from polyshot.task import OUTSIDE

_N_EPISODES = 2
_QUERIES, _UNKNOWN = 6, 3  # drawn per known and unknown class
_RUNS = 3
_FALSE_ALARMS = 0.1  # share of an episode's known queries that is flagged as unknown
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SAMPLES = 6


def load_images(result: Result, root: Path | None) -> ClassSet | str:
    """The test classes without corruption, or why they cannot be drawn."""
    try:
        test = load_scenario(result.scenario, root).test
    except PolyshotError as error:
        return f"The images are not drawn because the data set is not available: {error}"
    if test.x.ndim != 4:
        return "The examples are embeddings, so there are no pictures."
    if test.digest != result.test_data:
        return f"The images are not drawn because the results are of other data than {test.name} here."
    return test


def draw_episodes(group: Group, test: ClassSet) -> str:
    """The first episodes of a group as HTML, with the first three runs that have them."""
    every = [r for r in group.results if r.temperature is None]
    runs = [r for r in every if r.examples and r.settings == group.results[0].settings][:_RUNS]
    if not runs:
        return note("The episodes are not drawn because the results have no examples.")
    sampler = EpisodeSampler(test, **runs[0].settings.sampler_arguments(0))
    parts = []
    for number in range(min([_N_EPISODES, *(len(r.examples) for r in runs)])):
        k, labels = runs[0].examples[number].episode, runs[0].examples[number].labels
        rows = sampler.indices(k)
        if rows.query_y.tolist() != labels.tolist():
            return note("The episodes are not drawn: those of the data here differ from those in the results.")
        parts.append(_episode(test, rows, sampler.n_way, k, [r.examples[number] for r in runs]))
    names = "".join(f"<li><strong>{i}</strong> {escape(r.label)}</li>" for i, r in enumerate(runs, start=1))
    cut = note(f"Drawn: {len(runs)} of {len(every)} runs.") if len(runs) < len(every) else ""
    return f'<ol class="runs">{names}</ol>{cut}{"".join(parts)}'


def draw_samples(groups: Sequence[Group], test: ClassSet) -> str:
    """The same few support images without corruption and under the corruption of each group."""
    first = groups[0].results[0].settings
    rows = EpisodeSampler(test, **first.sampler_arguments(0)).indices(0).support[:_SAMPLES].tolist()
    arguments = [group.results[0].settings.corruption_arguments() or {} for group in groups]
    corrupted = [(group.condition, test.corrupted(**given)) for group, given in zip(groups, arguments, strict=True)]
    sets, lines = [("no corruption", test), *corrupted], []
    for name, images in sets:
        tags = "".join(image_tag(images.x[row], f"support example, {name}") for row in rows)
        lines.append(f'<div class="sample"><span>{escape(name)}</span><div class="support">{tags}</div></div>')
    return "".join(lines)


def image_tag(pixels: Tensor, description: str) -> str:
    """An image [c, h, w] of uint8, embedded in the page: PNG for characters, JPEG for photographs."""
    buffer = io.BytesIO()
    if len(pixels) == 1:
        Image.fromarray(pixels[0].numpy()).save(buffer, "PNG", optimize=True)
    else:
        Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()).save(buffer, "JPEG", quality=85)
    kind = "png" if len(pixels) == 1 else "jpeg"
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img src="data:image/{kind};base64,{data}" alt="{escape(description)}"/>'


def _episode(test: ClassSet, rows: EpisodeIndices, n_way: int, k: int, answers: Sequence[ExampleEpisode]) -> str:
    alarms = [_alarm_level(a) for a in answers] if OUTSIDE in answers[0].labels else None
    n_query = len(rows.query) // len(rows.classes)
    lines = []
    for c, class_number in enumerate(rows.classes.tolist()):
        name = test.class_names[class_number]
        known = c < n_way
        support = rows.support[rows.support_y == c].tolist() if known else []
        images = "".join(image_tag(test.x[row], f"support example of {_letter(c)}") for row in support)
        queries = range(c * n_query, c * n_query + min(n_query, _QUERIES if known else _UNKNOWN))
        tiles = "".join(_tile(test.x[rows.query[q]], q, c if known else OUTSIDE, answers, alarms) for q in queries)
        head = f"<b>{_letter(c)}</b> " if known else '<b class="outside">unknown</b> '
        lines.append(
            f'<div class="class"><div class="name">{head}{_breakable(name)}</div>'
            f'<div class="support">{images}</div><div class="queries">{tiles}</div></div>'
        )
    return f'<section class="episode"><h4>Episode {k}</h4>{"".join(lines)}</section>'


def _tile(pixels: Tensor, q: int, label: int, answers: Sequence[ExampleEpisode], alarms: Sequence[float] | None) -> str:
    """A query with each run's answer below; the bars are the class probabilities in order."""
    parts, failed = [], False
    for i, one in enumerate(answers):
        probs = one.probs[q]
        answer = int(np.argmax(probs))
        alarmed = alarms is not None and -one.scores[q].max() > alarms[i]
        wrong = not alarmed if label == OUTSIDE else answer != label
        failed |= wrong
        marks = ("⚑" if alarmed else "") + ("✗" if wrong else "")
        css = "answer wrong" if wrong else "answer"
        parts.append(
            f'<span class="{css}"><i>{i + 1}</i>{shares(probs, answer)}'
            f"<span>{_letter(answer)}&#160;{100 * probs[answer]:.0f}</span><b>{marks}</b></span>"
        )
    truth = "of an unknown class" if label == OUTSIDE else f"of class {_letter(label)}"
    css = "tile failed" if failed else "tile"
    return f'<div class="{css}">{image_tag(pixels, f"query {truth}")}{"".join(parts)}</div>'


def _alarm_level(answers: ExampleEpisode) -> float:
    """The outlier score that a tenth of the episode's known queries exceed."""
    score = -answers.scores.max(1)
    return float(np.quantile(score[answers.labels != OUTSIDE], 1 - _FALSE_ALARMS))


def _breakable(name: str) -> str:
    """A class name, which may be long and without spaces."""
    return escape(shortened(name, 40)).replace("/", "/<wbr/>")


def _letter(c: int) -> str:
    return _LETTERS[c] if c < len(_LETTERS) else str(c)
