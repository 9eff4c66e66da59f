"""The wire of the simulated provider, over real sockets."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from compose.simulator.behaviour import Model
from compose.simulator.desk import BODY_BYTES_MAX
from compose.simulator.server import Server, create_app
from schemas.accounts import Account, Capabilities
from schemas.ids import Channel

T0 = 1_790_000_000_000
CAPS = Capabilities(
    idempotent_submit=True,
    idempotency_window_ms=60_000,
    lookup_by_reference=True,
    lookup_by_message_id=True,
    lookup_batch_max=10,
)
RIGHT = {"Authorization": "Bearer right"}
MESSAGES = "/v1/mail/messages"


@dataclass
class HandClock:
    """Moved by hand; sleeping moves it too, so that a slow answer takes no time."""

    at_ms: int = T0

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic(self) -> float:
        return self.at_ms / 1000

    async def sleep(self, seconds: float) -> None:
        self.at_ms += int(seconds * 1000)


@dataclass
class Rig:
    http: httpx.Client
    clock: HandClock
    model: Model

    def post(self, to: str, reference: str = "int-0001.email", **fields: Any) -> httpx.Response:
        body = {"to": f"{to}@example.com", "reference": reference, "text": "x", **fields}
        return self.http.post(MESSAGES, json=body, headers={"Idempotency-Key": reference})

    def get(self, path: str, **query: str) -> Any:
        return self.http.get(path, params=query).json()

    def taken(self) -> list[str]:
        return [e["took"] for e in self.get("/ledger", taken="1")["entries"]]


def model(**options: Any) -> Model:
    account = Account(name="mail", provider="simulated", channel=Channel.EMAIL, capabilities=CAPS)
    return Model({"mail": account}, **options)


@pytest.fixture
def rig() -> Iterator[Rig]:
    one, clock = model(odd_ids=True), HandClock()
    with (
        Server(create_app(one, clock, credential="right")) as url,
        httpx.Client(base_url=url, headers=RIGHT, timeout=5) as http,
    ):
        yield Rig(http, clock, one)


def test_every_shape_of_id_is_found_by_id_by_reference_and_in_a_batch(rig: Rig) -> None:
    for number in range(12):
        reference = f"int-{number:04d}.email"
        reply = rig.post("delivered", reference)
        made = reply.json()["id"]
        assert (reply.status_code, reply.json()) == (202, {"id": made, "status": "accepted"})
        found = rig.http.get(f"{MESSAGES}/{quote(made, safe='')}").json()
        at = {"at_ms": rig.clock.at_ms, "reason": None}
        assert found == {"id": made, "reference": reference, "status": "accepted", **at}
        assert rig.get(MESSAGES, reference=reference)["messages"] == [found]
        batch = rig.http.post(f"{MESSAGES}/lookup", json={"ids": [made, "nobody"]})
        assert batch.json()["messages"] == [found]
    assert rig.http.get(f"{MESSAGES}/nobody").json()["code"] == "not_found"


@pytest.mark.parametrize(
    ("name", "raises"),
    [
        ("lost", httpx.RemoteProtocolError),
        ("reset", httpx.ReadError),
        ("close", httpx.RemoteProtocolError),
        ("hang", httpx.ReadTimeout),
    ],
)
def test_an_answer_is_lost_for_real_though_the_message_was_taken(
    rig: Rig, name: str, raises: type[Exception]
) -> None:
    with pytest.raises(raises):
        rig.http.post(MESSAGES, json={"to": f"{name}@example.com", "reference": "int-1"}, timeout=0.5)
    assert len(rig.taken()) == 1


def raw(rig: Rig, name: str, read: Callable[[socket.socket], bytes]) -> bytes:
    """What arrives on a bare socket."""
    body = json.dumps({"to": f"{name}@example.com", "reference": f"int-{name}"}).encode()
    head = (
        f"POST {MESSAGES} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer right\r\nContent-Length: {len(body)}"
    )
    url = rig.http.base_url
    with socket.create_connection((url.host, url.port or 0), timeout=3) as wire:
        wire.sendall(head.encode() + b"\r\n\r\n" + body)
        return read(wire)


def to_the_end(wire: socket.socket) -> bytes:
    read = b""
    while chunk := wire.recv(4096):
        read += chunk
    return read


def test_a_closed_connection_carries_no_byte_and_a_cut_one_half_a_body(rig: Rig) -> None:
    assert raw(rig, "close", to_the_end) == b""
    cut = raw(rig, "vanish", to_the_end)
    assert cut.startswith(b"HTTP/1.1 202 ")
    assert cut.endswith(b'{"id": "')
    assert len(rig.taken()) == 1  # vanish was not taken


def test_a_reset_is_a_reset(rig: Rig) -> None:
    with pytest.raises(ConnectionResetError):
        raw(rig, "reset", to_the_end)


@pytest.mark.parametrize(
    ("name", "code", "kind", "text"),
    [
        ("html", 200, "text/html", "<html>"),
        ("gateway", 502, "text/html", "<html>"),
        ("empty", 200, "", ""),
        ("list", 200, "application/json", "[]"),
        ("noid", 202, "application/json", '{"status":"accepted"}'),
    ],
)
def test_an_answer_that_names_no_message_arrives_whole(
    rig: Rig, name: str, code: int, kind: str, text: str
) -> None:
    reply = rig.post(name)
    assert reply.status_code == code
    assert reply.headers.get("content-type", "").startswith(kind)
    assert reply.text.startswith(text)
    assert len(rig.taken()) == 1


def test_a_lost_answer_is_replayed_under_its_key(rig: Rig) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        rig.post("lost")
    again = rig.post("lost")
    assert again.headers["Idempotency-Replayed"] == "true"
    assert rig.taken() == [again.json()["id"]] * 2
    assert rig.get("/ledger")["duplicates"] == []
    changed = rig.post("lost", text="y")
    assert (changed.status_code, changed.json()["code"]) == (409, "idempotency_mismatch")


def test_a_slow_answer_arrives_after_its_time(rig: Rig) -> None:
    assert rig.post("answer+700ms-x").status_code == 202
    assert rig.clock.at_ms == T0 + 700


def test_throttles_say_when_in_seconds_by_a_date_and_in_nonsense(rig: Rig) -> None:
    assert rig.post("throttle", "int-1").headers["Retry-After"] == "1"
    assert rig.post("throttlesoon", "int-2").headers["Retry-After"] == "soon"
    date = parsedate_to_datetime(rig.post("throttledate", "int-3").headers["Retry-After"])
    assert date.timestamp() * 1000 == T0 + 1_000


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("POST", MESSAGES, b"{"),
        ("POST", MESSAGES, b"[]"),
        ("POST", MESSAGES, b'{"to": 7}'),
        ("POST", MESSAGES, b'{"to": "a@example.com", "reference": null}'),
        ("POST", MESSAGES, b'{"to": "' + b"a" * BODY_BYTES_MAX + b'"}'),
        ("POST", MESSAGES, b"[" * 100_000),
        ("POST", f"{MESSAGES}/lookup", b'{"ids": [7]}'),
        ("POST", f"{MESSAGES}/lookup", b"null"),
        ("GET", MESSAGES, b""),
        ("GET", "/v1/mail/suppressions?since=yesterday", b""),
        ("POST", "/admin/rules", b'{"rules": [{"plot": {"submits": ["explode"]}}]}'),
        ("POST", "/admin/rules", b'{"rules": [{"colour": "red"}]}'),
        ("POST", "/admin/outage/mail/start", b'{"for_ms": "long"}'),
        ("POST", "/admin/credentials/mail/bend", b""),
    ],
)
def test_what_is_not_understood_is_a_400_with_a_code(
    rig: Rig, method: str, path: str, content: bytes
) -> None:
    reply = rig.http.request(method, path, content=content)
    assert (reply.status_code, reply.json()["code"]) == (400, "bad_request")
    assert rig.taken() == []


def test_texts_that_databases_refuse_are_told_as_they_are(rig: Rig) -> None:
    content = b'{"to": "badtext@example.com", "reference": "int-\\ud83d"}'
    made = rig.http.post(MESSAGES, content=content).json()["id"]
    for at, word in ((200, b"a\\u0000b"), (600, b"\\ud83d")):
        rig.clock.at_ms = T0 + at
        reply = rig.http.get(f"{MESSAGES}/{quote(made, safe='')}")
        assert b'"reference":"int-\\ud83d","status":"' + word + b'"' in reply.content
    assert len(rig.get("/ledger/messages")["messages"]) == 1


def test_credentials_break_are_forbidden_and_mend(rig: Rig) -> None:
    assert (
        rig.http.post(MESSAGES, json={"to": "a@b"}, headers={"Authorization": "Bearer x"}).status_code == 401
    )
    for turn, code in (("break", 401), ("forbid", 403), ("mend", 202)):
        rig.http.post(f"/admin/credentials/mail/{turn}")
        assert rig.post("delivered", f"int-{turn}").status_code == code


def test_an_outage_lasts_until_it_is_ended_or_its_time_is_over(rig: Rig) -> None:
    rig.http.post("/admin/outage/mail/start")
    assert rig.post("delivered", "int-1").status_code == 503
    rig.http.post("/admin/outage/mail/end")
    assert rig.post("delivered", "int-2").status_code == 202
    rig.http.post("/admin/outage/mail/start", json={"for_ms": 1_000, "retry_after_s": 1})
    down = rig.post("delivered", "int-3")
    assert (down.status_code, down.headers["Retry-After"]) == (503, "1")
    rig.clock.at_ms += 1_000
    assert rig.post("delivered", "int-4").status_code == 202


def test_rules_over_http_replace_the_magic_of_a_recipient(rig: Rig) -> None:
    plot = {"submits": ["blocked"], "statuses": []}
    rule = {"to": "delivered*", "reference": "int-*", "plot": plot}
    assert rig.http.post("/admin/rules", json={"rules": [rule]}).json() == {"rules": 1}
    assert rig.post("delivered").json()["code"] == "blocked"
    rig.http.post("/admin/rules", json={"rules": []})
    assert rig.post("delivered").status_code == 202


def test_the_feed_tells_bounces_with_their_address(rig: Rig) -> None:
    made = rig.post("bounce").json()["id"]
    rig.clock.at_ms += 400
    feed = rig.get("/v1/mail/suppressions", since=str(T0))
    assert feed["suppressions"] == [
        {
            "at_ms": T0 + 400,
            "id": made,
            "to": "bounce@example.com",
            "reference": "int-0001.email",
            "status": "bounced",
            "reason": "mailbox_unknown",
        }
    ]
    assert rig.get("/v1/mail/suppressions", since=str(feed["next_since_ms"]))["suppressions"] == []


def test_the_ledger_can_be_filtered_summed_and_read_by_message(rig: Rig) -> None:
    rig.post("delivered", not_after_ms=T0)
    rig.clock.at_ms += 1_000
    rig.post("invalid", "int-0002.email")
    rig.get(MESSAGES, reference="int-0001.email")
    entries = rig.get("/ledger")["entries"]
    assert [(e["route"], e["answered"], e["code"]) for e in entries] == [
        ("submit", "accept", 202),
        ("submit", "invalid_recipient", 422),
        ("search", "answered", 200),
    ]
    assert entries[0]["not_after_ms"] == T0
    for query, kept in (
        ({"route": "search"}, [2]),
        ({"reference": "int-0002.email"}, [1]),
        ({"taken": "1"}, [0]),
        ({"since_ms": str(T0 + 1)}, [1, 2]),
        ({"account": "other"}, []),
    ):
        assert rig.get("/ledger", **query)["entries"] == [entries[i] for i in kept]
    summary = rig.get("/ledger/summary")["accounts"]["mail"]
    assert (summary["messages"], summary["late"]) == (1, 1)
    (message,) = rig.get("/ledger/messages")["messages"]
    assert [t["status"] for t in message["transitions"]] == ["accepted", "delivered"]
    assert rig.get("/healthz") == {"ok": True}


def test_a_simulator_that_is_started_again_on_its_file_sends_nothing_twice(tmp_path: Path) -> None:
    path, ids = tmp_path / "ledger.jsonl", []
    for _ in range(2):
        app = create_app(model(), HandClock(), credential="right", ledger_file=path)
        with Server(app) as url, httpx.Client(base_url=url, headers=RIGHT) as http:
            one = Rig(http, HandClock(), model())
            ids.append(one.post("delivered").json()["id"])
            duplicates = one.get("/ledger")["duplicates"]
    assert ids[0] == ids[1]
    assert duplicates == []
    assert [json.loads(line)["replayed"] for line in path.read_text().splitlines()] == [False, True]
    assert "example.com" not in path.read_text()


def test_a_server_that_is_down_refuses_the_connection() -> None:
    with Server(create_app(model(), HandClock(), credential="right")) as url:
        assert httpx.get(f"{url}/healthz").status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz")


def test_nothing_a_call_carries_is_logged(
    rig: Rig, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        for name in ("delivered", "html", "lost", "close", "reset", "invalid"):
            try:
                rig.post(f"{name}+canary", f"int-{name}", text="https://app.example/r?t=canary")
            except httpx.TransportError:
                continue
        rig.get(MESSAGES, reference="canary")
    ours = [r.getMessage() for r in caplog.records if not r.name.startswith(("httpx", "httpcore"))]
    out = capfd.readouterr()
    assert "canary" not in "".join(ours) + out.out + out.err
    assert [r.name for r in caplog.records if r.name.startswith("uvicorn") and r.levelno > logging.INFO] == []
