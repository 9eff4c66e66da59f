"""Does a publisher shared by threads wait for each one's own records, and for nobody else's."""

from __future__ import annotations

import threading

import pytest

from sinks.kafka.producer import OutgoingRecord, Publisher, PublishFailed
from tests.conftest import Servers
from tests.integration.conftest import MakeTopics

NEVER_S = 8.0  # how long a record for a topic that does not exist is held


def test_a_neighbour_whose_record_is_not_taken_neither_delays_nor_fails_the_others(
    stack: Servers, prefix: str, make_topics: MakeTopics
) -> None:
    (topic,) = make_topics("taken")
    publisher = Publisher(stack.bootstrap, client_id="test", timeout_s=NEVER_S)
    publisher.publish([OutgoingRecord(topic, b"k", b"first")])
    failed = threading.Event()

    def publish_nowhere() -> None:
        with pytest.raises(PublishFailed, match="1 of 1 records not taken"):
            publisher.publish([OutgoingRecord(f"{prefix}missing", b"k", b"v")])
        failed.set()

    neighbour = threading.Thread(target=publish_nowhere)
    neighbour.start()
    for number in range(20):
        publisher.publish([OutgoingRecord(topic, b"k", str(number).encode())])
    assert not failed.is_set(), "the others were done while the neighbour still waited"
    neighbour.join(4 * NEVER_S)
    assert failed.is_set()
