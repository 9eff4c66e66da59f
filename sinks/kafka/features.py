"""Which metadata version a cluster has finalized: the one thing about it that librdkafka does not tell.

One ApiVersions request (KIP-511, KIP-584) on a socket of its own. It must not be needed for anything but
a warning: a listener that wants TLS or SASL answers nothing here, and that is an answer too.
"""

from __future__ import annotations

import socket
import struct

METADATA_VERSION = "metadata.version"
# Feature levels of 4.3-IV0 to 4.4-IV2 (KAFKA-20734); 4.2 ends at 29.
SKIPS_MARKERS = range(30, 34)

_ANSWER_BYTES_MAX = 65_536  # an answer of Kafka 4.2 has 640 bytes
_API_VERSIONS, _VERSION = 18, 3
_FINALIZED = 2  # tag of FinalizedFeatures


def metadata_level(bootstrap: str, *, timeout_s: float) -> int | None:
    """The finalized level of `metadata.version`; None when no server of `bootstrap` tells in time."""
    for server in bootstrap.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout_s) as connection:
                connection.sendall(_request())
                return finalized(_answer(connection)).get(METADATA_VERSION)
        except (OSError, ValueError, struct.error):
            continue
    return None


def finalized(answer: bytes) -> dict[str, int]:
    """Feature → finalized level, from an ApiVersions v3 answer. Raises `ValueError` when it is none."""
    reader = _Fields(answer)
    if reader.number("i") != 1:
        raise ValueError("an answer to another request")
    if reader.number("h"):
        raise ValueError("the broker refused the request")
    for _ in range(reader.varint() - 1):
        reader.take(6)
        reader.skip_tags()
    reader.take(4)
    for _ in range(reader.varint()):
        tag, size = reader.varint(), reader.varint()
        if tag == _FINALIZED:
            return _features(_Fields(reader.take(size)))
        reader.take(size)
    return {}


def _features(reader: _Fields) -> dict[str, int]:
    found: dict[str, int] = {}
    for _ in range(reader.varint() - 1):
        name = reader.take(reader.varint() - 1).decode()
        found[name] = reader.number("h")
        reader.take(2)
        reader.skip_tags()
    return found


def _request() -> bytes:
    name = b"backstop"
    compact = bytes([len(name) + 1]) + name
    head = struct.pack(">hhih", _API_VERSIONS, _VERSION, 1, len(name)) + name + b"\0"
    body = head + compact + compact + b"\0"
    return struct.pack(">i", len(body)) + body


def _answer(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    if not 0 < size <= _ANSWER_BYTES_MAX:
        raise ValueError("not an answer of Kafka")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            raise ValueError("the connection ended")
        found += part
    return found


class _Fields:
    """Reads the fields of a flexible-version answer in order."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self._at + count > len(self._data):
            raise ValueError("a field ends after the answer")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, kind: str) -> int:
        return int(struct.unpack(">" + kind, self.take(struct.calcsize(kind)))[0])

    def varint(self) -> int:
        found = shift = 0
        while True:
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())
