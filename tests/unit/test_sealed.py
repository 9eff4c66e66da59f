"""The envelope opens for its own intent and nobody else's, and nothing leaks on the way."""

from __future__ import annotations

import traceback
from dataclasses import replace

import pytest

from schemas.errors import BindingMismatch, SealBroken, SealError, SealKeyShredded, SealKeyUnknown
from schemas.sealed import (
    PAYLOAD_BYTES_MAX,
    Binding,
    Payload,
    SealingKey,
    UnsealingKeys,
    generate_key,
    seal,
    unseal,
)

PUBLIC, PRIVATE = generate_key("s1")
KEY, RING = SealingKey(PUBLIC), UnsealingKeys([PRIVATE], shredded=["s0"])
BINDING = Binding(
    "int-0001-test",
    "tenant-0001",
    "password_reset",
    "password_reset:v1",
    1_790_000_060_000,
    1_790_000_900_000,
    "k1.e." + "a" * 32,
    "k1.s." + "b" * 32,
)
SECRET = Payload("canary@example.com", "+447700900123", {"link": "https://app.example/r?t=canary-token"})


def test_what_was_sealed_is_what_is_opened() -> None:
    assert unseal(seal(SECRET, BINDING, KEY), BINDING, RING) == SECRET


def test_sealing_twice_gives_two_envelopes() -> None:
    assert seal(SECRET, BINDING, KEY) != seal(SECRET, BINDING, KEY)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("intent_id", "int-0002-test"),
        ("tenant", "tenant-0002"),
        ("purpose", "build_failure"),
        ("policy", "password_reset:v2"),
        ("deadline_ms", 1_790_000_060_001),
        ("expiry_ms", 1_790_000_900_001),
        ("email_fingerprint", "k1.e." + "c" * 32),
        ("sms_fingerprint", None),
    ],
)
def test_an_envelope_of_another_intent_is_refused_and_the_field_named(name: str, value: object) -> None:
    token = seal(SECRET, BINDING, KEY)
    with pytest.raises(BindingMismatch, match=name):
        unseal(token, replace(BINDING, **{name: value}), RING)  # type: ignore[arg-type]


def test_a_key_not_in_the_ring_is_held_and_a_shredded_one_ends_the_intent() -> None:
    token = seal(SECRET, BINDING, KEY)
    with pytest.raises(SealKeyUnknown):
        unseal(token, BINDING, UnsealingKeys([]))
    with pytest.raises(SealKeyShredded):
        unseal(token, BINDING, UnsealingKeys([], shredded=["s1"]))


@pytest.mark.parametrize("part", range(5))
def test_any_altered_part_is_refused(part: int) -> None:
    parts = seal(SECRET, BINDING, KEY).split(".")
    parts[part] = ("A" if not parts[part].startswith("A") else "B") + parts[part][1:]
    with pytest.raises(SealError):
        unseal(".".join(parts), BINDING, RING)


@pytest.mark.parametrize("token", ["", "....", "a.b.c.d.e", "bnVsbA....", "W10....", "x" * 100_000])
def test_garbage_is_a_broken_seal(token: str) -> None:
    with pytest.raises((SealBroken, SealKeyUnknown)):
        unseal(token, BINDING, RING)


def test_a_payload_has_a_largest_size() -> None:
    with pytest.raises(SealBroken):
        seal(replace(SECRET, variables={"a": "x" * PAYLOAD_BYTES_MAX}), BINDING, KEY)


def test_neither_printing_nor_failing_shows_a_secret() -> None:
    shown = [repr(SECRET), str(SECRET), repr(KEY), repr(RING), f"{SECRET}"]
    token = seal(SECRET, BINDING, KEY)
    for given, binding in ((token, replace(BINDING, tenant="tenant-0002")), (token[:-5], BINDING)):
        try:
            unseal(given, binding, RING)
        except SealError as exc:
            shown.append("".join(traceback.format_exception(exc)))
    assert len(shown) == 7
    for secret in ("canary", "447700900123", str(PRIVATE["d"])):
        assert not any(secret in text for text in shown)
