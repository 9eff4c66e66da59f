"""The simulated provider goes wrong on purpose, always in the same way, and its ledger tells."""

from __future__ import annotations

import json

import pytest

from compose.simulator.behaviour import Model, Reply, Request, Wire
from compose.simulator.plots import EMAIL_PLOTS, SMS_PLOTS, plot_for
from schemas.accounts import Account, Capabilities
from schemas.ids import Channel

T0 = 1_790_000_000_000
KEYED = Capabilities(idempotent_submit=True, idempotency_window_ms=60_000, visibility_delay_ms=500)
PLAIN = Capabilities(lookup_by_reference=True)


def model(*, odd_ids: bool = False) -> Model:
    accounts = [
        Account(name="keyed", provider="simulated", channel=Channel.EMAIL, capabilities=KEYED),
        Account(name="plain", provider="simulated", channel=Channel.EMAIL, capabilities=PLAIN),
    ]
    return Model({a.name: a for a in accounts}, seed=7, odd_ids=odd_ids)


def ask(
    to: str, *, account: str = "plain", body: bytes = b"{}", reference: str = "int-0001.email"
) -> Request:
    return Request(account, reference, to, body, key=reference)


def post(one: Model, to: str, at: int = 0, **changes: object) -> Reply:
    return one.submit(ask(to, **changes), T0 + at)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "code", "wire", "taken"),
    [
        ("delivered", 202, Wire.ANSWER, 1),
        ("lost", 202, Wire.CUT, 1),
        ("hang", 202, Wire.HANG, 1),
        ("html", 200, Wire.HTML, 1),
        ("vanish", 202, Wire.CUT, 0),
        ("error", 500, Wire.ANSWER, 0),
        ("throttle", 429, Wire.ANSWER, 0),
        ("invalid", 422, Wire.ANSWER, 0),
        ("suppressed", 422, Wire.ANSWER, 0),
        ("content", 422, Wire.ANSWER, 0),
    ],
)
def test_each_plot_answers_and_takes_as_its_name_says(name: str, code: int, wire: Wire, taken: int) -> None:
    one = model()
    reply = post(one, f"{name}+1@example.com")
    assert (reply.code, reply.wire) == (code, wire)
    assert sum(e.took is not None for e in one.ledger) == taken


def test_a_second_message_under_one_reference_is_a_duplicate_in_the_ledger() -> None:
    one = model()
    post(one, "lost@example.com")
    assert one.duplicates() == []
    post(one, "lost@example.com", 100)
    assert one.duplicates() == ["int-0001.email"]


def test_the_same_key_and_body_replays_the_first_answer_and_takes_nothing() -> None:
    one = model()
    post(one, "lost@example.com", account="keyed")
    first = one.ledger[0].took
    reply = post(one, "lost@example.com", 100, account="keyed")
    assert reply.body["id"] == first
    assert one.ledger[1].replayed
    assert one.duplicates() == []


def test_the_same_key_with_another_body_is_refused_and_after_the_window_it_is_new() -> None:
    one = model()
    post(one, "delivered@example.com", account="keyed")
    reply = post(one, "delivered@example.com", 1, account="keyed", body=b"{1}")
    assert (reply.code, reply.body["code"]) == (409, "idempotency_mismatch")
    assert post(one, "delivered@example.com", 60_000, account="keyed").code == 202
    assert one.duplicates() == ["int-0001.email"]


def test_retry_after_is_seconds_or_a_date_in_the_future() -> None:
    one = model()
    assert post(one, "throttle@example.com").headers == {"Retry-After": "1"}
    date = post(one, "throttledate@example.com", reference="int-0002.email").headers["Retry-After"]
    assert date == "Mon, 21 Sep 2026 14:13:22 GMT"


def test_a_message_is_not_seen_before_its_visibility_delay_and_then_by_its_statuses() -> None:
    one = model()
    made = post(one, "bounce@example.com", account="keyed").body["id"]
    assert one.look_up("keyed", made, T0 + 499).code == 404
    assert one.look_up("keyed", made, T0 + 500).body["status"] == "bounced"
    assert one.search("keyed", "int-0001.email", T0 + 500).body["messages"][0]["id"] == made
    assert one.search("plain", "int-0001.email", T0 + 500).body["messages"] == []


def test_broken_credentials_and_outages_take_nothing() -> None:
    one = model()
    one.broken_credentials.add("plain")
    assert post(one, "delivered@example.com").code == 401
    one.broken_credentials.clear()
    one.out_of_order.add("plain")
    assert post(one, "delivered@example.com").code == 503
    assert one.look_up("plain", "m-1", T0).code == 503
    assert all(e.took is None for e in one.ledger)


def test_fate_depends_on_seed_and_recipient_only() -> None:
    people = [f"person{n}@example.com" for n in range(200)]
    assert [plot_for(p, seed=3) for p in people] == [plot_for(p, seed=3) for p in reversed(people)][::-1]
    assert [plot_for(p, seed=3) for p in people] != [plot_for(p, seed=4) for p in people]


def test_magic_recipients_choose_their_plot() -> None:
    assert all(plot_for(f"{n}+x@example.com", seed=1) is p for n, p in EMAIL_PLOTS.items())
    assert all(plot_for(f"+447700900{d}07", seed=1) is p for d, p in SMS_PLOTS.items())


def test_the_ledger_holds_no_address_link_or_body() -> None:
    one = model(odd_ids=True)
    post(one, "delivered+canary@example.com", body=b'{"text":"https://app.example/r?t=canary"}')
    text = json.dumps(one.lines())
    assert "canary" not in text
    assert "example.com" not in text
