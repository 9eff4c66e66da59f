"""Does a Kafka client that can never work again end the process, instead of being tried for ever."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from sinks.kafka.consumer import KafkaAway, KafkaClientFailed, Reader
from sinks.kafka.producer import OutgoingRecord, Publisher, PublishFailed
from tests.fatal import plant

NOWHERE = "127.0.0.1:1"
RECORD = [OutgoingRecord("t", b"k", b"v")]


def spent(publisher: Publisher) -> KafkaClientFailed:
    with pytest.raises(KafkaClientFailed, match="failed for good") as caught:
        publisher.publish(RECORD)
    return caught.value


def test_a_producer_that_failed_for_good_says_so_and_is_never_tried_again() -> None:
    publisher = Publisher(NOWHERE, client_id="test", timeout_s=0.2)
    plant(publisher._producer)
    said = spent(publisher)
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in str(said)
    assert isinstance(said, KafkaAway), "the command line ends with «a system we need is away»"
    assert not isinstance(said, PublishFailed), "nobody may try again"
    assert "Start the process again" in said.remedy
    assert str(spent(publisher)) == str(said)


def test_a_producer_that_fails_while_records_wait_says_so_too() -> None:
    publisher = Publisher(NOWHERE, client_id="test", timeout_s=0.2)
    with pytest.raises(PublishFailed):
        publisher.publish(RECORD)
    plant(publisher._producer)
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in str(spent(publisher))


def test_a_cluster_that_is_merely_away_may_be_tried_again() -> None:
    publisher = Publisher(NOWHERE, client_id="test", timeout_s=0.2)
    for _ in range(2):
        with pytest.raises(PublishFailed, match="1 of 1 records not taken"):
            publisher.publish(RECORD)


def test_every_thread_that_publishes_hears_of_it() -> None:
    publisher = Publisher(NOWHERE, client_id="test", timeout_s=5.0)
    heard: list[type[BaseException]] = []

    def publish() -> None:
        try:
            publisher.publish(RECORD)
        except Exception as exc:
            heard.append(type(exc))

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for one in threads:
        one.start()
    plant(publisher._producer)
    for one in threads:
        one.join(10.0)
    assert len(heard) == 4
    assert KafkaClientFailed in heard
    spent(publisher)


class Spent:
    """A consumer after its fatal error: raised once, then answered as a bare code."""

    def __init__(self) -> None:
        self.polls = 0

    def poll(self, _timeout_s: float) -> object:
        self.polls += 1
        if self.polls == 1:
            raise KafkaException(KafkaError(KafkaError.FENCED_INSTANCE_ID, "planted", True))
        return self

    def consume(self, _count: int, _timeout_s: float) -> list[object]:
        return []

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._FATAL)


def test_a_reader_that_failed_for_good_says_so_every_time() -> None:
    reader = Reader(NOWHERE, "group", ["t"])
    reader.close()
    reader._consumer = Spent()
    with pytest.raises(KafkaClientFailed, match="FENCED_INSTANCE_ID"):
        reader.poll(10, 0.1)
    with pytest.raises(KafkaClientFailed, match="failed for good"):
        reader.poll(10, 0.1)
