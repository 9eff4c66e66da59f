"""All libraries in use put a key into the same partition, and the default of one of them does not (F01)."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.partitioner import murmur2 as theirs
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from schemas.partitions import murmur2, partition_for

# VECTORS.md, six partitions.
VECTORS = [
    (b"int-0001", 2),
    (b"int-0002", 4),
    (b"int-0003", 5),
    (b"7f0c1b52-3d0e-4a77-9c0b-0f4f6f8b2a11", 0),
    (b"7F0C1B52-3D0E-4A77-9C0B-0F4F6F8B2A11", 2),
    (b'"int-0001"', 2),
    (b'"7f0c1b52-3d0e-4a77-9c0b-0f4f6f8b2a11"', 0),
]
KEYS = [f"int-{n:04d}".encode() for n in range(200)] + [bytes([n]) * (n % 9 + 1) for n in range(256)]
MOCK_PARTITIONS = 4  # of a topic made up by the broker inside librdkafka


def placed(keys: list[bytes], **settings: Any) -> dict[bytes, int]:
    """Where librdkafka puts these keys, by the word of its delivery reports. Nothing leaves the process."""
    found: dict[bytes, int] = {}

    def told(error: object, message: Any) -> None:
        assert error is None
        found[message.key()] = message.partition()

    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0, **settings})
    for key in keys:
        producer.produce("keys", b"x", key, on_delivery=told)
    assert producer.flush(20) == 0
    return found


@pytest.mark.parametrize(("key", "partition"), VECTORS)
def test_a_key_sits_where_java_puts_it(key: bytes, partition: int) -> None:
    assert partition_for(key, 6) == partition


@given(st.binary(min_size=1, max_size=64))
def test_our_murmur2_is_that_of_aiokafka(key: bytes) -> None:
    assert murmur2(key) == theirs(key) & 0xFFFFFFFF


def test_our_murmur2_is_that_of_librdkafka_when_it_is_told_so() -> None:
    expected = {key: partition_for(key, MOCK_PARTITIONS) for key in KEYS}
    assert placed(KEYS, partitioner="murmur2_random") == expected


def test_the_default_of_librdkafka_puts_most_keys_elsewhere() -> None:
    expected = {key: partition_for(key, MOCK_PARTITIONS) for key in KEYS}
    elsewhere = sum(partition != expected[key] for key, partition in placed(KEYS).items())
    assert elsewhere > len(KEYS) / 2, "three of four keys, were it random"


def test_an_empty_key_belongs_nowhere() -> None:
    with pytest.raises(ValueError, match="empty key"):
        partition_for(b"", 6)
