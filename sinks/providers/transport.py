"""A transport whose every wait ends at one deadline, however slowly the other side drips.

httpx gives each single read its own timeout, so a header sent byte by byte can hold a caller for ever. A
dispatcher must not be held longer than its lease (SYSTEM.md §6.4). It must not repeat or interpret anything.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillAsking
from ipaddress import ip_address
from typing import Any

import httpcore
import httpx

# Providers close idle connections after 5 s at the earliest (the default of Node and of uvicorn): ours are
# given up before, so that a submission does not meet a connection that is just being closed.
KEEPALIVE_S = 4.0
# getaddrinfo cannot be told to give up: each question has a thread of its own that may outlive its call. A
# resolver that answers nothing holds at most so many, and further calls are «not sent» at once.
RESOLVING_MAX = 16
ADDRESSES_MAX = 4  # of one name, tried one after another within the time of the call


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
        resolve: Resolver | None = None,
    ) -> None:
        super().__init__(verify=verify, trust_env=False, retries=0)
        self._pool.close()
        self._pool = httpcore.ConnectionPool(
            ssl_context=httpx.create_ssl_context(verify=verify, trust_env=False),
            max_connections=connections_max,
            max_keepalive_connections=connections_max,
            keepalive_expiry=KEEPALIVE_S,
            retries=0,
            network_backend=_Backend(_Left(deadline, monotonic), resolve or Resolver()),
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


class Resolver:
    """Addresses of a name, within a bounded wait. `ask` has the shape of `socket.getaddrinfo`."""

    def __init__(self, ask: Callable[..., Any] = socket.getaddrinfo) -> None:
        self._ask, self._free = ask, threading.Semaphore(RESOLVING_MAX)

    def __call__(self, host: str, port: int, timeout_s: float) -> list[str]:
        """At most `ADDRESSES_MAX`, in the resolver's order. Raises `httpcore.ConnectTimeout` when it takes
        longer, or when too many questions are open already; `httpcore.ConnectError` when there is none."""
        if _is_address(host):
            return [host]
        if not self._free.acquire(blocking=False):
            raise httpcore.ConnectTimeout("too many names are being resolved")
        answer: Future[list[str]] = Future()
        threading.Thread(target=self._resolve, args=(host, port, answer), name="resolve", daemon=True).start()
        try:
            return answer.result(timeout_s)
        except StillAsking:
            raise httpcore.ConnectTimeout("the name was not resolved in time") from None
        except (OSError, UnicodeError):
            raise httpcore.ConnectError("the name cannot be resolved") from None

    def _resolve(self, host: str, port: int, answer: Future[list[str]]) -> None:
        try:
            found = self._ask(host, port, type=socket.SOCK_STREAM)
            answer.set_result(list(dict.fromkeys(str(a[4][0]) for a in found))[:ADDRESSES_MAX])
        except BaseException as exc:  # noqa: BLE001  it belongs to whoever waits
            answer.set_exception(exc)
        finally:
            self._free.release()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class _Backend(httpcore.NetworkBackend):
    def __init__(self, left: _Left, resolve: Resolver) -> None:
        self._left, self._resolve, self._inner = left, resolve, httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        failed: Exception = httpcore.ConnectError("the name has no address")
        for address in self._resolve(host, port, self._left(timeout, httpcore.ConnectTimeout)):
            left_s = self._left(timeout, httpcore.ConnectTimeout)
            try:
                stream = self._inner.connect_tcp(address, port, left_s, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as exc:
                failed = exc
            else:
                return _Stream(stream, self._left)
        raise failed


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
