"""Names from files and data, made harmless for a terminal and for a spreadsheet."""

import unicodedata

_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # control, format (bidirectional marks), surrogates, line separators
_JOINERS = "\u200c\u200d"  # of category Cf, but part of words in Persian and Indian scripts, and of emoji
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def printable(text: str, keep: str = "") -> str:
    r"""Return the text with escapes such as `\x1b` in place of characters that could act on a terminal.

    These are control characters, escape sequences, right-to-left marks, and the stand-ins for bytes of a file name
    that are not UTF-8. The result can always be encoded.

    Parameters
    ----------
    text : str
        A name, or a message that holds one.
    keep : str
        Characters to leave alone, such as "\n" in a message of several lines.

    Examples
    --------
    >>> print(printable("caf\udce9 \x1b[31mred"))
    caf\udce9 \x1b[31mred
    """
    return "".join(
        ascii(c)[1:-1] if unicodedata.category(c) in _UNSAFE and c not in keep and c not in _JOINERS else c
        for c in text
    )


def csv_cell(text: str) -> str:
    """Return the text for a cell of a CSV file: no spreadsheet takes it for a formula, and it stays on one line.

    Examples
    --------
    >>> csv_cell("=1+1")
    "'=1+1"
    """
    return f"'{printable(text)}" if text.startswith(_FORMULA) else printable(text)
