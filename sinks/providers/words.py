"""Providers' words as we may keep them: one spelling for the tables, and nothing private in the raw token.

It must not know what a word means; each adapter's table says.
"""

from __future__ import annotations

import re
from datetime import datetime
from email.utils import parsedate_to_datetime

from schemas.ids import INSTANT_MS_MAX, INSTANT_MS_MIN

RAW_TOKEN_CHARS_MAX = 64  # RAW_TOKEN_PATTERN
PHONE_DIGITS_MIN = 7  # the shortest number that E.164 gives a person
TOKEN_WORDS_MAX = 3  # «sent to carrier» is a word for a state; more is prose, and prose names people

_NOT_IN_TOKENS = re.compile(r"[^A-Za-z0-9_.:-]")
_LOOKS_PRIVATE = re.compile(r"@|%40|://")


def word(token: object) -> str:
    """The spelling in the tables: lower case, `_` between words; empty for what is no text (case F22)."""
    return re.sub(r"[ -]+", "_", token.strip().lower()) if isinstance(token, str) else ""


def sanitise(token: object) -> str:
    """A provider's word as it may be kept: RAW_TOKEN_PATTERN, and nothing that could be a destination."""
    if token is None or isinstance(token, str | int | float):
        text = "" if token is None else str(token).strip()
    else:
        text = type(token).__name__
    digits = sum(c.isdigit() for c in text)
    if _LOOKS_PRIVATE.search(text) or digits >= PHONE_DIGITS_MIN or len(text.split()) > TOKEN_WORDS_MAX:
        return "withheld"
    return _NOT_IN_TOKENS.sub("_", text)[:RAW_TOKEN_CHARS_MAX]


def iso_ms(value: object) -> int | None:
    """Milliseconds since 1970 of an ISO 8601 time with its zone, else None (case F27)."""
    try:
        return _instant(datetime.fromisoformat(value)) if isinstance(value, str) else None
    except ValueError:
        return None


def rfc2822_ms(value: object) -> int | None:
    """Milliseconds since 1970 of a mail's date with its zone, else None."""
    try:
        return _instant(parsedate_to_datetime(value)) if isinstance(value, str) else None
    except (ValueError, IndexError):
        return None


def epoch_ms(value: object) -> int | None:
    """A number that can be meant as milliseconds since 1970, else None."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if INSTANT_MS_MIN <= value < INSTANT_MS_MAX else None


def _instant(at: datetime) -> int | None:
    if at.tzinfo is None:
        return None
    try:
        return epoch_ms(int(at.timestamp() * 1000))
    except OverflowError:
        return None
