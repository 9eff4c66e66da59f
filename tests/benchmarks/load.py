"""What the competitors are given: the records of real stories, and the states of intents in flight.

It must not measure anything. Records are built by `tests.builders` and keyed as the publisher keys them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from confluent_kafka import Producer

from schemas.attempt import AttemptState
from schemas.codec import Undecodable, decode
from schemas.ids import Channel
from schemas.observation import ProviderState
from schemas.record import TopicKind
from streams.core.state import to_bytes
from tests import builders

HOUR_MS = 3_600_000
DEADLINE_MS = 600_000  # the longest the test policy allows: no ladder step falls into the run
FLUSH_S = 120.0
PADDED_SEALED = "eyJhbGciOiJub25lIn0..AAAA." + "B" * 400 + ".CCCC"  # a link and a name, encrypted: 0.4 KiB
DELIVERED_OF = 10  # one intent in ten never hears "delivered"
COMPLETED_OF = 2  # one in two is completed

# Kind, key, value.
Row = tuple[TopicKind, bytes, bytes]


def intent_name(number: int) -> str:
    return f"int-{number:07d}"


def requested(number: int, now_ms: int) -> Row:
    name = intent_name(number)
    record = builders.request(
        intent_id=name,
        requested_at_ms=now_ms,
        deadline_ms=now_ms + DEADLINE_MS,
        expiry_ms=now_ms + HOUR_MS,
        sms_consent={"granted_at_ms": now_ms - 1000, "text_ref": "consent-3"},
        sealed=PADDED_SEALED,
    )
    return TopicKind.INTENTS, name.encode(), record.to_bytes()


def accepted(number: int, now_ms: int) -> Row:
    name = intent_name(number)
    record = builders.attempt(
        now_ms - builders.T0, AttemptState.ACCEPTED, intent_id=name, attempt_id=f"{name}:email:1:accepted"
    )
    return TopicKind.ATTEMPTS, name.encode(), record.to_bytes()


def observed(number: int, poll_no: int, state: ProviderState, now_ms: int) -> Row:
    name = intent_name(number)
    record = builders.observation(
        now_ms - builders.T0,
        state,
        Channel.EMAIL,
        intent_id=name,
        poll_no=poll_no,
        observation_id=f"{name}:email:1:{poll_no}",
    )
    return TopicKind.OBSERVATIONS, name.encode(), record.to_bytes()


def completed(number: int, now_ms: int) -> Row:
    name = intent_name(number)
    record = builders.completed(now_ms - builders.T0, intent_id=name)
    return TopicKind.INTENTS, name.encode(), record.to_bytes()


def stories(records: int, intents: int, now_ms: int) -> Iterator[Row]:
    """Exactly `records` rows, in rounds over all intents: request, accepted, in flight, delivered, end.

    At ten records per intent that is one request, one attempt, seven or eight observations and, for every
    other intent, a completion.
    """
    rounds = max(3, -(-records // intents))
    left = records
    for turn in range(rounds):
        for number in range(min(intents, left)):
            yield _row(turn, rounds, number, now_ms)
        left -= min(intents, left)


def _row(turn: int, rounds: int, number: int, now_ms: int) -> Row:
    if turn == 0:
        return requested(number, now_ms)
    if turn == 1:
        return accepted(number, now_ms)
    if turn == rounds - 1 and number % COMPLETED_OF == 0:
        return completed(number, now_ms)
    is_last = turn >= rounds - 2 and number % DELIVERED_OF
    return observed(number, turn - 1, ProviderState.DELIVERED if is_last else ProviderState.ACCEPTED, now_ms)


def states(count: int, now_ms: int) -> Iterator[tuple[bytes, bytes]]:
    """Key and state bytes of `count` intents whose e-mail was accepted and is looked after."""
    game = builders.Play(builders.context())
    for kind, key, value in (requested(0, now_ms), accepted(0, now_ms)):
        record = decode(kind, key, value)
        if isinstance(record, Undecodable):
            raise TypeError(record.reason.value)
        game.give(now_ms - builders.T0, record)
    one = game.live
    for number in range(count):
        name = intent_name(number)
        yield name.encode(), to_bytes(msgspec.structs.replace(one, intent_id=name))


class Loader:
    """Publishes with the keys' own partitions (murmur2), acknowledged when `close` returns."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "partitioner": "murmur2_random",
                "linger.ms": 20,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 1_000_000,
            }
        )

    def put(self, topic: str, key: bytes, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def close(self) -> None:
        left = self._producer.flush(FLUSH_S)
        if left:
            raise RuntimeError(f"{left} records were not acknowledged")
