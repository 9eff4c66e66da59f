"""Every row of the two tables of destinations, decided once."""

from __future__ import annotations

import json
import pickle

import pytest

from schemas.destinations import EmailAddress, PhoneNumber
from schemas.errors import InvalidDestination
from schemas.fingerprints import FingerprintKeys

KEYS = FingerprintKeys("k2", {"k1": b"1" * 32, "k2": b"2" * 32})


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("USER@EXAMPLE.COM", "user@example.com"),
        ("Alice@Example.COM", "alice@example.com"),
        ("alice+reset@example.com", "alice+reset@example.com"),
        ("x@bücher.example", "x@xn--bcher-kva.example"),
        ("x@xn--bcher-kva.example", "x@xn--bcher-kva.example"),
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
        ("a" * 250 + "@example.com", "too_long"),
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
        ("+19005550123", "not_a_person"),
        ("+447012345678", "not_a_person"),
        ("+881612345678", "not_a_person"),
        ("+88213300655", "not_a_person"),
        ("12345", "not_e164"),
    ],
)
def test_what_is_not_plainly_one_persons_number_is_refused(text: str, code: str) -> None:
    with pytest.raises(InvalidDestination) as refused:
        PhoneNumber.parse(text)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "one", [EmailAddress.parse("canary@example.com"), PhoneNumber.parse("+447700900123")]
)
def test_a_destination_is_useless_when_printed(one: EmailAddress | PhoneNumber) -> None:
    for text in (repr(one), str(one), f"{one}", f"{one!s:>40}", str([one]), str({"to": one})):
        assert "canary" not in text
        assert "7700" not in text
    with pytest.raises(TypeError):
        pickle.dumps(one)
    with pytest.raises(TypeError):
        json.dumps(one)
    with pytest.raises(AttributeError):
        one._normal = "other"


def test_refusing_does_not_quote_the_text() -> None:
    with pytest.raises(InvalidDestination) as refused:
        EmailAddress.parse("canary person@example.com")
    assert "canary" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_spellings_of_one_address_share_a_fingerprint_and_tags_do_not() -> None:
    plain = KEYS.of(EmailAddress.parse("alice@example.com"))
    assert KEYS.of(EmailAddress.parse("Alice@Example.COM")) == plain
    assert KEYS.of(EmailAddress.parse("alice+reset@example.com")) != plain


def test_old_keys_still_match_and_unknown_ones_do_not() -> None:
    alice = EmailAddress.parse("alice@example.com")
    new, old = KEYS.all_of(alice)
    assert new.startswith("k2.e.")
    assert old.startswith("k1.e.")
    assert KEYS.matches(alice, old)
    assert not KEYS.matches(alice, "k9" + old[2:])
    assert not KEYS.matches(EmailAddress.parse("bob@example.com"), old)


def test_keys_are_checked_and_hidden() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        FingerprintKeys("k1", {"k1": b"short"})
    with pytest.raises(ValueError, match="current"):
        FingerprintKeys("k3", {"k1": b"1" * 32})
    assert "1111" not in repr(KEYS)
