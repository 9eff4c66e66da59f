"""Laws of segments: an independent implementation counts the same, and longer never costs less."""

from __future__ import annotations

import smsutil
from hypothesis import given
from hypothesis import strategies as st

from schemas.templates.segments import GSM_BASIC, GSM_EXTENDED, count

GSM = st.text(st.sampled_from(sorted(GSM_BASIC | GSM_EXTENDED)), min_size=1, max_size=400)
UCS2 = st.text(st.sampled_from("a]жя\U0001f600€"), min_size=1, max_size=200).filter(lambda t: "ж" in t)


@given(GSM | UCS2)
def test_a_text_counts_as_an_independent_implementation_counts_it(text: str) -> None:
    assert count(text).count == len(smsutil.split(text).parts)


@given(st.integers(145, 160), st.integers(0, 3), st.integers(0, 170))
def test_escapes_at_a_border_of_parts_count_as_an_independent_implementation_counts_them(
    before: int, escapes: int, after: int
) -> None:
    text = "a" * before + "€" * escapes + "b" * after
    assert count(text).count == len(smsutil.split(text).parts)


@given(GSM, st.text(max_size=5))
def test_a_longer_text_never_costs_less(text: str, more: str) -> None:
    assert count(text + more).count >= count(text).count


@given(st.text(max_size=300))
def test_the_units_are_those_of_the_encoding(text: str) -> None:
    found = count(text)
    if found.encoding == "ucs2":
        assert found.units == len(text.encode("utf-16-be", "surrogatepass")) // 2
    else:
        assert found.units == len(text) + sum(c in GSM_EXTENDED for c in text)
