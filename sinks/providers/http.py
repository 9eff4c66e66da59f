"""One HTTP client for every adapter: one call, one answer, in words the adapters can trust.

Before bytes left us a failure means «not sent»; after that it means «unknown» (case F09), and one table says
which is which. It must not repeat a call, follow a redirect, or let a body, URL or credential into a log.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import quote, quote_plus, urlencode, urlsplit

import httpx

from schemas.ids import TOKEN_PATTERN
from sinks.providers.transport import BoundedTransport, Deadline, Resolver

JsonObject = dict[str, Any]

BODY_BYTES_MAX = 1_048_576  # 1 MiB: a batch of 1000 look-ups at 500 bytes each, doubled
CONNECT_MS_MAX = 3_000  # one lost SYN and its repetition after 1 s, then TLS
POOL_MS_MAX = 1_000  # the pool is as large as the caller's concurrency: a wait is a fault, make it short
CONNECTIONS_MAX = 32
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
_CHUNK_BYTES = 65_536
_TOKEN = re.compile(TOKEN_PATTERN[1:-1])
_LOGGERS = ("httpx", "httpcore")


class Sent(StrEnum):
    """Whether the provider can have taken the request."""

    NO = "no"
    UNKNOWN = "unknown"


# The first line that fits decides. Before the request was written nothing can have been taken; afterwards,
# and whenever in doubt, we do not know. `InvalidURL` is not an `HTTPError`, `RemoteProtocolError` is neither
# a network error nor a timeout (case F09); a header outside ASCII is a `UnicodeError` before any byte.
TAXONOMY: tuple[tuple[type[Exception], Sent], ...] = (
    (httpx.ConnectError, Sent.NO),  # refused, unreachable, DNS, TLS
    (httpx.ConnectTimeout, Sent.NO),
    (httpx.PoolTimeout, Sent.NO),
    (httpx.LocalProtocolError, Sent.NO),
    (httpx.UnsupportedProtocol, Sent.NO),
    (httpx.ProxyError, Sent.NO),
    (httpx.InvalidURL, Sent.NO),
    (UnicodeError, Sent.NO),
    (httpx.ReadTimeout, Sent.UNKNOWN),
    (httpx.WriteTimeout, Sent.UNKNOWN),
    (httpx.ReadError, Sent.UNKNOWN),
    (httpx.WriteError, Sent.UNKNOWN),
    (httpx.CloseError, Sent.UNKNOWN),
    (httpx.RemoteProtocolError, Sent.UNKNOWN),
    (httpx.DecodingError, Sent.UNKNOWN),
    (httpx.TooManyRedirects, Sent.UNKNOWN),
    (httpx.HTTPError, Sent.UNKNOWN),
    (OSError, Sent.UNKNOWN),
)
_CAUGHT = tuple(kind for kind, _ in TAXONOMY)


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer. `kind` is the name of the exception; its text may hold a URL and is not kept."""

    sent: Sent
    kind: str


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `body` is a JSON object, or None for anything else: HTML, empty, cut, `[]`, `null`.

    `raw`: the bytes as they came, for the few who do not speak JSON; empty when they were too many.
    """

    status: int
    body: JsonObject | None = field(repr=False)
    retry_after: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    raw: bytes = field(default=b"", repr=False, compare=False)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def text(self, name: str) -> str:
        """A text field of the body; empty when it is missing or not text."""
        found = self.body.get(name) if self.body is not None else None
        return found if isinstance(found, str) else ""

    def header(self, name: str) -> str:
        """A header, its name in lower case; empty when it is missing."""
        return self.headers.get(name, "")


def failure(exc: Exception) -> Failure:
    """Where the table puts this exception."""
    for kind, sent in TAXONOMY:
        if isinstance(exc, kind):
            return Failure(sent, type(exc).__name__)
    return Failure(Sent.UNKNOWN, type(exc).__name__)


def decode_object(body: bytes) -> JsonObject | None:
    """The JSON object in `body`, or None. Total: any bytes give an answer (case F23).

    A byte order mark is ignored (RFC 8259 §8.1 allows it); NaN, 5000-digit integers and 100 000 nested
    brackets are not JSON to us, nor is a name that stands twice with two values: which one is true?
    """
    try:
        found = json.loads(
            body.decode("utf-8-sig"), parse_constant=_refuse_constant, object_pairs_hook=_object
        )
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs) and any(found[name] != value for name, value in pairs):
        raise ValueError("a name stands twice with two values")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def usable_id(value: object) -> str | None:
    """`value` when it can be a provider's message id that we can ask for again, else None (case F05).

    Printable ASCII without spaces, 1 to 512 characters; `.` and `..` would leave the path on the way.
    """
    if isinstance(value, str) and _TOKEN.fullmatch(value) and value not in (".", ".."):
        return value
    return None


def path_segment(message_id: str) -> str:
    """The id as one path segment, encoded exactly once. `ValueError` for what `usable_id` refuses."""
    if usable_id(message_id) is None:
        raise ValueError("this cannot be a message id; ask usable_id first")
    return quote(message_id, safe="")


class Http:
    """Calls to one provider account. Safe to share between threads; at most `connections_max` at once.

    `base_url` is https; plain http is for this machine and for containers beside us only. Raises
    `ValueError` otherwise. `headers` go with every call (credentials) and are never printed; `auth` signs
    each request instead, and yields it once.
    """

    def __init__(
        self,
        base_url: str,
        *,
        monotonic: Callable[[], float],
        headers: Mapping[str, str] | None = None,
        auth: httpx.Auth | None = None,
        connections_max: int = CONNECTIONS_MAX,
        transport: httpx.BaseTransport | None = None,
        resolve: Resolver | None = None,
    ) -> None:
        _check_base(base_url)
        for name in _LOGGERS:  # httpx writes whole URLs at INFO (case F26)
            logging.getLogger(name).setLevel(logging.WARNING)
        self._deadline, self._monotonic = Deadline(), monotonic
        self._client = httpx.Client(
            base_url=base_url,
            auth=auth,
            headers={"Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})},
            transport=transport
            or BoundedTransport(self._deadline, monotonic, connections_max=connections_max, resolve=resolve),
            follow_redirects=False,
            trust_env=False,
        )

    def call(
        self,
        method: str,
        path: str,
        *,
        timeout_ms: int,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> Reply | Failure:
        """One request, once, for at most `timeout_ms`. `path` is relative to the base address, which may
        have a path of its own. Never raises for the world."""
        total_s = timeout_ms / 1000
        timeout = httpx.Timeout(
            total_s, connect=min(total_s, CONNECT_MS_MAX / 1000), pool=min(total_s, POOL_MS_MAX / 1000)
        )
        sent = {"Content-Type": content_type} if body is not None else {}
        self._deadline.at_s = self._monotonic() + total_s
        try:
            request = self._client.build_request(
                method, path, params=query, content=body, headers={**sent, **(headers or {})}, timeout=timeout
            )
            response = self._client.send(request, stream=True)
            try:
                return _reply(response)
            finally:
                response.close()
        except _CAUGHT as exc:
            return failure(exc)
        finally:
            self._deadline.at_s = float("inf")

    def close(self) -> None:
        self._client.close()

    def __repr__(self) -> str:
        return "Http(hidden)"


def _reply(response: httpx.Response) -> Reply:
    """Read at most `BODY_BYTES_MAX`; a longer or a compressed body (we asked for neither) is no answer."""
    found = bytearray()
    for chunk in response.iter_raw(_CHUNK_BYTES):
        found += chunk
        if len(found) > BODY_BYTES_MAX:
            break
    as_asked = "content-encoding" not in response.headers and len(found) <= BODY_BYTES_MAX
    raw = bytes(found) if as_asked else b""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, decode_object(raw), headers.get("retry-after"), headers, raw)


def form_bytes(fields: Iterable[tuple[str, str]]) -> bytes:
    """An HTML form as bytes, in the order given: the same fields always give the same bytes."""
    return urlencode(list(fields), quote_via=quote_plus).encode()


def _check_base(base_url: str) -> None:
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    beside_us = host in ("127.0.0.1", "::1") or re.fullmatch(r"[a-z0-9_-]+", host) is not None
    if parts.scheme != "https" and not (parts.scheme == "http" and beside_us):
        raise ValueError("a provider's base address is https://… (plain http only on this machine)")
    if parts.query or parts.fragment or parts.username:
        raise ValueError("a provider's base address has no query, fragment or user")
