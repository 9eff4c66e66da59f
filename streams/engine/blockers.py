"""Which transaction does a partition wait for? Asked of the brokers, for people to read.

librdkafka's admin client cannot ask, so three small requests are written by hand (Kafka protocol:
DescribeProducers 61, ListTransactions 66, both version 0 with request header 2). It must only read:
never end a transaction here, and never fail the caller (an answer that is not understood is said so).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer

TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024  # 10 000 producers of 50 bytes are 0.5 MB
CLIENT_ID = b"backstop"
OFFSETS_TOPIC = "__consumer_offsets"
_INT_MIN = 1 << 31
_DESCRIBE_PRODUCERS, _LIST_TRANSACTIONS = 61, 66


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition."""

    producer_id: int
    epoch: int
    start_offset: int
    transactional_id: str = ""  # empty when no coordinator knows it: hung for good, see KAFKA-20734
    state: str = ""


def describe(bootstrap: str, partitions: list[tuple[str, int]]) -> str:
    """One sentence per partition: what it waits for."""
    try:
        return "; ".join(_sentence(tp, found) for tp, found in find(bootstrap, partitions).items())
    except Exception as exc:  # noqa: BLE001  a diagnosis must not become the failure
        names = ", ".join(f"{t}/{p}" for t, p in partitions)
        return f"{names}: the broker could not be asked which transaction is open ({type(exc).__name__})"


def describe_offsets(bootstrap: str, group_id: str) -> str:
    """What the committed offsets of a group wait for: they live in one partition of an internal topic."""
    try:
        count = len(_cluster(bootstrap).topics[OFFSETS_TOPIC].partitions)
    except Exception as exc:  # noqa: BLE001  a diagnosis must not become the failure
        return f"committed offsets of {group_id}: the broker could not be asked ({type(exc).__name__})"
    number = java_hash(group_id) % count
    return f"committed offsets of {group_id}: " + describe(bootstrap, [(OFFSETS_TOPIC, number)])


def java_hash(text: str) -> int:
    """|String.hashCode|, the smallest int as 0: how the broker places groups (Utils.abs)."""
    units, value = text.encode("utf-16-le"), 0
    for unit in struct.unpack(f"<{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    if value == _INT_MIN:
        return 0
    return value if value < _INT_MIN else 2 * _INT_MIN - value


def find(bootstrap: str, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], list[OpenTransaction]]:
    """Open transactions per partition, asked on plaintext listeners.

    Raises OSError, ValueError, KafkaException.
    """
    cluster = _cluster(bootstrap)
    addresses = {node.id: (node.host, node.port) for node in cluster.brokers.values()}
    found = {tp: _open_in(addresses, cluster, tp) for tp in partitions}
    if not any(found.values()):
        return found
    names = {p: (name, state) for a in addresses.values() for name, p, state in _transactions(a)}
    return {
        tp: [OpenTransaction(o.producer_id, o.epoch, o.start_offset, *names.get(o.producer_id, ("", "")))
             for o in opened]
        for tp, opened in found.items()
    }  # fmt: skip


def _cluster(bootstrap: str) -> Any:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "backstop-blockers", "log_level": 0})
    try:
        return consumer.list_topics(timeout=TIMEOUT_S)
    finally:
        consumer.close()


def _sentence(tp: tuple[str, int], opened: list[OpenTransaction]) -> str:
    where = f"{tp[0]}/{tp[1]}"
    if not opened:
        return f"{where} has no open transaction"
    return f"{where} waits for " + ", ".join(
        f"transaction {o.transactional_id or '(unknown to every coordinator)'}"
        f" [{o.state or 'no state'}, producer {o.producer_id} epoch {o.epoch}, open from {o.start_offset}]"
        for o in opened
    )


def _open_in(addresses: dict[int, Any], cluster: Any, tp: tuple[str, int]) -> list[OpenTransaction]:
    topic, number = tp
    leader = cluster.topics[topic].partitions[number].leader
    body = _array(1) + _text(topic) + _array(1) + struct.pack(">i", number) + b"\0" + b"\0" + b"\0"
    answer = _ask(addresses[leader], _DESCRIBE_PRODUCERS, body)
    answer.int32()  # throttle
    opened = []
    for _topic in answer.items():
        answer.text()
        for _partition in answer.items():
            answer.int32()
            code = answer.int16()
            answer.text()
            if code:
                raise ValueError(f"DescribeProducers answered with error {code}")
            for _producer in answer.items():
                producer_id, epoch = answer.int64(), answer.int32()
                answer.int32()  # last sequence
                answer.int64()  # last timestamp
                answer.int32()  # coordinator epoch
                start = answer.int64()
                answer.tags()
                if start >= 0:
                    opened.append(OpenTransaction(producer_id, epoch, start))
            answer.tags()
        answer.tags()
    return opened


def _transactions(address: tuple[str, int]) -> Iterator[tuple[str, int, str]]:
    """(transactional id, producer id, state) of every transaction one broker coordinates."""
    answer = _ask(address, _LIST_TRANSACTIONS, _array(0) + _array(0) + b"\0")
    answer.int32()  # throttle
    code = answer.int16()
    if code:
        raise ValueError(f"ListTransactions answered with error {code}")
    for _state in answer.items():
        answer.text()  # states the broker does not know
    for _transaction in answer.items():
        name, producer_id, state = answer.text(), answer.int64(), answer.text()
        answer.tags()
        yield name, producer_id, state


def _ask(address: tuple[str, int], key: int, body: bytes) -> _Answer:
    """One request, one answer, one connection."""
    header = struct.pack(">hhih", key, 0, 1, len(CLIENT_ID)) + CLIENT_ID + b"\0"
    with socket.create_connection(address, TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", _read(connection, 4))
        if not 0 < size <= ANSWER_BYTES_MAX:
            raise ValueError("the answer has an impossible size")
        answer = _Answer(_read(connection, size))
    answer.int32()  # correlation id
    answer.tags()
    return answer


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return bytes(data)


def _array(count: int) -> bytes:
    return bytes([count + 1])  # compact arrays: length + 1 as a varint; ours have at most one item


def _text(text: str) -> bytes:
    data = text.encode()
    size, out = len(data) + 1, bytearray()
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out) + data


class _Answer:
    """A cursor over the flexible encoding (KIP-482)."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return int(value)

    def int16(self) -> int:
        return self._take(">h")

    def int32(self) -> int:
        return self._take(">i")

    def int64(self) -> int:
        return self._take(">q")

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def text(self) -> str:
        size = self.varint() - 1
        if size < 0:
            return ""
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def items(self) -> range:
        return range(self.varint() - 1)

    def tags(self) -> None:
        for _tag in range(self.varint()):
            self.varint()
            self._at += self.varint()
