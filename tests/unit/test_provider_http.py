"""Does the client say «not sent» and «unknown» exactly where case F09 wants it, and decode anything."""

from __future__ import annotations

import logging
import re
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.ids import TOKEN_PATTERN
from sinks.providers.credentials import BearerToken
from sinks.providers.http import (
    BODY_BYTES_MAX,
    TAXONOMY,
    Failure,
    Http,
    Reply,
    Sent,
    decode_object,
    path_segment,
    usable_id,
)

NOT_SENT = {
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.LocalProtocolError,
    httpx.UnsupportedProtocol,
    httpx.ProxyError,
}
HTTPX_ERRORS = [
    kind
    for kind in vars(httpx).values()
    if isinstance(kind, type) and issubclass(kind, httpx.RequestError) and not kind.__subclasses__()
]


def answering(handler: Any, base: str = "http://127.0.0.1:1") -> Http:
    return Http(base, monotonic=lambda: 0.0, transport=httpx.MockTransport(handler))


def page(status: int, content: bytes = b"{}", headers: dict[str, str] | None = None) -> httpx.Response:
    """As a transport gives it: not read yet."""
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(content))


def raising(exc: Exception) -> Http:
    def handler(_request: httpx.Request) -> httpx.Response:
        raise exc

    return answering(handler)


@pytest.mark.parametrize("kind", HTTPX_ERRORS)
def test_an_error_means_not_sent_only_when_no_byte_can_have_left(kind: type[httpx.RequestError]) -> None:
    found = raising(kind("https://secret.example/x")).call("POST", "/x", timeout_ms=100)
    assert found == Failure(Sent.NO if kind in NOT_SENT else Sent.UNKNOWN, kind.__name__)


def test_every_leaf_of_the_httpx_error_tree_has_a_line_of_its_own() -> None:
    assert set(HTTPX_ERRORS) <= {kind for kind, _ in TAXONOMY}


def test_an_invalid_address_and_a_header_outside_ascii_were_not_sent() -> None:
    http = answering(lambda _r: page(200))
    assert http.call("GET", "/a\x00b", timeout_ms=100) == Failure(Sent.NO, "InvalidURL")
    found = http.call("POST", "/x", timeout_ms=100, headers={"Idempotency-Key": "int-é"})
    assert found == Failure(Sent.NO, "UnicodeEncodeError")


def test_an_error_of_the_operating_system_in_mid_call_is_unknown() -> None:
    assert raising(OSError(5, "x")).call("GET", "/x", timeout_ms=1) == Failure(Sent.UNKNOWN, "OSError")


def test_a_failure_keeps_no_text_of_the_exception() -> None:
    found = raising(httpx.ReadError("to victim@example.com")).call("GET", "/x", timeout_ms=1)
    assert "victim" not in repr(found)


def test_a_redirect_is_an_answer_and_not_followed() -> None:
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return page(302, headers={"Location": "/elsewhere"})

    found = answering(handler).call("POST", "/x", timeout_ms=100, body=b"{}")
    assert isinstance(found, Reply)
    assert (found.status, asked) == (302, ["/x"])


def test_a_body_over_the_cap_is_no_answer_but_its_status_is() -> None:
    big = b'{"id": "m-1", "x": "' + b"a" * BODY_BYTES_MAX + b'"}'
    found = answering(lambda _r: page(200, big)).call("GET", "/x", timeout_ms=100)
    assert found == Reply(200, None, None)


def test_a_compressed_body_nobody_asked_for_is_no_answer() -> None:
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["accept-encoding"])
        return page(200, headers={"Content-Encoding": "br"})

    assert answering(handler).call("GET", "/x", timeout_ms=100) == Reply(200, None, None)
    assert asked == ["identity"]


