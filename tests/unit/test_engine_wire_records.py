"""No header stops a partition: a record whose headers cannot be read arrives without them."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.record.memory_records import MemoryRecords

from streams.engine import transport
from streams.engine.wire_records import WireRecords

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)  # Kafka's codes


class AnyBytes(str):
    """A header name that goes onto the wire as bytes no text has."""

    def encode(self, *_how: Any) -> bytes:
        return b"\xff\xfe"


def batch(base: int, *headers: list[tuple[str, bytes | None]], codec: int = NONE) -> bytes:
    """Records `v0`, `v1`, … with these headers, as a producer writes them and a broker numbers them."""
    made = _DefaultRecordBatchBuilderPy(2, codec, False, -1, -1, -1, 10_000)
    for number, found in enumerate(headers):
        made.append(
            number, timestamp=1_000 + number, key=b"k%d" % number, value=b"v%d" % number, headers=found
        )
    return base.to_bytes(8, "big") + bytes(made.build())[8:]


def read(records: Any) -> list[tuple[int, int, bytes, bytes, list[tuple[str, bytes | None]]]]:
    """As the fetcher reads: what is below the offset it wants is skipped."""
    found, wanted = [], 0
    while records.has_next():
        one = records.next_batch()
        assert one.validate_crc()
        for record in one:
            if record.offset >= wanted:
                found.append(
                    (record.offset, record.timestamp, record.key, record.value, list(record.headers))
                )
                wanted = record.offset + 1
        wanted = one.next_offset
    return found


FINE: list[tuple[str, bytes | None]] = [("traceparent", b"00"), ("empty", None)]
BAD: list[tuple[str, bytes | None]] = [(AnyBytes("x"), b"1")]


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_header_name_that_is_not_text_costs_its_record_the_headers_and_nothing_else(codec: int) -> None:
    data = batch(0, FINE, FINE) + batch(2, FINE, BAD, FINE, codec=codec) + batch(5, BAD) + batch(6, FINE)
    with pytest.raises(UnicodeDecodeError):
        read(MemoryRecords(data))
    found = read(WireRecords(data))
    assert [f[0] for f in found] == [0, 1, 2, 3, 4, 5, 6]
    assert found[3] == (3, 1_001, b"k1", b"v1", [])
    assert [f[4] for f in found] == [FINE, FINE, FINE, [], FINE, [], FINE]


def test_what_the_library_can_read_is_read_by_the_library() -> None:
    data = batch(0, FINE, [], FINE) + batch(3, FINE, codec=ZSTD)
    assert read(WireRecords(data)) == read(MemoryRecords(data))
    assert WireRecords(data).size_in_bytes() == len(data)


def test_a_record_whose_own_length_lies_stops_the_reading() -> None:
    data = bytearray(batch(0, BAD))
    data[61] = 120  # the first byte after the batch's head: the length of the record, 60 as a varint
    with pytest.raises(CorruptRecordException):
        list(WireRecords(bytes(data)).next_batch())


def test_the_engine_reads_so() -> None:
    transport.register()
    assert fetcher.MemoryRecords is WireRecords
