"""Do our clients keep their word with the real broker: partitions, ends, offsets, queues, topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from schemas.errors import PreflightFailed
from schemas.partitions import partition_for
from schemas.topics import TopicNames
from sinks.kafka import admin
from sinks.kafka.consumer import Ends, KafkaAway, Message, Reader, read_all
from sinks.kafka.producer import OutgoingRecord, Publisher, PublishFailed
from tests.conftest import Servers
from tests.integration.conftest import MakeTopics

WAIT_S = 40.0
SESSION_MS = 3_000


def records(topic: str, count: int, *, first: int = 0) -> list[OutgoingRecord]:
    numbers = range(first, first + count)
    return [OutgoingRecord(topic, f"int-{n:04d}".encode(), str(n).encode()) for n in numbers]


def publish(bootstrap: str, given: list[OutgoingRecord], **options: Any) -> None:
    Publisher(bootstrap, client_id="test", **options).publish(given)


def until(reader: Reader, enough: Callable[[list[Message]], bool], *, count_max: int = 100) -> list[Message]:
    found: list[Message] = []
    end = time.monotonic() + WAIT_S
    while not enough(found):
        assert time.monotonic() < end, f"only {len(found)} records came"
        found += reader.poll(count_max, 0.1)
    return found


def test_our_producer_agrees_with_the_worker_and_a_default_one_does_not(
    stack: Servers, make_topics: MakeTopics
) -> None:
    (topic,) = make_topics("keys", partitions=6)
    publish(stack.bootstrap, records(topic, 200))
    ours = {m.key: m.partition for m in read_all(stack.bootstrap, topic)}
    assert all(partition_for(key or b"", 6) == partition for key, partition in ours.items())
    assert ours[b"int-0001"] == 2

    (other,) = make_topics("others", partitions=6)
    producer = Producer({"bootstrap.servers": stack.bootstrap, "log_level": 0})
    for record in records(other, 200):
        producer.produce(other, record.value, record.key)
    assert producer.flush(WAIT_S) == 0
    theirs = {m.key: m.partition for m in read_all(stack.bootstrap, other)}
    assert theirs[b"int-0001"] == 1, "VECTORS.md: CRC32 puts it elsewhere"
    assert sum(theirs[k] == ours[k] for k in ours) < 100


def test_a_queue_of_ten_loses_none_of_a_thousand(stack: Servers, make_topics: MakeTopics) -> None:
    (topic,) = make_topics("many")
    publish(stack.bootstrap, records(topic, 1_000), queue_max=10)
    found = {m.value for m in read_all(stack.bootstrap, topic)}
    assert len(found) == 1_000


def test_a_record_the_cluster_refuses_is_said_and_its_neighbours_are_there(
    stack: Servers, make_topics: MakeTopics
) -> None:
    (topic,) = make_topics("sizes", config={"max.message.bytes": "2000"})
    large = bytes(range(256)) * 40
    given = [
        *records(topic, 3),
        OutgoingRecord(topic, b"large-one", large * 400),
        *records(topic, 3, first=3),
    ]
    publisher = Publisher(stack.bootstrap, client_id="test")
    with pytest.raises(PublishFailed, match="1 of 7"):
        publisher.publish(given)
    assert len(list(read_all(stack.bootstrap, topic))) == 6


def test_a_member_begins_at_the_earliest_and_goes_on_where_it_committed(
    stack: Servers, make_topics: MakeTopics, prefix: str
) -> None:
    (topic,) = make_topics("work", partitions=1)
    publish(stack.bootstrap, records(topic, 10))
    with Reader(stack.bootstrap, f"{prefix}group", [topic], session_timeout_ms=SESSION_MS) as reader:
        first = until(reader, lambda found: len(found) >= 10)
        assert [m.offset for m in first] == list(range(10))
        reader.commit({(topic, 0): 4})
    with Reader(stack.bootstrap, f"{prefix}group", [topic], session_timeout_ms=SESSION_MS) as reader:
        again = until(reader, lambda found: len(found) >= 6)
    assert [m.offset for m in again] == [4, 5, 6, 7, 8, 9], "read is not done: only what was committed counts"
    lag = admin.Groups(stack.bootstrap).lag(f"{prefix}group", [topic])
    assert lag == {topic: 6}


@pytest.mark.parametrize("names", [("first", "second"), ("second", "first")])
def test_a_commit_the_broker_takes_for_one_partition_only_is_not_taken(
    stack: Servers, make_topics: MakeTopics, prefix: str, names: tuple[str, str]
) -> None:
    """The client's manual lets it hide the error of one partition in its answer: this one raises it."""
    kept, gone = (make_topics(name, partitions=1) for name in names)
    topics = [*kept, *gone]
    for topic in topics:
        publish(stack.bootstrap, records(topic, 2))
    with Reader(stack.bootstrap, f"{prefix}group", topics, session_timeout_ms=SESSION_MS) as reader:
        until(reader, lambda found: len(found) >= 4)
        assert reader.commit({(topic, 0): 1 for topic in topics})
        client = AdminClient({"bootstrap.servers": stack.bootstrap})
        client.delete_topics(gone)[gone[0]].result(WAIT_S)
        assert not reader.commit({(topic, 0): 2 for topic in topics})
        assert reader.commit({(kept[0], 0): 2}), "and alone it is"


