"""classify's page of answers in a real Chromium."""

from pathlib import Path
from typing import Any

import pytest
from label_page import Page
from label_sessions import MARKUP, count_words, texts, topic

from polyshot.app import Classification, ItemClassifier, Items, classify, write_page


@pytest.fixture(scope="module")
def result() -> Classification:
    """Answers about 20 texts, one of them with markup in it."""
    examples = texts()[1:41]
    model = ItemClassifier.fit(Items.of("text", examples), list(map(topic, examples)), count_words)
    return classify(model, Items.of("text", [*texts()[41:], MARKUP]))


def choose(page: Page, field: str, value: str) -> list[str]:
    """Change a field of the toolbar; returns the names of the answers that are shown then."""
    page.run(
        "const field = document.getElementById(arguments[0]); field.value = arguments[1];"
        "for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind))",
        *(field, value),
    )
    cards: Any = page.run(
        "return [...document.querySelectorAll('article')].filter(c => !c.hidden).map(c => c.dataset.name)"
    )
    assert page.text("#count") == f"{len(cards)} shown"
    return list(cards)


def test_answers_are_sorted_filtered_and_found(page: Page, result: Classification, tmp_path: Path) -> None:
    write_page(result, tmp_path / "answers.html")
    page.driver.get((tmp_path / "answers.html").as_uri())
    by_number = [f"row {k + 1}" for k in range(20)]
    assert choose(page, "order", "name") == by_number
    certain = [answer.name for answer in sorted(result, key=lambda answer: -round(answer.probability, 6))]
    assert choose(page, "order", "-p") == certain
    ranked = [result.queries.names[row] for row in result.next_to_label]
    assert choose(page, "order", "next")[:10] == ranked
    choose(page, "order", "name")
    refunds = [answer for answer in result if answer.predicted == "refund"]
    assert choose(page, "class", "refund") == [answer.name for answer in refunds]
    accepted = [answer.name for answer in refunds if answer.action == "accept"]
    assert 0 < len(accepted) < 20
    assert choose(page, "action", "accept") == accepted
    choose(page, "action", "")
    choose(page, "class", "")
    assert choose(page, "words", "HACKED") == ["row 20"]
    assert page.driver.title == "20 answers"


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_of_the_page_is_wider_than_the_screen(
    page: Page, result: Classification, tmp_path: Path, width: int
) -> None:
    write_page(result, tmp_path / "answers.html")
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.driver.get((tmp_path / "answers.html").as_uri())
    assert page.run("return document.documentElement.scrollWidth") <= width
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
