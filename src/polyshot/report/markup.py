"""Text from data for an HTML page."""

import html

from polyshot.system.text import printable


def escape(text: str) -> str:
    """The text without control characters, which XML forbids, and with markup characters escaped."""
    return html.escape(printable(text))


def note(text: str) -> str:
    """A small paragraph."""
    return f'<p class="note">{escape(text)}</p>' if text else ""
