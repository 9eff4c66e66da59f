"""The envelope opens for its own intent and nobody else's, and nothing leaks on the way."""

from __future__ import annotations

import json
import pickle
import traceback
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc import jwe
from joserfc.jwk import ECKey, OKPKey

from schemas.errors import BindingMismatch, SealBroken, SealError, SealKeyShredded, SealKeyUnknown
from schemas.sealed import (
    PAYLOAD_BYTES_MAX,
    Binding,
    Payload,
    SealingKey,
    UnsealingKeys,
    _registry,
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
TOKEN = seal(SECRET, BINDING, KEY)


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


@pytest.mark.parametrize(
    "change",
    [
        {"alg": "dir"},
        {"alg": "none"},
        {"alg": 5},
        {"enc": "A128CBC-HS256"},
        {"zip": "DEF"},
        {"crit": ["other"]},
        {"bs": 5},
        {"apu": 5},
        {"epk": "x"},
        {"epk": {"kty": "OKP", "crv": "X25519", "x": "AAAA"}},
        {"epk": {"kty": "OKP", "crv": "X25519", "x": "A" * 43}},
        {"epk": ECKey.generate_key("P-256").as_dict(private=False)},
    ],
)
def test_a_header_a_stranger_wrote_is_a_broken_seal_and_nothing_worse(change: dict[str, Any]) -> None:
    first, rest = seal(SECRET, BINDING, KEY).split(".", 1)
    header = json.loads(urlsafe_b64decode(first + "==")) | change
    with pytest.raises(SealBroken) as refused:
        unseal(f"{urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip('=')}.{rest}", BINDING, RING)
    assert refused.value.code == "altered"


@pytest.mark.parametrize(
    "clear",
    [
        b"canary",
        b"",
        b"null",
        b"[]",
        b'{"email":"canary@example.com"}',
        b'{"email":null,"variables":{}}',
        b'{"email":"a@example.com","phone":5,"variables":{}}',
        b'{"email":"a@example.com","variables":{"canary":null}}',
        b'{"email":"a@example.com","variables":{"canary":"\\ud83d"}}',
        b'{"email":"\xffcanary","variables":{}}',
        b"[" * 20_000,
    ],
)
def test_a_payload_of_another_shape_is_broken_and_no_error_in_reach_holds_it(clear: bytes) -> None:
    header = {"alg": "ECDH-ES", "enc": "A256GCM", "kid": "s1", "crit": ["bs"], "bs": asdict(BINDING)}
    token = jwe.encrypt_compact(header, clear, OKPKey.import_key(PUBLIC), registry=_registry)
    with pytest.raises(SealBroken) as refused:
        unseal(token, BINDING, RING)
    assert refused.value.code == "not_a_payload"
    assert refused.value.__context__ is None


def test_half_a_surrogate_pair_is_refused_before_it_is_sealed() -> None:
    with pytest.raises(SealBroken) as refused:
        seal(replace(SECRET, variables={"name": "canary\ud83d"}), BINDING, KEY)
    assert refused.value.__context__ is None


@given(st.integers(0, 2_000), st.characters())
@settings(max_examples=100)
def test_one_changed_character_anywhere_opens_nothing(at: int, character: str) -> None:
    at %= len(TOKEN)
    changed = TOKEN[:at] + character + TOKEN[at + 1 :]
    try:
        assert unseal(changed, BINDING, RING) == SECRET  # the bits after the last byte of a part mean nothing
    except SealError:
        return


@pytest.mark.parametrize(
    "jwk",
    [
        PUBLIC,
        {k: v for k, v in PRIVATE.items() if k != "kid"},
        PRIVATE | {"crv": "X448"},
        PRIVATE | {"d": "canary"},
        PRIVATE | {"x": generate_key("s2")[0]["x"]},
        {},
    ],
)
def test_a_key_that_could_open_nothing_is_refused_at_start(jwk: dict[str, Any]) -> None:
    """Found later it would look like an altered envelope and end every intent."""
    with pytest.raises(SealBroken) as refused:
        UnsealingKeys([jwk])
    assert refused.value.code == "not_a_key"
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("jwk", [{}, PUBLIC | {"kid": ""}, PUBLIC | {"x": "AAAA"}, PUBLIC | {"crv": "P-256"}])
def test_a_sealing_key_is_checked(jwk: dict[str, Any]) -> None:
    with pytest.raises(SealBroken):
        SealingKey(jwk)


def test_a_shredded_key_opens_nothing_even_while_a_copy_is_left() -> None:
    with pytest.raises(SealKeyShredded):
        unseal(TOKEN, BINDING, UnsealingKeys([PRIVATE], shredded=["s1"]))


def test_a_payload_has_a_largest_size() -> None:
    with pytest.raises(SealBroken):
        seal(replace(SECRET, variables={"a": "x" * PAYLOAD_BYTES_MAX}), BINDING, KEY)


def test_neither_printing_nor_failing_shows_a_secret() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(RING)
    shown = [repr(SECRET), str(SECRET), repr(KEY), repr(RING), f"{SECRET}"]
    token = seal(SECRET, BINDING, KEY)
    for envelope, binding in ((token, replace(BINDING, tenant="tenant-0002")), (token[:-5], BINDING)):
        try:
            unseal(envelope, binding, RING)
        except SealError as exc:
            shown.append("".join(traceback.format_exception(exc)))
    assert len(shown) == 7
    for secret in ("canary", "447700900123", str(PRIVATE["d"])):
        assert not any(secret in text for text in shown)
