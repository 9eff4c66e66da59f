"""The wire of the simulated provider, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from compose.clock import SystemClock
from compose.simulator.behaviour import Model
from compose.simulator.server import Server, create_app
from schemas.accounts import Account, Capabilities
from schemas.ids import Channel

HEADERS = {"Authorization": "Bearer right", "Idempotency-Key": "int-0001.email"}


@pytest.fixture
def url() -> Iterator[str]:
    caps = Capabilities(lookup_by_reference=True, lookup_by_message_id=True)
    account = Account(name="mail", provider="simulated", channel=Channel.EMAIL, capabilities=caps)
    model = Model({"mail": account}, odd_ids=True)
    with Server(create_app(model, SystemClock(), credential="right")) as found:
        yield found


def post(url: str, to: str, headers: dict[str, str] = HEADERS) -> httpx.Response:
    body = {"to": to, "reference": "int-0001.email", "text": "x"}
    return httpx.post(f"{url}/v1/mail/messages", json=body, headers=headers, timeout=2)


def test_a_submission_is_found_by_its_odd_id_by_reference_and_in_a_batch(url: str) -> None:
    made = post(url, "delivered@example.com").json()["id"]
    assert "/" in made
    quoted = httpx.URL(f"{url}/v1/mail/messages/").copy_with(
        raw_path=b"/v1/mail/messages/" + made.replace("/", "%2F").replace("<", "%3C").encode()
    )
    assert httpx.get(quoted, headers=HEADERS).json()["id"] == made
    found = httpx.get(f"{url}/v1/mail/messages", params={"reference": "int-0001.email"}, headers=HEADERS)
    assert [m["id"] for m in found.json()["messages"]] == [made]
    batch = httpx.post(f"{url}/v1/mail/messages/lookup", json={"ids": [made, "nobody"]}, headers=HEADERS)
    assert [m["id"] for m in batch.json()["messages"]] == [made]


def test_a_lost_answer_really_is_cut_in_the_middle_and_the_ledger_knows_it_was_taken(url: str) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        post(url, "lost@example.com")
    (entry,) = httpx.get(f"{url}/ledger").json()["entries"]
    assert entry["took"] is not None


def test_throttle_html_refusal_and_credentials_have_their_forms(url: str) -> None:
    throttled = post(url, "throttle@example.com")
    assert (throttled.status_code, throttled.headers["Retry-After"]) == (429, "1")
    assert post(url, "invalid@example.com").json() == {"code": "invalid_recipient"}
    assert post(url, "delivered@example.com", {"Authorization": "Bearer wrong"}).status_code == 401
    assert httpx.post(f"{url}/v1/mail/messages", content=b"{", headers=HEADERS).status_code == 400


def test_credentials_break_and_mend(url: str) -> None:
    httpx.post(f"{url}/admin/credentials/mail/break")
    assert post(url, "delivered@example.com").status_code == 401
    httpx.post(f"{url}/admin/credentials/mail/mend")
    assert post(url, "delivered@example.com").status_code == 202
