"""A transport whose every wait ends at one deadline, however slowly the other side drips.

httpx gives each single read its own timeout, so a header sent byte by byte can hold a caller for ever. A
dispatcher must not be held longer than its lease (SYSTEM.md §6.4). It must not repeat or interpret anything.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterable
from typing import Any

import httpcore
import httpx

# Providers close idle connections after 5 s at the earliest (the default of Node and of uvicorn): ours are
# given up before, so that a submission does not meet a connection that is just being closed.
KEEPALIVE_S = 4.0


class Deadline(threading.local):
    """The instant, on the monotonic clock, at which the call of this thread ends. Infinite outside calls."""

    at_s: float = float("inf")


class BoundedTransport(httpx.HTTPTransport):
    """`httpx.HTTPTransport` without retries, proxies or waits past `deadline`. HTTP/1.1 only."""

    def __init__(
        self,
        deadline: Deadline,
        monotonic: Callable[[], float],
        *,
        connections_max: int,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        super().__init__(verify=verify, trust_env=False, retries=0)
        self._pool.close()
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context(verify=verify, trust_env=False),
            max_connections=connections_max,
            max_keepalive_connections=connections_max,
            keepalive_expiry=KEEPALIVE_S,
            retries=0,
            network_backend=_Backend(_Left(deadline, monotonic)),
        )


class _Left:
    """What is left of the call, never more than the step's own timeout."""

    def __init__(self, deadline: Deadline, monotonic: Callable[[], float]) -> None:
        self._deadline, self._monotonic = deadline, monotonic

    def __call__(self, own_s: float | None, too_late: type[Exception]) -> float:
        left_s = self._deadline.at_s - self._monotonic()
        if left_s <= 0:
            raise too_late("the call's time is over")
        return left_s if own_s is None else min(left_s, own_s)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, left: _Left) -> None:
        self._left, self._inner = left, httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left_s = self._left(timeout, httpcore.ConnectTimeout)
        stream = self._inner.connect_tcp(host, port, left_s, local_address, socket_options)
        # Resolving a name has no timeout of its own; past the deadline nothing may be written any more.
        try:
            self._left(None, httpcore.ConnectTimeout)
        except httpcore.ConnectTimeout:
            stream.close()
            raise
        return _Stream(stream, self._left)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, left: _Left) -> None:
        self._inner, self._left = inner, left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left_s = self._left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left_s), self._left)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
