"""Does the parser give what VECTORS.md says for every row, and an answer for any text."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sinks.providers.retry_after import CAP_MS, FLOOR_MS, MALFORMED, NOTHING, RetryAfter, parse

NOW = 1_792_567_620_000  # 2026-10-21T07:27:00Z


def at(seconds: int) -> RetryAfter:
    return RetryAfter(NOW + seconds * 1000)


TABLE = {
    "30": at(30),
    " 7 ": at(7),
    "\t7": at(7),
    "007": at(7),
    "0": RetryAfter(NOW + FLOOR_MS),
    "Wed, 21 Oct 2026 07:28:00 GMT": at(60),
    "Wednesday, 21-Oct-26 07:28:00 GMT": at(60),
    "Wed Oct 21 07:28:00 2026": at(60),
    "Wed, 21 Oct 2026 07:28:00 -0000": at(60),
    "Wed, 21 Oct 2026 07:28:00": at(60),
    "Wed, 21 Oct 2026 08:28:00 +0100": at(60),
    "Wed, 21 Oct 2026 07:27:60 GMT": at(59),
    "Wed, 21 Oct 2015 07:28:00 GMT": RetryAfter(NOW + FLOOR_MS),
    "Monday, 21-Oct-96 07:28:00 GMT": RetryAfter(NOW + FLOOR_MS),
    "Sun Nov  1 07:28:00 2026": RetryAfter(NOW + CAP_MS),
    "999999": RetryAfter(NOW + CAP_MS),
    "9" * 60: RetryAfter(NOW + CAP_MS),
    "00": RetryAfter(NOW + FLOOR_MS),
    "1792567680": RetryAfter(NOW + CAP_MS),  # an epoch: a dialect we do not guess, and cannot be hurt by
    "wed, 21 oct 2026 07:28:00 gmt": at(60),
    "WEDNESDAY, 21-OCT-26 07:28:00 GMT": at(60),
    "Mon, 21 Oct 2026 07:28:00 GMT": at(60),  # the day of the week decides nothing
    "21 Oct 2026 07:28:00 GMT": at(60),
    "Wed, 21 Oct 2026 02:28:00 -0500": at(60),
    "Wed, 21 Oct 2026 07:28:00 +00:00": MALFORMED,
    "Wed, 21 Oct 2026 07:28:00 EST": MALFORMED,
    "Wed, 21 Oct 2026 07:28:00 GMT+1": MALFORMED,
    "Wed, 21 Oct 2026 07:28 GMT": MALFORMED,
    "Wed, 21 Oct 2026 24:00:00 GMT": MALFORMED,
    "Wed, 21 Oct 10000 07:28:00 GMT": MALFORMED,
    "Wed, 21 Oct ２026 07:28:00 GMT": MALFORMED,
    "30 Wed, 21 Oct 2026 07:28:00 GMT": MALFORMED,
    "-0": MALFORMED,
    "0x1e": MALFORMED,
    "30s": MALFORMED,
    '"30"': MALFORMED,
    "30\n": MALFORMED,
    "\u00a030": MALFORMED,
    "None": MALFORMED,
    "null": MALFORMED,
    "Infinity": MALFORMED,
    "-5": MALFORMED,
    "+5": MALFORMED,
    "1.5": MALFORMED,
    "1e9": MALFORMED,
    "1_000": MALFORMED,
    "nan": MALFORMED,
    "inf": MALFORMED,
    "soon": MALFORMED,
    "": MALFORMED,
    "30, 60": MALFORMED,
    "３０": MALFORMED,
    "²": MALFORMED,
    "2026-10-21T07:28:00Z": MALFORMED,
    "Tue, 31 Feb 2026 07:28:00 GMT": MALFORMED,
    "Wed, 21 Oct 2026 25:28:00 GMT": MALFORMED,
    "Wed, 21 Foo 2026 07:28:00 GMT": MALFORMED,
    "Wed, 21 Oct 0000 07:28:00 GMT": MALFORMED,
    "9" * 65: MALFORMED,
}


@pytest.mark.parametrize(("value", "expected"), TABLE.items())
def test_every_row_of_the_zoo(value: str, expected: RetryAfter) -> None:
    assert parse(value, now_ms=NOW) == expected


def test_an_absent_header_says_nothing_and_is_not_malformed() -> None:
    assert parse(None, now_ms=NOW) == NOTHING


def test_the_instant_of_these_tests_is_the_one_of_the_vectors() -> None:
    assert parse("Wed, 21 Oct 2026 07:27:30 GMT", now_ms=NOW).at_ms == NOW + 30_000


@given(st.text(max_size=80) | st.from_regex(r"[A-Za-z]{3}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} .*"))
@example("Fri, 31 Dec 9999 23:59:59 -9999")
@example("Mon, 01 Jan 0001 00:00:00 +9999")
@example("Friday, 29-Feb-00 00:00:00 GMT")
def test_any_text_gives_an_instant_within_bounds_or_is_counted_as_malformed(value: str) -> None:
    found = parse(value, now_ms=NOW)
    if found.at_ms is None:
        assert found.malformed
    else:
        assert NOW + FLOOR_MS <= found.at_ms <= NOW + CAP_MS
        assert not found.malformed
