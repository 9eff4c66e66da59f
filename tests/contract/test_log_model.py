"""One suite for the log the simulation has and the broker it stands for: what readers see of transactions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from compose.clock import random_id
from compose.local.broker import Broker
from tests.simulation.kafka import Fenced, Log, Write

GROUP = "readers"
WITHIN_S = 20.0


class Pipe(Protocol):
    """One topic of one partition, transactional producers by id, and a group's offsets on it."""

    def append(self, value: bytes) -> None: ...

    def begin(self, slot: str) -> Any:
        """A new epoch of this transactional id."""
        ...

    def produce(self, handle: Any, value: bytes) -> None: ...

    def send_offset(self, handle: Any, offset: int) -> None: ...

    def commit(self, handle: Any) -> None: ...

    def abort(self, handle: Any) -> None: ...

    def committed(self) -> tuple[list[bytes], int]:
        """What readers of committed records see from the beginning, and the position after it."""
        ...

    def high(self) -> int: ...

    def stable_offset(self) -> int | None:
        """The group's committed offset; None while one is pending."""
        ...


class ModelPipe:
    def __init__(self) -> None:
        self._now = 1_790_000_000_000
        self._log = Log(lambda: self._now, {"t": 1})

    def append(self, value: bytes) -> None:
        self._log.append([Write("t", b"k", value)])

    def begin(self, slot: str) -> Any:
        return slot, self._log.init(slot)

    def produce(self, handle: Any, value: bytes) -> None:
        slot, epoch = handle
        self._log.produce(slot, epoch, [Write("t", b"k", value)])

    def send_offset(self, handle: Any, offset: int) -> None:
        slot, epoch = handle
        self._log.send_offsets(slot, epoch, GROUP, {("t", 0): offset})

    def commit(self, handle: Any) -> None:
        self._log.end(handle[0], handle[1], commit=True)

    def abort(self, handle: Any) -> None:
        self._log.end(handle[0], handle[1], commit=False)

    def committed(self) -> tuple[list[bytes], int]:
        found, after = self._log.read(("t", 0), 0, 1_000)
        return [m.value or b"" for m in found], after

    def high(self) -> int:
        return self._log.high(("t", 0))

    def stable_offset(self) -> int | None:
        found = self._log.stable_offsets(GROUP, [("t", 0)])
        return None if found is None else found["t", 0]


class KafkaPipe:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap, self._topic = bootstrap, f"model-{random_id()[:10]}"
        self._group = f"{self._topic}-{GROUP}"
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        admin.create_topics([NewTopic(self._topic, 1, 1)])[self._topic].result(WITHIN_S)

    def append(self, value: bytes) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "acks": "all"})
        producer.produce(self._topic, value, b"k")
        assert producer.flush(WITHIN_S) == 0

    def begin(self, slot: str) -> Any:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": f"{self._topic}-{slot}",
                "log_level": 2,
            }
        )
        producer.init_transactions(WITHIN_S)
        producer.begin_transaction()
        return producer

    def produce(self, handle: Any, value: bytes) -> None:
        handle.produce(self._topic, value, b"k")
        handle.flush(WITHIN_S)

    def send_offset(self, handle: Any, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": self._group, "log_level": 2})
        handle.send_offsets_to_transaction(
            [TopicPartition(self._topic, 0, offset)], consumer.consumer_group_metadata(), WITHIN_S
        )
        consumer.close()

    def commit(self, handle: Any) -> None:
        try:
            handle.commit_transaction(WITHIN_S)
        except KafkaException:
            raise Fenced from None

    def abort(self, handle: Any) -> None:
        handle.abort_transaction(WITHIN_S)

    def committed(self) -> tuple[list[bytes], int]:
        consumer = self._consumer("read_committed")
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        found: list[bytes] = []
        until = time.monotonic() + WITHIN_S
        try:
            while time.monotonic() < until:
                message = consumer.poll(0.2)
                if message is not None and message.error() is not None:  # the end of what is stable
                    return found, message.offset()
                if message is not None:
                    found.append(message.value())
        finally:
            consumer.close()
        raise AssertionError("the end was not reached")

    def high(self) -> int:
        consumer = self._consumer("read_uncommitted")
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(self._topic, 0), WITHIN_S)[1])
        finally:
            consumer.close()

    def stable_offset(self) -> int | None:
        consumer = self._consumer("read_committed")
        try:
            (found,) = consumer.committed([TopicPartition(self._topic, 0)], 2.0)
        except KafkaException:
            return None
        finally:
            consumer.close()
        return max(int(found.offset), 0)

    def _consumer(self, isolation: str) -> Any:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap, "group.id": self._group, "isolation.level": isolation,
                "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 2,
            }
        )  # fmt: skip


@pytest.fixture(params=["model", "kafka"])
def pipe(request: pytest.FixtureRequest) -> Pipe:
    if request.param == "model":
        return ModelPipe()
    broker: Broker = request.getfixturevalue("broker")
    return KafkaPipe(broker.bootstrap)


def _eventually(ask: Callable[[], Any], wanted: Any) -> None:
    until = time.monotonic() + WITHIN_S
    while (found := ask()) != wanted:
        assert time.monotonic() < until, found


def test_records_are_read_in_the_order_of_their_offsets(pipe: Pipe) -> None:
    for value in (b"a", b"b", b"c"):
        pipe.append(value)
    assert pipe.committed() == ([b"a", b"b", b"c"], 3)


def test_an_open_transaction_holds_back_whatever_lies_behind_it(pipe: Pipe) -> None:
    pipe.append(b"before")
    handle = pipe.begin("w")
    pipe.produce(handle, b"inside")
    pipe.append(b"behind")
    assert pipe.committed() == ([b"before"], 1)
    assert pipe.high() == 3
    pipe.commit(handle)
    _eventually(pipe.committed, ([b"before", b"inside", b"behind"], 4))  # the marker has an offset


def test_aborted_records_are_passed_over_and_keep_their_offsets(pipe: Pipe) -> None:
    handle = pipe.begin("w")
    pipe.produce(handle, b"never")
    pipe.abort(handle)
    pipe.append(b"after")
    _eventually(pipe.committed, ([b"after"], 3))


def test_a_successor_of_the_same_id_aborts_what_was_open_and_fences_it(pipe: Pipe) -> None:
    old = pipe.begin("w")
    pipe.produce(old, b"torn")
    new = pipe.begin("w")
    pipe.produce(new, b"whole")
    with pytest.raises(Fenced):
        pipe.commit(old)
    pipe.commit(new)
    _eventually(lambda: pipe.committed()[0], [b"whole"])


def test_offsets_of_a_transaction_count_once_it_is_committed_and_are_waited_for_before(pipe: Pipe) -> None:
    pipe.append(b"input")
    handle = pipe.begin("w")
    pipe.produce(handle, b"output")
    pipe.send_offset(handle, 1)
    assert pipe.stable_offset() is None
    pipe.commit(handle)
    _eventually(pipe.stable_offset, 1)


def test_offsets_of_an_aborted_transaction_are_forgotten(pipe: Pipe) -> None:
    pipe.append(b"input")
    handle = pipe.begin("w")
    pipe.produce(handle, b"output")
    pipe.send_offset(handle, 1)
    pipe.abort(handle)
    _eventually(pipe.stable_offset, 0)
