"""The reader of the controls: whoever depends on it is told when it has failed."""

from __future__ import annotations

import threading

import pytest

from compose.local.broker import Broker
from schemas.record import TopicKind
from schemas.topics import TopicNames
from sinks.kafka import admin
from sinks.kafka.producer import OutgoingRecord, Publisher
from streams.engine.broadcast import BroadcastReader

WITHIN_S = 20.0


@pytest.fixture
def topic(broker: Broker, prefix: str) -> str:
    names = TopicNames(prefix)
    admin.create(broker.bootstrap, admin.Layout(names, 1, 1, 1))
    return names[TopicKind.CONTROLS]


def _write(broker: Broker, topic: str, value: bytes) -> None:
    Publisher(broker.bootstrap, client_id="test").publish([OutgoingRecord(topic, b"all", value)])


def test_everything_that_lies_there_is_read_before_the_start_returns(broker: Broker, topic: str) -> None:
    _write(broker, topic, b"1")
    seen: list[bytes | None] = []
    reader = BroadcastReader(broker.bootstrap, topic, lambda _k, value, _o: seen.append(value), lambda: None)
    reader.start()
    reader.check()
    reader.stop()
    assert seen == [b"1"]


def test_a_reader_that_fails_later_tells_at_once_and_whenever_it_is_asked(broker: Broker, topic: str) -> None:
    told = threading.Event()

    def take(_key: bytes | None, _value: bytes | None, _offset: int) -> None:
        raise RuntimeError("a fault of ours")

    reader = BroadcastReader(broker.bootstrap, topic, take, lambda: None, lambda _exc: told.set())
    reader.start()
    reader.check()
    _write(broker, topic, b"1")
    assert told.wait(WITHIN_S)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        reader.check()
    reader.stop()


def test_a_reader_that_fails_at_the_start_does_not_start(broker: Broker, topic: str) -> None:
    _write(broker, topic, b"1")

    def take(_key: bytes | None, _value: bytes | None, _offset: int) -> None:
        raise RuntimeError("a fault of ours")

    reader = BroadcastReader(broker.bootstrap, topic, take, lambda: None)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        reader.start()
    reader.stop()