BODIES: dict[bytes, Any] = {
    b'{"id": "m-1"}': {"id": "m-1"},
    b'\xef\xbb\xbf{"id": "m-1"}': {"id": "m-1"},
    b'{"s": "\\ud83d"}': {"s": "\ud83d"},
    b'{"id": null}': {"id": None},
    b"{}": {},
    b"[]": None,
    b"null": None,
    b"": None,
    b"7": None,
    b'"text"': None,
    b"<html></html>": None,
    b"\xff\xfe{\x00}\x00": None,
    b'{"f": NaN}': None,
    b'{"n": ' + b"9" * 5000 + b"}": None,
    b"[" * 100_000: None,
    b'{"a":' * 100_000: None,
    b'{"id": "m-1"': None,
    b'{"id": "m-1"}{"id": "m-2"}': None,
    b'{"status": "delivered", "status": "bounced"}': None,
    b'{"m": [{"id": "m-1", "id": "m-2"}]}': None,
    b'{"id": "m-1", "id": "m-1"}': {"id": "m-1"},
}


@pytest.mark.parametrize(("body", "expected"), BODIES.items(), ids=[str(b[:24]) for b in BODIES])
def test_only_a_json_object_is_a_body(body: bytes, expected: Any) -> None:
    assert decode_object(body) == expected


@given(st.binary(max_size=200))
@example(b'{"a": Infinity}')
def test_any_bytes_decode_to_an_object_or_to_nothing(body: bytes) -> None:
    assert decode_object(body) is None or isinstance(decode_object(body), dict)


IDS = {
    "a/b": "a%2Fb",
    "../../admin": "..%2F..%2Fadmin",
    "a?x=1": "a%3Fx%3D1",
    "a#frag": "a%23frag",
    "a%2Fb": "a%252Fb",
    "<x@y.example>": "%3Cx%40y.example%3E",
    "a+b": "a%2Bb",
    "m-1": "m-1",
    "...": "...",
}


@pytest.mark.parametrize(("message_id", "segment"), IDS.items())
def test_an_id_is_encoded_exactly_once_and_stays_one_segment(message_id: str, segment: str) -> None:
    paths: list[bytes] = []

    def handler(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.raw_path)
        return page(200)

    assert path_segment(message_id) == segment
    answering(handler).call("GET", f"/v1/a/messages/{path_segment(message_id)}", timeout_ms=100)
    assert paths == [b"/v1/a/messages/" + segment.encode()]


@pytest.mark.parametrize(
    "value", ["", ".", "..", "a b", "a\n", "a\x00", "é", "x" * 513, None, 7, ["m-1"], "\ud83d", True]
)
def test_what_cannot_be_asked_for_again_is_not_an_id(value: object) -> None:
    assert usable_id(value) is None


def test_a_segment_is_refused_for_what_is_not_an_id() -> None:
    with pytest.raises(ValueError, match="message id"):
        path_segment("..")


@given(st.text(max_size=600))
def test_a_usable_id_fits_our_records(value: str) -> None:
    assert usable_id(value) is None or re.fullmatch(TOKEN_PATTERN, value)


@pytest.mark.parametrize("base", ["https://mail.example", "http://127.0.0.1:80", "http://simulator:8080"])
def test_a_base_address_is_https_or_beside_us(base: str) -> None:
    answering(lambda _r: page(200), base)


@pytest.mark.parametrize(
    "base",
    [
        "http://mail.example",
        "ftp://127.0.0.1",
        "https://u:p@mail.example",
        "https://mail.example/?k=1",
        "http://[2001:db8::1]/",
        "",
    ],
)
def test_any_other_base_address_is_refused(base: str) -> None:
    with pytest.raises(ValueError, match="base address"):
        answering(lambda _r: page(200), base)


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    http = Http("http://127.0.0.1:1", monotonic=lambda: 0.0)
    assert http._client._mounts == {}


def test_nothing_of_a_call_is_logged_even_when_everything_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        http = answering(lambda _r: page(200))
        http.call("GET", "/canary-path", timeout_ms=100, query={"to": "canary"}, headers={"X-A": "canary"})
    assert "canary" not in caplog.text


def test_credentials_and_replies_print_nothing() -> None:
    token = BearerToken("tok-canary")
    assert "canary" not in f"{token!r} {token} {[token]}"
    assert "canary" not in repr(Reply(200, {"id": "canary"}, "canary"))
    assert token.header() == {"Authorization": "Bearer tok-canary"}


@pytest.mark.parametrize("text", ["", "a b", "a\nb", "é"])
def test_a_token_that_cannot_stand_in_a_header_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="bearer"):
        BearerToken(text)
