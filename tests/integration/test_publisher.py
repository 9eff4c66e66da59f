"""Does an intent published by a service reach the partition and the form every reader expects."""

from __future__ import annotations

from datetime import timedelta

import pytest

from schemas.codec import decode
from schemas.errors import RecordRefused
from schemas.fingerprints import FingerprintKeys
from schemas.intent import IntentRequested
from schemas.partitions import partition_for
from schemas.policy import released
from schemas.record import TopicKind
from schemas.sealed import SealingKey
from schemas.topics import TopicNames
from sinks.kafka import admin
from sinks.kafka.consumer import read_all
from sinks.kafka.producer import Publisher, PublishFailed
from sinks.publisher import IntentPublisher
from tests.conftest import Servers
from tests.unit.test_publisher_intents import AT, CANARIES, PUBLIC, new


def service(bootstrap: str, names: TopicNames) -> IntentPublisher:
    return IntentPublisher(
        names,
        publisher=Publisher(bootstrap, client_id="service", timeout_s=5.0),
        sealing=SealingKey(PUBLIC),
        fingerprints=FingerprintKeys("k1", {"k1": b"f" * 32}),
        policies=released(),
    )


def test_a_service_publishes_and_every_reader_finds_it(stack: Servers, prefix: str) -> None:
    names = TopicNames(prefix)
    admin.create(stack.bootstrap, admin.Layout(names, 4, 1, 1))
    one = service(stack.bootstrap, names)
    for number in range(20):
        one.publish(new(intent_id=f"int-{number:04d}-test"))
        if number % 2:
            one.complete(f"int-{number:04d}-test", at=AT + timedelta(minutes=1), source="form")
    with pytest.raises(RecordRefused):
        one.publish(new(intent_id="INT-0001"))
    found = list(read_all(stack.bootstrap, names[TopicKind.INTENTS]))
    assert len(found) == 30
    for message in found:
        assert message.partition == partition_for(message.key or b"", 4)
        assert not any(canary.encode() in (message.value or b"") for canary in CANARIES)
        assert dict(message.headers)["ce_source"] == b"backstop/publisher"
    records = [decode(TopicKind.INTENTS, m.key, m.value) for m in found]
    assert sum(isinstance(r, IntentRequested) for r in records) == 20


def test_a_cluster_that_does_not_take_it_is_said_and_not_swallowed(stack: Servers, prefix: str) -> None:
    """The topic does not exist and nobody makes it up."""
    with pytest.raises(PublishFailed, match="1 of 1 records not taken") as caught:
        service(stack.bootstrap, TopicNames(prefix)).publish(new())
    assert not any(canary in str(caught.value) for canary in CANARIES)
