"""All libraries in use put a key into the same partition, and the default of one of them does not."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as theirs
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


@pytest.mark.parametrize(("key", "partition"), VECTORS)
def test_a_key_sits_where_java_puts_it(key: bytes, partition: int) -> None:
    assert partition_for(key, 6) == partition


@given(st.binary(min_size=1, max_size=64))
def test_our_murmur2_is_that_of_aiokafka(key: bytes) -> None:
    assert murmur2(key) == theirs(key) & 0xFFFFFFFF


def test_an_empty_key_belongs_nowhere() -> None:
    with pytest.raises(ValueError, match="empty key"):
        partition_for(b"", 6)
