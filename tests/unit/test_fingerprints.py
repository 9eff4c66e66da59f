"""Fingerprints: one per normal form, channel and key; useless without the key."""

from __future__ import annotations

import pickle
import re

import pytest

from schemas.destinations import EmailAddress, PhoneNumber
from schemas.fingerprints import FingerprintKeys
from schemas.ids import FINGERPRINT_PATTERN, SUBJECT_PATTERN

KEYS = FingerprintKeys("k2", {"k1": b"1" * 32, "k2": b"2" * 32, "k3": b"3" * 32})
ALICE = EmailAddress.parse("alice@example.com")
PHONE = PhoneNumber.parse("+447700900123")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Alice@Example.COM", "alice@example.com"),
        ("x@b\u00fccher.example", "x@xn--bcher-kva.example"),
    ],
)
def test_spellings_of_one_address_share_a_fingerprint(one: str, other: str) -> None:
    assert KEYS.of(EmailAddress.parse(one)) == KEYS.of(EmailAddress.parse(other))


def test_a_tag_makes_another_address() -> None:
    assert KEYS.of(EmailAddress.parse("alice+reset@example.com")) != KEYS.of(ALICE)


def test_the_printed_form_names_key_and_channel_and_fits_the_pattern() -> None:
    assert KEYS.of(ALICE).startswith("k2.e.")
    assert KEYS.of(PHONE).startswith("k2.s.")
    assert re.fullmatch(FINGERPRINT_PATTERN, KEYS.of(ALICE))
    assert re.fullmatch(FINGERPRINT_PATTERN, KEYS.of(PHONE))


def test_the_hash_is_pinned_because_suppressions_outlive_every_deploy() -> None:
    assert KEYS.of(ALICE) == "k2.e.d784d7aa8df812ed071fe86b60b5db1d"
    assert KEYS.of(PHONE) == "k2.s.45ac8003dda3599bb4ef445b23eac44a"


def test_a_subject_is_told_by_a_keyed_hash_of_its_tenant_and_never_an_addresses() -> None:
    """Pinned: two versions of a service must agree on whom a second request is about."""
    found = KEYS.of_subject("tenant-0001", "alice@example.com")
    assert found == "k2.u.429636b5b1bb3669f44755b46d8cddf5"
    assert re.fullmatch(SUBJECT_PATTERN, found)
    assert KEYS.of_subject("tenant-0002", "alice@example.com") != found
    assert found.rpartition(".")[2] != KEYS.of(ALICE).rpartition(".")[2]


def test_every_live_key_gives_one_and_the_current_comes_first() -> None:
    assert [f.partition(".")[0] for f in KEYS.all_of(ALICE)] == ["k2", "k1", "k3"]
    assert len({f.rpartition(".")[2] for f in KEYS.all_of(ALICE)}) == 3


def test_old_keys_still_match_and_unknown_ones_do_not() -> None:
    _, old, _ = KEYS.all_of(ALICE)
    assert KEYS.matches(ALICE, old)
    assert not KEYS.matches(ALICE, "k9" + old[2:])
    assert not KEYS.matches(EmailAddress.parse("bob@example.com"), old)


@pytest.mark.parametrize("text", ["", "k1", "k1.e.", "k1.s." + "a" * 32, "k1.e.\u00e9", "k1.e.\ud83d", "."])
def test_what_is_no_fingerprint_matches_nobody(text: str) -> None:
    assert not KEYS.matches(ALICE, text)


def test_keys_are_checked_and_hidden() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        FingerprintKeys("k1", {"k1": b"short"})
    with pytest.raises(ValueError, match="a-z 0-9"):
        FingerprintKeys("k.1", {"k.1": b"1" * 32})
    with pytest.raises(ValueError, match="current"):
        FingerprintKeys("k4", {"k1": b"1" * 32})
    assert "1111" not in repr(KEYS)
    with pytest.raises(TypeError):
        pickle.dumps(KEYS)
