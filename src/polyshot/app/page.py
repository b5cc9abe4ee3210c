"""The answers as one HTML page to look at: it needs no network and no other file."""

import base64
import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from polyshot.app.advice import Suspect
from polyshot.app.answers import Answer
from polyshot.app.classification import Classification
from polyshot.app.items import Items
from polyshot.app.thumbnails import thumbnail
from polyshot.report.markup import escape, note
from polyshot.system.files import write_atomically

_MOST = 500  # answers on the page
_THUMBNAIL = 112  # pixels
_SMALL = 48  # pixels of an example's thumbnail
_CLASSES = 3  # most probable classes that are named
_TEXT = 600  # characters of a text
_TITLES = {
    "accept": "accept: only the predicted class is possible",
    "ask": "ask: more than one class is possible, or none",
    "none of these": "none of these: unlike all examples",
}
_NEXT = "its label would teach the model much"


def write_page(result: Classification, path: Path) -> None:
    """Write the page.

    Parameters
    ----------
    result : Classification
        Of more than 500 answers the page shows the 500 least certain ones, and those to label next.
    path : Path
        The HTML file; it appears whole or not at all.
    """
    write_atomically(path, make_page(result).encode())


def make_page(result: Classification) -> str:
    """The page as a string."""
    rank = {row: k for k, row in enumerate(result.next_to_label, start=1)}
    shown = _shown(result, rank)
    checked = result.suspects[:_MOST]
    examples = sorted({k for _, answer in shown for k in answer.nearest} | {k for k, _ in checked})
    own = Template(_resource("polyshot.app", "page.html")).substitute(
        thumbnails=_example_thumbnails(result.classifier.examples, examples),
        head=_head(result, len(shown)),
        suspects=_suspects(result, checked),
        filters=_filters(result.actions, result.predicted),
        answers="\n".join(_card(result, row, answer, rank.get(row)) for row, answer in shown),
    )
    title = f"{len(result):,} answers"
    return Template(_resource("polyshot.report", "template.html")).substitute(title=escape(title), body=own)


def _shown(result: Classification, chosen: Collection[int]) -> list[tuple[int, Answer]]:
    """The answers in the chosen rows and the least certain others, the least certain first."""
    kept = []

    def others() -> Iterator[tuple[int, Answer]]:
        for row, answer in result.by_row():
            if row in chosen:
                kept.append((row, answer))
            else:
                yield row, answer

    shown = heapq.nsmallest(_MOST, others(), key=lambda pair: _certainty(pair[1]))
    return sorted(shown + kept, key=lambda pair: _certainty(pair[1]))