def test_a_member_reads_from_the_positions_it_is_given(
    stack: Servers, make_topics: MakeTopics, prefix: str
) -> None:
    (topic,) = make_topics("placed", partitions=1)
    publish(stack.bootstrap, records(topic, 10))
    reader = Reader(
        stack.bootstrap,
        f"{prefix}group",
        [topic],
        session_timeout_ms=SESSION_MS,
        positions=lambda _places: {(topic, 0): 7},
    )
    with reader:
        assert [m.offset for m in until(reader, lambda found: len(found) >= 3)] == [7, 8, 9]


def test_the_end_of_a_transaction_counts_in_the_end_and_an_open_one_is_not_read(
    stack: Servers, make_topics: MakeTopics, prefix: str
) -> None:
    (topic,) = make_topics("exact", partitions=1)
    writer = Producer(
        {"bootstrap.servers": stack.bootstrap, "transactional.id": f"{prefix}tx", "log_level": 0}
    )
    writer.init_transactions(WAIT_S)
    writer.begin_transaction()
    writer.produce(topic, b"kept", b"int-0001")
    writer.commit_transaction(WAIT_S)
    writer.begin_transaction()
    writer.produce(topic, b"dropped", b"int-0001")
    writer.flush(WAIT_S)
    assert Ends(stack.bootstrap).of([topic]) == {(topic, 0): 3}, "record, marker, open record"
    with pytest.raises(KafkaAway, match="not readable to the end"):
        list(read_all(stack.bootstrap, topic, timeout_s=1.0))
    writer.abort_transaction(WAIT_S)
    with Reader(stack.bootstrap, f"{prefix}group", [topic], session_timeout_ms=SESSION_MS) as reader:
        ends: dict[tuple[str, int], int] = {}

        def at_the_end(_found: list[Message]) -> bool:
            ends.update(reader.take_ends())
            return ends.get((topic, 0)) == 4

        assert [m.value for m in until(reader, at_the_end)] == [b"kept"]
    assert [m.value for m in read_all(stack.bootstrap, topic)] == [b"kept"]


def test_reading_all_ends_while_somebody_goes_on_writing(stack: Servers, make_topics: MakeTopics) -> None:
    (topic,) = make_topics("busy")
    publish(stack.bootstrap, records(topic, 500))
    stop = threading.Event()

    def write() -> None:
        publisher, number = Publisher(stack.bootstrap, client_id="busy"), 500
        while not stop.is_set():
            publisher.publish(records(topic, 20, first=number))
            number += 20

    thread = threading.Thread(target=write)
    thread.start()
    try:
        before = sum(Ends(stack.bootstrap).of([topic]).values())
        found = {m.value for m in read_all(stack.bootstrap, topic)}
        after = sum(Ends(stack.bootstrap).of([topic]).values())
    finally:
        stop.set()
        thread.join(WAIT_S)
    assert before <= len(found) <= after
    assert {str(n).encode() for n in range(500)} <= found


def test_topics_are_created_once_and_verified(stack: Servers, prefix: str) -> None:
    layout = admin.Layout(TopicNames(prefix), 4, 1, 1)
    assert "does not exist" in admin.verify(stack.bootstrap, layout)[0]
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(admin.create, stack.bootstrap, layout) for _ in range(2)]
    assert {name for one in made for name in one.result()} == set(layout.wanted()), "two at once"
    assert admin.create(stack.bootstrap, layout) == []
    assert admin.verify(stack.bootstrap, layout) == []


def test_a_topic_that_grew_or_was_reconfigured_is_named(stack: Servers, prefix: str) -> None:
    layout = admin.Layout(TopicNames(prefix), 4, 1, 1)
    admin.create(stack.bootstrap, layout)
    client = AdminClient({"bootstrap.servers": stack.bootstrap, "log_level": 0})
    grown, changed = f"{prefix}intents", f"{prefix}ticks"
    client.create_partitions([NewPartitions(grown, 6)])[grown].result(WAIT_S)
    entry = ConfigEntry("message.timestamp.type", "CreateTime", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, changed, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(WAIT_S)
    wanted = [
        f"{grown}: 6 partitions, 4 wanted (they never change)",
        f"{changed}: message.timestamp.type is CreateTime, LogAppendTime wanted",
    ]
    end = time.monotonic() + WAIT_S
    while (found := admin.verify(stack.bootstrap, layout)) != wanted:
        assert time.monotonic() < end, f"the broker learns of both within moments: {found}"
    wider = admin.Layout(TopicNames(prefix), 4, 3, 1)
    assert any("fewer than 3 replicas" in line for line in admin.verify(stack.bootstrap, wider))


def test_a_layout_the_cluster_cannot_have_is_refused_by_name(stack: Servers, prefix: str) -> None:
    with pytest.raises(PreflightFailed, match=f"{prefix}intents: not created"):
        admin.create(stack.bootstrap, admin.Layout(TopicNames(prefix), 4, 3, 2))


def test_the_local_broker_is_warned_about_for_being_alone_only(
    stack: Servers,
) -> None:
    (line,) = admin.warnings(stack.bootstrap)
    assert "not for production" in line


def test_a_broker_that_is_away_is_said_to_be_away(prefix: str) -> None:
    with pytest.raises(KafkaAway):
        admin.verify("127.0.0.1:1", admin.Layout(TopicNames(prefix), 4, 1, 1))
