"""A server that says exactly these bytes and then hangs, closes or resets: what no framework would do.

It must not hold an expectation.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

Behaviour = Callable[[socket.socket, threading.Event], None]
READ_S = 5.0
REQUEST_BYTES = 65_536


def read_request(peer: socket.socket) -> None:
    """Read until the head is complete and its body as announced."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += peer.recv(REQUEST_BYTES)
    head, _, body = found.partition(b"\r\n\r\n")
    length = next(
        (
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ),
        0,
    )
    while len(body) < length:
        body += peer.recv(REQUEST_BYTES)


def says(answer: bytes) -> Behaviour:
    """Read the request, write `answer`, close in order."""

    def act(peer: socket.socket, _over: threading.Event) -> None:
        read_request(peer)
        peer.sendall(answer)

    return act


def silence(peer: socket.socket, over: threading.Event) -> None:
    read_request(peer)
    over.wait(READ_S)


def reset(peer: socket.socket, _over: threading.Event) -> None:
    """Begin an answer, then send RST."""
    read_request(peer)
    peer.sendall(b'HTTP/1.1 202 Accepted\r\nContent-Length: 40\r\n\r\n{"id": "')
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def drip(start: bytes, every_s: float = 0.02) -> Behaviour:
    """After `start`, one byte at a time for ever: no single read ever times out."""

    def act(peer: socket.socket, over: threading.Event) -> None:
        read_request(peer)
        peer.sendall(start)
        while not over.wait(every_s):
            peer.sendall(b"x")

    return act


class RawServer:
    """`with RawServer(behaviour) as url:`; one thread per connection; `connections` were made."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour, self._over = behaviour, threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with peer:
            peer.settimeout(READ_S)
            try:
                self._behaviour(peer, self._over)
            except OSError:
                return
