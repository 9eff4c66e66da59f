"""Batches as aiokafka reads them, except that no header can stop a partition.

A header's name may be any bytes for librdkafka and the broker; aiokafka wants UTF-8 and raises out of the
fetch, so one such record would end every worker that meets it, for ever. Here the batch is read once more
and a record whose headers cannot be read arrives without them: nothing is decided by a header, and the
record still gets its fate. It must not repair a record whose own length lies: nobody knows where the next
one begins.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchPy, _DefaultRecordPy
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import decode_varint

_LENGTH = struct.Struct(">i")
_LENGTH_AT, _OVERHEAD = 8, 12  # a batch: base offset (8 bytes), its length (4), the rest
_UNREADABLE = (UnicodeDecodeError, CorruptRecordException, IndexError)


class WireRecords:
    """What one fetch gave for one partition: stands in for aiokafka's `MemoryRecords`."""

    __slots__ = ("_data", "_stock", "_taken")

    def __init__(self, data: bytes) -> None:
        self._data, self._stock, self._taken = data, MemoryRecords(data), 0

    def size_in_bytes(self) -> int:
        return int(self._stock.size_in_bytes())

    def has_next(self) -> bool:
        return bool(self._stock.has_next())

    def next_batch(self) -> Any:
        """The next batch. Raises `CorruptRecordException` as the stock one does."""
        batch = self._stock.next_batch()
        self._taken += 1
        return _Batch(batch, self._data, self._taken - 1) if isinstance(batch, DefaultRecordBatch) else batch


class _Batch:
    """The stock batch; only its records are read with more patience."""

    __slots__ = ("_data", "_number", "_stock")

    def __init__(self, stock: Any, data: bytes, number: int) -> None:
        self._stock, self._data, self._number = stock, data, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stock, name)

    def __next__(self) -> Any:
        return next(self._stock)

    def __iter__(self) -> Iterator[Any]:
        """From the beginning again when a record cannot be read: the fetcher skips what it has."""
        try:
            yield from self._stock
        except _UNREADABLE:
            yield from _PatientBatch(_nth(self._data, self._number))


def _nth(data: bytes, number: int) -> bytes:
    """The bytes of a batch, by its place in the fetch."""
    at = 0
    for _ in range(number):
        at += _OVERHEAD + _LENGTH.unpack_from(data, at + _LENGTH_AT)[0]
    return bytes(data[at : at + _OVERHEAD + _LENGTH.unpack_from(data, at + _LENGTH_AT)[0]])


class _PatientBatch(_DefaultRecordBatchPy):
    def _read_msg(self, decode_varint: Any = decode_varint) -> Any:
        at = self._pos
        try:
            return super()._read_msg(decode_varint)
        except _UNREADABLE:
            return self._without_headers(at)

    def _without_headers(self, at: int) -> Any:
        """One record of the format v2 up to its value; the length at its front says where the next begins."""
        length, start = decode_varint(self._buffer, at)
        _, pos = decode_varint(self._buffer, start)  # attributes
        ts_delta, pos = decode_varint(self._buffer, pos)
        offset_delta, pos = decode_varint(self._buffer, pos)
        key, pos = self._bytes(pos)
        value, pos = self._bytes(pos)
        self._pos = start + length
        if not pos <= self._pos <= len(self._buffer):
            raise CorruptRecordException("the length of a record is not its own")
        by_broker = self.timestamp_type == self.LOG_APPEND_TIME
        timestamp = self.max_timestamp if by_broker else self.first_timestamp + ts_delta
        offset = self.base_offset + offset_delta
        return _DefaultRecordPy(offset, timestamp, self.timestamp_type, key, value, [])

    def _bytes(self, at: int) -> tuple[bytes | None, int]:
        length, at = decode_varint(self._buffer, at)
        return (None, at) if length < 0 else (bytes(self._buffer[at : at + length]), at + length)


def use() -> None:
    """Every fetch of this process is read with patience; safe to call again."""
    fetcher.MemoryRecords = WireRecords