def _resource(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text("utf-8")


def _certainty(answer: Answer) -> tuple[bool, float]:
    """What is outside all classes comes first, then the least probable."""
    return answer.action != "none of these", answer.probability


def _head(result: Classification, n_shown: int) -> str:
    classifier, levels = result.classifier, result.levels
    encoder = f", encoded by {classifier.encoder}" if classifier.encoder else ""
    lead = (
        f"{len(result):,} {_noun(result)} in {len(classifier.classes)} classes, learned from "
        f"{len(classifier.examples):,} labelled examples{encoder}."
    )
    notes = list(result.notes)
    if levels.confidence is not None:
        notes.append(f"A set of possible classes contains the true one with probability {levels.confidence:g} or more.")
    if levels.false_alarm is not None:
        notes.append(f'At most {levels.false_alarm:.0%} of queries from known classes are called "none of these".')
    if result.next_to_label:
        notes.append(
            f'{len(result.next_to_label)} answers are marked "label next": the labels of these queries would teach the '
            "model most."
        )
    if n_shown < len(result):
        notes.append(f"This page shows {n_shown} answers, the least certain ones; the table has all of them.")
    if result.failures:
        notes.append(f"{len(result.failures):,} queries could not be used and are left out.")
    return f'<h1>Answers</h1><p class="lead">{escape(lead)}</p>{"".join(map(note, notes))}'


def _noun(result: Classification) -> str:
    return {"text": "texts", "images": "images", "vectors": "vectors"}[result.queries.kind]


def _suspects(result: Classification, suspects: Sequence[Suspect]) -> str:
    """The examples whose labels somebody should check, if there are any."""
    if not suspects:
        return ""
    labels = result.classifier.labels
    items = "".join(_reason(result, k, f"{labels[k]}, probability {p:.3f}") for k, p in suspects)
    title = f"Labels to check: {len(result.suspects):,}"
    return (
        f'<details class="suspects" open><summary>{title}</summary>'
        f"{note('Each label with its probability given all the other examples.')}"
        f'<ul class="reasons" aria-label="{title}">{items}</ul></details>'
    )


def _filters(actions: Counter[str], predicted: Counter[str]) -> str:
    def options(counts: Sequence[tuple[str, int]]) -> str:
        return "".join(f'<option value="{escape(name)}">{escape(name)} ({n:,})</option>' for name, n in counts)

    return (
        f'<select id="action" aria-label="Action"><option value="">every action</option>'
        f"{options(actions.most_common())}</select>"
        f'<select id="class" aria-label="Predicted class"><option value="">every class</option>'
        f"{options(sorted(predicted.items()))}</select>"
    )


def _card(result: Classification, row: int, answer: Answer, rank: int | None) -> str:
    classifier = result.classifier
    labels = classifier.labels
    order = sorted(range(len(answer.probabilities)), key=lambda c: -answer.probabilities[c])[:_CLASSES]
    bars = "".join(
        f'<li><span>{escape(classifier.classes[c])}</span><meter min="0" max="1" value="{answer.probabilities[c]:.4f}">'
        f"</meter><b>{answer.probabilities[c]:.2f}</b></li>"
        for c in order
    )
    facts = []
    if answer.prediction_set is not None:
        possible = answer.prediction_set
        everything = len(possible) == len(classifier.classes) > _CLASSES
        facts.append(f"possible: {'all classes' if everything else ', '.join(possible) or 'no class'}")
    if answer.outlier_p_value is not None:
        facts.append(f"p-value of belonging: {answer.outlier_p_value:.3f}")
    reasons = "".join(_reason(result, k, labels[k]) for k in answer.nearest)
    kind = {"accept": "accept", "ask": "ask", "none of these": "none"}[answer.action]
    badge = f' <mark class="next" title="{_NEXT}">label next: {rank}</mark>' if rank else ""
    data = (
        f'data-next="{rank or ""}" data-p="{answer.probability:.6f}" data-action="{answer.action}" '
        f'data-class="{escape(answer.predicted)}"'
    )
    return (
        f'<article class="answer-card" {data} data-name="{escape(answer.name)}">{_content(result.queries, row)}'
        f'<div><h2><span>{escape(answer.predicted)}</span> <mark class="{kind}" title="{_TITLES[answer.action]}">'
        f'{answer.action}</mark>{badge}</h2><p class="item">{escape(answer.name)}</p><ul class="bars">{bars}</ul>'
        f'{note(" · ".join(facts))}<ul class="reasons" aria-label="Nearest examples">{reasons}</ul></div></article>'
    )


def _reason(result: Classification, example: int, label: str) -> str:
    classifier = result.classifier
    picture = f'<i class="e{example}"></i>' if classifier.kind == "images" else ""
    described = escape(classifier.described(example))
    return f'<li title="{described}">{picture}<span><b>{escape(label)}</b> <small>{described}</small></span></li>'


def _content(queries: Items, row: int) -> str:
    if queries.kind == "images":
        return f'<img alt="" src="{_thumbnail(queries.contents[row], _THUMBNAIL)}"/>'
    if queries.kind == "text":
        text: str = queries.contents[row]
        return f"<blockquote>{escape(text[:_TEXT])}{'…' if len(text) > _TEXT else ''}</blockquote>"
    return ""


def _example_thumbnails(examples: Items, rows: Sequence[int]) -> str:
    """A CSS rule per example, so that each picture is in the page once; stronger than that of `.reasons i`."""
    if examples.kind != "images":
        return ""
    return "\n".join(
        f'.reasons .e{k} {{ background-image: url("{_thumbnail(examples.contents[k], _SMALL)}"); }}' for k in rows
    )


def _thumbnail(content: Any, size: int) -> str:
    """The image as a data URL; empty if its file is gone."""
    picture = thumbnail(content, 2 * size)
    return "data:," if picture is None else f"data:image/jpeg;base64,{base64.b64encode(picture).decode()}"
