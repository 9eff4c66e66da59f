"""What an operator writes down is kept for good: it must not hold an address or a number of a person.

What an operator reads is plain text: nothing in it may move a cursor, hide or turn around a word.
"""

from __future__ import annotations

import re
import unicodedata

from schemas.errors import BackstopError

TEXT_CHARS_MIN, TEXT_CHARS_MAX = 3, 200
NAME_CHARS_MIN = 2
_DIGITS_MIN = 7  # the shortest subscriber numbers have seven digits

_ADDRESS = re.compile(r"@|%40|＠")
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d\b")
# Digits that follow a letter or # are a ticket's.
_NUMBER = re.compile(rf"(?<![A-Za-z#\d])(?:\d[\s().\-–/]*){{{_DIGITS_MIN},}}")
# Controls (C0, C1), format characters (bidi, zero width, tags), halves of pairs, line and paragraph ends.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
REPLACEMENT = "\ufffd"


class OperatorTextRefused(BackstopError):
    """Too short, too long, or about a person. The text is not quoted."""

    remedy = "Name a ticket or a reason, such as «ticket 4711»; no address, no telephone number."


def printable(text: str) -> str:
    """The text with every character replaced that a terminal obeys instead of showing."""
    return "".join(REPLACEMENT if unicodedata.category(c) in _UNPRINTABLE else c for c in text)


def check_name(text: str, name: str) -> str:
    """An operator's own name, whatever accounts look like here. Raises `OperatorTextRefused`."""
    return _checked(text, name, _shape(text, NAME_CHARS_MIN))


def check(text: str, name: str) -> str:
    """The text as it was given. Raises `OperatorTextRefused` naming `name` and what is wrong with it."""
    problem = _shape(text, TEXT_CHARS_MIN)
    if problem is None and _ADDRESS.search(text):
        problem = "looks as if it held an address"
    if problem is None and _NUMBER.search(_DATE.sub("", text)):
        problem = f"looks as if it held a telephone number ({_DIGITS_MIN} digits or more)"
    return _checked(text, name, problem)


def _shape(text: str, chars_min: int) -> str | None:
    count = len(text.strip())
    if not chars_min <= count <= TEXT_CHARS_MAX:
        return f"has {count} characters; {chars_min} to {TEXT_CHARS_MAX} wanted"
    return "holds a control character" if printable(text) != text else None


def _checked(text: str, name: str, problem: str | None) -> str:
    if problem is not None:
        raise OperatorTextRefused(f"{name} {problem}", code="operator_text")
    return text
