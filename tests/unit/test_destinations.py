"""A destination is useless when printed, any text is decided, and an area code has its country.

The rows of the two tables are in `tests/contract/test_destination_vectors.py`.
"""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Callable

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.destinations import EmailAddress, PhoneNumber
from schemas.errors import InvalidDestination

# Case F18, by the areas it names: numbers of their own allocated ranges, because a whole area is not.
AREAS = {
    "AG": "268", "AI": "264", "AS": "684", "BB": "246", "BM": "441", "BS": "242", "DM": "767",
    "DO": "809 829 849", "GD": "473", "GU": "671", "JM": "876 658", "KN": "869", "KY": "345", "LC": "758",
    "MP": "670", "MS": "664", "PR": "787 939", "SX": "721", "TC": "649", "TT": "868", "VC": "784",
    "VG": "284", "VI": "340",
}  # fmt: skip


@pytest.mark.parametrize(("area", "country"), [(a, c) for c, areas in AREAS.items() for a in areas.split()])
def test_no_number_of_an_area_outside_the_united_states_counts_as_theirs(area: str, country: str) -> None:
    found = set()
    for line in range(2_000_123, 10_000_000, 10_000):  # every exchange
        try:
            found.add(PhoneNumber.parse(f"+1{area}{line}").country)
        except InvalidDestination:
            continue
    assert found == {country}


@pytest.mark.parametrize(
    "one", [EmailAddress.parse("canary@example.com"), PhoneNumber.parse("+447700900123")]
)
def test_a_destination_is_useless_when_printed(one: EmailAddress | PhoneNumber) -> None:
    for text in (repr(one), str(one), f"{one}", f"{one!s:>40}", str([one]), str({"to": one})):
        assert "canary" not in text
        assert "7700" not in text
    for write in (pickle.dumps, copy.deepcopy, json.dumps, orjson.dumps, msgspec.json.encode):
        with pytest.raises(TypeError):
            write(one)
    assert "hidden" in json.dumps({"to": one}, default=str)
    with pytest.raises(AttributeError):
        one._normal = "other"
    with pytest.raises(AttributeError):
        del one._normal


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (EmailAddress.parse, "canary person@example.com"),
        (EmailAddress.parse, "canary..person@example.com"),
        (EmailAddress.parse, "canary@\ud83d.com"),
        (PhoneNumber.parse, "+9991canary"),
        (PhoneNumber.parse, "+99912345678"),
    ],
)
def test_a_refusal_neither_quotes_the_text_nor_leads_to_an_error_that_does(
    parse: Callable[[str], object], text: str
) -> None:
    with pytest.raises(InvalidDestination) as refused:
        parse(text)
    assert text not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


@pytest.mark.parametrize("text", ["user@\ud83d.com", "us\udc00er@example.com"])
def test_half_a_character_is_no_address(text: str) -> None:
    with pytest.raises(InvalidDestination):
        EmailAddress.parse(text)


@given(st.text(max_size=40) | st.builds("{}@{}".format, st.text(max_size=12), st.text(max_size=20)))
def test_any_text_is_one_address_or_refused_and_a_normal_form_stays_as_it_is(text: str) -> None:
    try:
        found = EmailAddress.parse(text)
    except InvalidDestination:
        return
    assert found.reveal().isascii()
    assert EmailAddress.parse(found.reveal()) == found


@given(st.from_regex(r"\+[0-9]{0,16}", fullmatch=True) | st.text("+0123456789 ()x\uff11", max_size=18))
def test_any_text_is_one_number_with_a_country_or_refused(text: str) -> None:
    try:
        found = PhoneNumber.parse(text)
    except InvalidDestination:
        return
    assert found.reveal() == text
    assert re.fullmatch("[A-Z]{2}", found.country)
