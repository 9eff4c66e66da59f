"""Segments as the networks count them, against the vectors and an independent implementation."""

from __future__ import annotations

import pytest
import smsutil
from hypothesis import given
from hypothesis import strategies as st

from schemas.templates.segments import GSM_BASIC, GSM_EXTENDED, count

EURO, EMOJI = "€", "\U0001f600"


@pytest.mark.parametrize(
    ("text", "encoding", "units", "segments"),
    [
        ("a" * 160, "gsm7", 160, 1),
        ("a" * 161, "gsm7", 161, 2),
        ("a" * 159 + EURO, "gsm7", 161, 2),
        ("]" * 80, "gsm7", 160, 1),
        ("]" * 81, "gsm7", 162, 2),
        ("]" * 153, "gsm7", 306, 3),
        ("a" * 152 + EURO + "a" * 152, "gsm7", 306, 3),
        ("this is a " + "]" * 74 + EMOJI, "ucs2", 86, 2),
        (EMOJI * 35, "ucs2", 70, 1),
        (EMOJI * 36, "ucs2", 72, 2),
        (EMOJI * 70, "ucs2", 140, 3),
        ("ж" * 70, "ucs2", 70, 1),
        ("ж" * 71, "ucs2", 71, 2),
        ("", "gsm7", 0, 1),
    ],
)
def test_a_text_has_the_segments_of_the_vectors(text: str, encoding: str, units: int, segments: int) -> None:
    found = count(text)
    assert (found.encoding, found.units, found.count) == (encoding, units, segments)


@given(st.text(st.sampled_from(sorted(GSM_BASIC | GSM_EXTENDED)), min_size=1, max_size=400))
def test_gsm_texts_count_as_an_independent_implementation_counts_them(text: str) -> None:
    assert count(text).count == len(smsutil.split(text).parts)


@given(st.text(st.sampled_from("aжя😀€"), min_size=1, max_size=200).filter(lambda t: "ж" in t))
def test_unicode_texts_count_as_an_independent_implementation_counts_them(text: str) -> None:
    assert count(text).count == len(smsutil.split(text).parts)
