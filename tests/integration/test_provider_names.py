"""Is a call over in its time when the name of the provider is not resolved, or resolves to dead machines."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from compose.clock import SystemClock
from sinks.providers.http import Failure, Http, Reply, Sent
from sinks.providers.transport import ADDRESSES_MAX, RESOLVING_MAX, Resolver

CALL_MS = 300
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


@pytest.fixture
def port() -> Iterator[int]:
    """A provider on 127.0.0.1 and nowhere else; it answers one call."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                connection, _ = server.accept()
            except OSError:  # nobody called
                return
            with connection:
                connection.recv(65_536)
                connection.sendall(ANSWER)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def call(resolve: Resolver, port: int, timeout_ms: int = CALL_MS) -> tuple[Reply | Failure, float]:
    """The answer, and how many seconds it took."""
    clock = SystemClock()
    http = Http(f"http://provider:{port}", monotonic=clock.monotonic, resolve=resolve)
    began_s = clock.monotonic()
    return http.call("GET", "/", timeout_ms=timeout_ms), clock.monotonic() - began_s


def found(*addresses: str) -> Resolver:
    return Resolver(lambda _host, port, **_: [(None, None, None, "", (a, port)) for a in addresses])


def test_a_resolver_that_never_answers_holds_a_call_for_no_longer_than_its_time() -> None:
    never = threading.Event()
    silent = Resolver(lambda *_given, **_named: never.wait(60.0))
    answer, took_s = call(silent, 80)
    never.set()
    assert answer == Failure(Sent.NO, "ConnectTimeout")
    assert took_s < 10 * CALL_MS / 1000


def test_questions_without_an_answer_do_not_pile_up() -> None:
    never, asked = threading.Event(), list[str]()

    def ask(host: str, *_given: Any, **_named: Any) -> list[Any]:
        asked.append(host)
        never.wait(60.0)
        return []

    silent = Resolver(ask)
    for _ in range(RESOLVING_MAX + 3):
        assert call(silent, 80, timeout_ms=20)[0] == Failure(Sent.NO, "ConnectTimeout")
    assert len(asked) == RESOLVING_MAX
    never.set()


def test_a_name_nobody_knows_was_not_sent_to() -> None:
    def unknown(*_given: Any, **_named: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "canary.example.com")

    for resolver in (Resolver(unknown), found()):
        assert call(resolver, 80)[0] == Failure(Sent.NO, "ConnectError")


def test_the_next_address_is_tried_when_one_refuses(port: int) -> None:
    answer, _ = call(found("127.0.0.3", "127.0.0.2", "127.0.0.1"), port, timeout_ms=10_000)
    assert isinstance(answer, Reply)
    assert answer.status == 200


def test_no_more_addresses_are_tried_than_the_limit(port: int) -> None:
    many = [f"127.0.0.{n}" for n in range(2, 2 + ADDRESSES_MAX)]
    answer, _ = call(found(*many, "127.0.0.1"), port, timeout_ms=10_000)
    assert answer == Failure(Sent.NO, "ConnectError")
