"""One parser for `Retry-After` (RFC 9110 §10.2.3), total over any text (case F06).

It must not sleep, raise or guess: what is neither ASCII digits nor a date is ignored and counted.

    30, " 7 "                            that many seconds
    0, a date in the past                the floor: never a hot loop
    Wed, 21 Oct 2026 07:28:00 GMT        the three forms of RFC 9110 and -0000, in any case, read as UTC
    999999                               the cap: an account is asked again within the hour
    -5, 1.5, nan, soon, "", ISO 8601     malformed: the caller keeps its own schedule
    no header                            nothing, and not malformed
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

# A provider that answers 0 is asked again after a second: at most 60 calls a minute, whatever it says.
FLOOR_MS = 1_000
# One hour: at most 24 needless calls a day when a provider names years (case F07), and a mistyped value
# does not silence an account for longer than an operator takes to notice.
CAP_MS = 3_600_000
TEXT_CHARS_MAX = 64  # the longest form, `Wednesday, 21-Oct-26 07:28:00 GMT`, has 33
_DIGITS_MAX = 10  # 317 years of seconds; more digits only ever mean the cap
_CENTURY = 100
_FAR_YEARS = 50  # RFC 9110 §5.6.7: a two-digit year further ahead than this lies in the past

_TIME = r"(?P<h>[0-9]{2}):(?P<mi>[0-9]{2}):(?P<s>[0-9]{2})"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FORMS = (
    re.compile(
        rf"(?:[A-Za-z]{{3}}, )?(?P<d>[0-9]{{1,2}}) (?P<mo>[A-Za-z]{{3}}) (?P<y>[0-9]{{4}}) {_TIME}"
        r"(?: (?:GMT|UTC|UT|Z|(?P<zone>[+-][0-9]{4})))?",
        re.IGNORECASE,
    ),
    re.compile(rf"[A-Za-z]{{6,9}}, (?P<d>[0-9]{{2}})-(?P<mo>[A-Za-z]{{3}})-(?P<y>[0-9]{{2}}) {_TIME} GMT"),
    re.compile(rf"[A-Za-z]{{3}} (?P<mo>[A-Za-z]{{3}}) (?P<d>[ 0-9][0-9]) {_TIME} (?P<y>[0-9]{{4}})"),
)


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """`at_ms` is an instant, or None when the header says nothing usable; then `malformed` says which."""

    at_ms: int | None
    malformed: bool = False


NOTHING = RetryAfter(None)
MALFORMED = RetryAfter(None, malformed=True)


def parse(value: str | None, *, now_ms: int, floor_ms: int = FLOOR_MS, cap_ms: int = CAP_MS) -> RetryAfter:
    """When to ask again, within [now + floor, now + cap]. Never raises."""
    if value is None:
        return NOTHING
    text = value.strip(" \t")
    if not text or len(text) > TEXT_CHARS_MAX:
        return MALFORMED
    delay_ms = _delay_ms(text) if text.isascii() and text.isdigit() else _until_ms(text, now_ms)
    if delay_ms is None:
        return MALFORMED
    return RetryAfter(now_ms + min(max(delay_ms, floor_ms), cap_ms))


def _delay_ms(digits: str) -> int:
    """Whole seconds as milliseconds; the length is looked at first, so no number is huge."""
    significant = digits.lstrip("0")
    return int(significant or "0") * 1000 if len(significant) <= _DIGITS_MAX else 10**_DIGITS_MAX * 1000


def _until_ms(text: str, now_ms: int) -> int | None:
    for form in _FORMS:
        found = form.fullmatch(text)
        if found is not None:
            at_ms = _instant_ms(found.groupdict(), now_ms)
            return None if at_ms is None else at_ms - now_ms
    return None


def _instant_ms(parts: dict[str, str | None], now_ms: int) -> int | None:
    """The date as an instant; None for 31 February and the like."""
    month = (parts["mo"] or "").lower()
    if month not in _MONTHS:
        return None
    numbers = {name: int(parts[name] or "0") for name in ("y", "d", "h", "mi", "s")}
    year = numbers["y"] if len(parts["y"] or "") > 2 else _full_year(numbers["y"], now_ms)
    offset_min = _offset_min(parts.get("zone"))
    try:
        # A leap second (:60) is allowed by RFC 9110 and unknown to datetime.
        at = datetime(
            year,
            _MONTHS.index(month) + 1,
            numbers["d"],
            numbers["h"],
            numbers["mi"],
            min(numbers["s"], 59) if numbers["s"] <= 60 else numbers["s"],
            tzinfo=UTC,
        )
        return (at - timedelta(minutes=offset_min) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _offset_min(zone: str | None) -> int:
    if zone is None:
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[3:5])
    return -minutes if zone[0] == "-" else minutes


def _full_year(two_digits: int, now_ms: int) -> int:
    """RFC 850 years: this century, unless that is more than 50 years ahead."""
    this = (_EPOCH + timedelta(milliseconds=now_ms)).year
    year = this - this % _CENTURY + two_digits
    return year - _CENTURY if year - this > _FAR_YEARS else year
