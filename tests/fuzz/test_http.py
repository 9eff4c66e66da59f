"""Whatever bytes a provider answers with, the adapter says something that the records can hold."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import Channel
from tests.builders import ID, T0
from tests.fuzz import answers, hostile
from tests.fuzz.profile import fuzzed
from tests.fuzz.records import CANARY

_STATUSES = st.sampled_from(
    [100, 101, 200, 202, 204, 206, 301, 304, 400, 401, 403, 404, 408, 409, 422, 425, 429]
)
_CODES = _STATUSES | st.sampled_from([500, 502, 503, 599, 600, 999, 0, 99])
_HEADERS = st.lists(
    st.sampled_from(
        [
            b"Retry-After: 30",
            b"Retry-After: -5",
            b"Retry-After: \xff\xfe",
            b"Retry-After: 30\r\nRetry-After: 60",
            b"Content-Encoding: gzip",
            b"Content-Length: 5",
            b"Content-Length: -1",
            b"Content-Length: 99999999999999999999",
            b"Transfer-Encoding: chunked",
            b"Location: http://127.0.0.1:1/",
            b"Set-Cookie: a=" + b"b" * 5_000,
            b"X: " + b"y" * 200_000,
            b"no colon",
            b": no name",
            b"Content-Type: text/html",
        ]
    ),
    max_size=3,
)
_MESSAGE = {
    "id": "m-1",
    "reference": f"{ID}.{Channel.EMAIL.value}",
    "status": "delivered",
    "reason": None,
    "at_ms": T0,
    "code": "",
}
_LIST = {"messages": [_MESSAGE, _MESSAGE | {"id": "a/b", "status": "bounced"}]}
_BODIES = (
    hostile.changed(_MESSAGE).map(hostile.as_json)
    | hostile.changed(_LIST).map(hostile.as_json)
    | st.builds(
        lambda token, why: json.dumps(_MESSAGE | {"status": token, "reason": why}).encode(),
        hostile.TEXTS,
        hostile.TEXTS,
    )
    | hostile.spoiled(json.dumps(_MESSAGE).encode())
    | hostile.JSON.map(hostile.as_json)
    | hostile.BYTES
    | st.just(json.dumps({"code": CANARY, "error": CANARY, "status": CANARY}).encode())
)


@st.composite
def replies(draw: st.DrawFn) -> bytes:
    """A status line, some headers and a body, each of them honest or not."""
    body = draw(_BODIES)
    lines = [b"HTTP/1.1 %d Said" % draw(_CODES), *draw(_HEADERS)]
    if draw(st.booleans()):
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@fuzzed
@given(replies())
def test_any_answer_becomes_an_attempt_and_an_observation(answer: bytes) -> None:
    answers.http(answer)


@fuzzed
@given(
    hostile.BYTES | hostile.spoiled(b"HTTP/1.1 202 Accepted\r\nContent-Length: 13\r\n\r\n" + b'{"id": "m-1"}')
)
def test_any_bytes_on_the_socket_become_an_attempt_and_an_observation(answer: bytes) -> None:
    answers.http(answer)
