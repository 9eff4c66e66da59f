"""Every row of the two tables of destinations, decided once."""

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

LABEL = "a" * 61


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("USER@EXAMPLE.COM", "user@example.com"),
        ("Alice@Example.COM", "alice@example.com"),
        ("alice+reset@example.com", "alice+reset@example.com"),
        ("x@bücher.example", "x@xn--bcher-kva.example"),
        ("x@xn--bcher-kva.example", "x@xn--bcher-kva.example"),
        ("x@B\u00dcCHER.example", "x@xn--bcher-kva.example"),
        ("x@XN--BCHER-KVA.example", "x@xn--bcher-kva.example"),
        ("user%other@example.com", "user%other@example.com"),
        ("a!b=c@example.com", "a!b=c@example.com"),
        ("user@example.test", "user@example.test"),
        ("user@example\u3002com", "user@example.com"),
        (f"{LABEL}@{LABEL}.{LABEL}.{LABEL}.exa", f"{LABEL}@{LABEL}.{LABEL}.{LABEL}.exa"),
        ("a" * 64 + f"@{LABEL}.{LABEL}.{LABEL}.abc", "a" * 64 + f"@{LABEL}.{LABEL}.{LABEL}.abc"),  # 254
    ],
)
def test_an_address_has_one_normal_form(text: str, normal: str) -> None:
    assert EmailAddress.parse(text).reveal() == normal


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("user@example.com.", "trailing_dot"),
        ("user@[192.0.2.1]", "address_literal"),
        (" alice@example.com", "control_or_space"),
        ("user@example.com\n", "control_or_space"),
        ("a@example.com,b@example.com", "control_or_space"),
        ("a@example.com;b@example.com", "control_or_space"),
        ('"quoted local"@example.com', "control_or_space"),
        ("Alice <alice@example.com>", "control_or_space"),
        ("victim+x\u037eother@example.com", "changes_when_normalised"),
        ("jose\u0301@example.com", "changes_when_normalised"),
        ("jos\u00e9@example.com", "local_part_not_ascii"),
        ("al\u0131ce@example.com", "local_part_not_ascii"),
        ("a" * 64 + f"@{LABEL}.{LABEL}.{LABEL}.abcd", "too_long"),  # 255
        ("a" * 63 + "@" + "\u00fc." * 60 + "example", "syntax"),  # short as typed, long in IDNA form
        ("a" * 65 + "@example.com", "syntax"),
        ("a..b@example.com", "syntax"),
        (".a@example.com", "syntax"),
        ("a@b@example.com", "syntax"),
        ("user@localhost", "syntax"),
        ("user@-example.com", "syntax"),
        ("user@exam\u200bple.com", "syntax"),
        ("user@\ud83d.com", "syntax"),
        ("user@exam\u00adple.com", "syntax"),
        ("user@exa\u202emple.com", "syntax"),
        ("user@exa\u034fmple.com", "invisible"),
        ("user@example\ufe0f.com", "invisible"),
        ("us\u3164er@example.com", "invisible"),
        ("=?utf-8?q?a=40evil.example?=@example.com", "encoded_word"),
        ("=?x?b?YUBldmlsLmV4YW1wbGU=?=foo@example.com", "encoded_word"),
        ("user@test", "syntax"),
        ("user@com", "syntax"),
        ("user@1.2.3.4", "syntax"),
        ("user@\u212aelvin.example", "changes_when_normalised"),
        ("user@e\u0301.example", "changes_when_normalised"),
        ("user@example.com\u2028", "syntax"),
        ("\ufeffuser@example.com", "local_part_not_ascii"),
        ("mailto:user@example.com", "syntax"),
        ("user@example.com?bcc=x@other.example", "syntax"),
        ("us\ter@example.com", "control_or_space"),
        ("user\x00@example.com", "control_or_space"),
        ("user\u00a0@example.com", "local_part_not_ascii"),
        ("nobody", "syntax"),
        ("@example.com", "syntax"),
        ("", "syntax"),
    ],
)
def test_what_is_not_plainly_one_address_is_refused(text: str, code: str) -> None:
    with pytest.raises(InvalidDestination) as refused:
        EmailAddress.parse(text)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("text", "country"),
    [
        ("+447700900123", "GB"),
        ("+390655501234", "IT"),
        ("+12025550123", "US"),
        ("+18765550123", "JM"),
        ("+16585550123", "JM"),
        ("+18095550123", "DO"),
        ("+16135550123", "CA"),
        ("+17875550123", "PR"),
        ("+13405550123", "VI"),
        ("+77011234567", "KZ"),
        ("+79991234567", "RU"),
        ("+447624000000", "IM"),
        ("+33612345678", "FR"),
    ],
)
def test_a_number_has_the_country_of_its_longest_prefix(text: str, country: str) -> None:
    number = PhoneNumber.parse(text)
    assert (number.reveal(), number.country) == (text, country)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("+490301234567", "trunk_zero"),
        ("+4407700900123", "trunk_zero"),
        ("00447700900123", "not_e164"),
        ("07700900123", "not_e164"),
        ("447700900123", "not_e164"),
        ("+44 (0)7700 900123", "not_e164"),
        ("+44 7700 900123 ext 5", "not_e164"),
        ("+447700900123\n", "not_e164"),
        ("+4\uff14\uff17\uff17\uff10\uff10900123", "not_e164"),
        ("+0123456789", "not_e164"),
        ("+1234567890123456", "not_e164"),
        ("+10000000000", "not_valid"),
        ("+19995550123", "not_valid"),
        ("+449999999999", "not_valid"),
        ("+447700901000", "not_valid"),
        ("+16645550123", "not_valid"),
        ("+99912345678", "unknown_country"),
        ("+19005550123", "not_a_person"),
        ("+448001111111", "not_a_person"),
        ("+447012345678", "not_a_person"),
        ("+881612345678", "not_a_person"),
        ("+88213300655", "not_a_person"),
        ("12345", "not_e164"),
        ("\uff0b447700900123", "not_e164"),
        ("\u202d+447700900123", "not_e164"),
        ("+447700900123\u200b", "not_e164"),
        ("+44\u00a07700900123", "not_e164"),
        ("tel:+447700900123", "not_e164"),
        ("+447700900123;ext=5", "not_e164"),
        ("+447700900123,5", "not_e164"),
        ("++447700900123", "not_e164"),
        ("-447700900123", "not_e164"),
        ("+330612345678", "trunk_zero"),
        ("+9720501234567", "trunk_zero"),
        ("+80012345678", "not_a_person"),
        ("+97912345678", "not_valid"),
        ("+15005550006", "not_a_person"),
        ("+16225550123", "not_a_person"),
    ],
)
def test_what_is_not_plainly_one_persons_number_is_refused(text: str, code: str) -> None:
    with pytest.raises(InvalidDestination) as refused:
        PhoneNumber.parse(text)
    assert refused.value.code == code


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
