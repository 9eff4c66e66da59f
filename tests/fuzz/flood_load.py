"""What the flood is made of: hostile records by kind, each with the fate it must have, and good neighbours.

It must not touch Kafka or know how a fate is checked.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from schemas.attempt import AttemptState
from schemas.ids import Channel
from schemas.observation import ProviderState
from schemas.partitions import partition_for
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.topics import WORKER_INPUTS
from streams.worker.processor import ORIGIN_HEADER
from tests import builders
from tests.fuzz.records import CANARY

K = TopicKind
HOUR_MS = 3_600_000
BOUNCED, COMPLETED, FAMILIES = 0, 1, 3  # a third bounces, a third is completed, a third stays as it is
HUGE_BYTES = 2_000_000  # compressed on the way: more than the broker's limit once it is unpacked
DEEP = 20_000
FORGOTTEN = (
    50_000  # ids of facts whose intent never comes: more than parking has room for in a million records
)

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Hostile:
    """One record. `reason` is that of its dead letter, or None when it gets none."""

    name: str
    kind: TopicKind
    key: bytes | None
    value: bytes | None
    reason: Reason | None
    partition: int | None = None
    headers: Headers | None = None

    @property
    def is_huge(self) -> bool:
        return self.value is not None and len(self.value) >= HUGE_BYTES


class Maker:
    """Makes hostile records, the same ones for the same seed. Instants lie around `now_ms`."""

    def __init__(self, *, seed: int, now_ms: int, partitions: int, neighbours: int) -> None:
        self._dice, self._now, self._partitions = random.Random(seed), now_ms, partitions
        self._neighbours, self._made = neighbours, 0
        self._request = json.loads(_request(b"int-9999999", now_ms))
        self._kinds = [make for make, weight in _KINDS for _ in range(weight)]

    def some(self, count: int) -> Iterator[Hostile]:
        for _ in range(count):
            self._made += 1
            yield self._dice.choice(self._kinds)(self)

    def _key(self) -> bytes:
        """A fresh id, a neighbour's, one that was used before, or something that is no id at all."""
        match self._dice.randrange(8):
            case 0:
                return neighbour(self._dice.randrange(self._neighbours))
            case 1:
                return b"int-hostile-0001"
            case 2:
                return f"{CANARY}/{self._made}".encode()
        return f"int-h{self._made:08d}".encode()

    def _kind(self) -> TopicKind:
        return self._dice.choice(WORKER_INPUTS)

    # one function per kind of record

    def garbage(self) -> Hostile:
        value = self._dice.randbytes(self._dice.randrange(1, 200)) + CANARY.encode()
        return Hostile("random bytes", self._kind(), self._key(), value, Reason.MALFORMED)

    def cut(self) -> Hostile:
        whole = json.dumps(self._request | {"challenge_ref": CANARY}).encode()
        return Hostile(
            "cut off", K.INTENTS, self._key(), whole[: self._dice.randrange(len(whole))], Reason.MALFORMED
        )

    def odd_json(self) -> Hostile:
        value = self._dice.choice(_ODD_JSON).replace("?", CANARY).encode()
        return Hostile("JSON that is no record", self._kind(), self._key(), value, Reason.MALFORMED)

    def deep(self) -> Hostile:
        value = b'{"a":' * DEEP if self._dice.random() < 0.5 else b"[" * DEEP
        return Hostile("nested 20 000 deep", self._kind(), self._key(), value, Reason.MALFORMED)

    def huge(self) -> Hostile:
        value = (CANARY * (HUGE_BYTES // len(CANARY) + 1)).encode()
        return Hostile("2 MB", self._kind(), self._key(), value, Reason.TOO_LARGE)

    def without_key(self) -> Hostile:
        key = self._dice.choice([None, b""])
        return Hostile("no key", self._kind(), key, CANARY.encode(), Reason.NULL_KEY)

    def tombstone(self) -> Hostile:
        return Hostile("tombstone", self._kind(), self._key(), None, Reason.TOMBSTONE)

    def near(self) -> Hostile:
        """A request that would be valid but for one field; as often as not under a neighbour's id."""
        key = neighbour(self._dice.randrange(self._neighbours)) if self._dice.random() < 0.5 else self._key()
        name, changes, reason = self._dice.choice(_NEAR)
        body = self._request | {"intent_id": key.decode(), "challenge_ref": "ch-2"} | changes
        return Hostile(f"nearly valid: {name}", K.INTENTS, key, json.dumps(body).encode(), reason)

    def mismatch(self) -> Hostile:
        key = neighbour(self._dice.randrange(self._neighbours))
        return Hostile(
            "another's key", K.INTENTS, key, json.dumps(self._request).encode(), Reason.KEY_MISMATCH
        )

    def elsewhere(self) -> Hostile:
        """In a wrong partition: sent home once, with headers nobody may trip over, and unusable there."""
        key = f"int-w{self._made:08d}".encode()
        found: Headers = [("traceparent", None), ("x", CANARY.encode()), ("", b"\xff")]
        wrong = (partition_for(key, self._partitions) + 1) % self._partitions
        return Hostile("wrong partition", self._kind(), key, CANARY.encode(), Reason.MALFORMED, wrong, found)

    def elsewhere_again(self) -> Hostile:
        """In a wrong partition and pretending to have been sent home already."""
        key = f"int-w{self._made:08d}".encode()
        wrong = (partition_for(key, self._partitions) + 1) % self._partitions
        found: Headers = [(ORIGIN_HEADER, CANARY.encode())]
        return Hostile(
            "wrong partition, forged origin",
            *(self._kind(), key, CANARY.encode(), Reason.WRONG_PARTITION_TWICE, wrong, found),
        )

    def orphan(self) -> Hostile:
        """A valid fact about an intent that never comes: parked, and given up when parking is full."""
        name = f"int-o{self._dice.randrange(FORGOTTEN):07d}"
        at = self._now - builders.T0
        record = builders.observation(
            at,
            ProviderState.DELIVERED,
            intent_id=name,
            observation_id=f"{name}:email:1:{self._made}",
            message_id=CANARY,
            poll_no=self._made,
        )
        return Hostile("fact without an intent", K.OBSERVATIONS, name.encode(), record.to_bytes(), None)

    def forged_tick(self) -> Hostile:
        """A valid tick for a neighbour that says its deadline has come."""
        key = neighbour(self._dice.randrange(self._neighbours))
        late = self._now + 13 * HOUR_MS - builders.T0
        record = builders.tick(late, intent_id=key.decode(), generation=self._made)
        return Hostile("tick before its time", K.TICKS, key, record.to_bytes(), None)


_ODD_JSON = (
    "null",
    "[]",
    '"?"',
    "7",
    '{"s":"\\ud83d ?"}',
    '{"n":' + "7" * 5_000 + "}",
    "\ufeff{}",
    '{"a":1}}?',
)
_NEAR: tuple[tuple[str, dict[str, object], Reason], ...] = (
    ("another version", {"version": 99}, Reason.UNKNOWN_VERSION),
    ("another record", {"record": CANARY}, Reason.UNKNOWN_RECORD),
    ("seconds", {"deadline_ms": 1_790_000_000}, Reason.INVALID_FIELD),
    ("an address as tenant", {"tenant": CANARY}, Reason.INVALID_FIELD),
    ("a clear payload", {"sealed": CANARY}, Reason.INVALID_FIELD),
    ("null locale", {"locale": None}, Reason.INVALID_FIELD),
    ("deadline after expiry", {"deadline_ms": 4_000_000_000_000}, Reason.INVALID_FIELD),
    ("an address as variable", {"variables": ["link", CANARY]}, Reason.INVALID_FIELD),
)
_KINDS: tuple[tuple[Callable[[Maker], Hostile], int], ...] = (
    (Maker.garbage, 1_200),
    (Maker.cut, 600),
    (Maker.odd_json, 800),
    (Maker.deep, 40),
    (Maker.huge, 1),
    (Maker.without_key, 400),
    (Maker.tombstone, 500),
    (Maker.near, 2_000),
    (Maker.mismatch, 500),
    (Maker.elsewhere, 500),
    (Maker.elsewhere_again, 200),
    (Maker.orphan, 600),
    (Maker.forged_tick, 400),
)


def neighbour(number: int) -> bytes:
    return f"int-n{number:07d}".encode()


def _request(key: bytes, now_ms: int) -> bytes:
    """Due in twelve hours: no tick falls into the run, so a decision depends on records alone."""
    record = builders.request(
        intent_id=key.decode(),
        requested_at_ms=now_ms,
        deadline_ms=now_ms + 12 * HOUR_MS,
        expiry_ms=now_ms + 24 * HOUR_MS,
    )
    return record.to_bytes()


Phase = list[tuple[TopicKind, bytes, bytes]]


def neighbours(count: int, now_ms: int) -> list[Phase]:
    """Three phases; each one's decisions do not depend on the order inside it."""
    at = now_ms - builders.T0
    keys = [neighbour(n) for n in range(count)]
    asked: Phase = [(K.INTENTS, key, _request(key, now_ms)) for key in keys]
    accepted: Phase = []
    ended: Phase = []
    for number, key in enumerate(keys):
        name = key.decode()
        found = builders.attempt(
            at, AttemptState.ACCEPTED, intent_id=name, attempt_id=f"{name}:email:1:accepted"
        )
        accepted.append((K.ATTEMPTS, key, found.to_bytes()))
        if number % FAMILIES == BOUNCED:
            bounce = builders.observation(
                at,
                ProviderState.FAILED_PERMANENT,
                Channel.EMAIL,
                intent_id=name,
                observation_id=f"{name}:email:1:1",
                reason=Reason.PERMANENT_BOUNCE,
            )
            ended.append((K.OBSERVATIONS, key, bounce.to_bytes()))
        elif number % FAMILIES == COMPLETED:
            ended.append((K.INTENTS, key, builders.completed(at, intent_id=name).to_bytes()))
    return [asked, accepted, ended]
