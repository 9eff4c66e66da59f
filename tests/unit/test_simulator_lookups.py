"""What the simulator's look-ups and feed tell, when, and what goes wrong with them."""

from __future__ import annotations

import pytest

from compose.simulator.answers import Wire
from tests.builders import T0
from tests.simulator_asks import model, post


def test_a_message_is_not_seen_before_its_visibility_delay_and_then_by_its_statuses() -> None:
    one = model()
    made = post(one, "bounce", account="keyed").body["id"]
    assert one.look_up("keyed", made, T0 + 499).code == 404
    assert one.search("keyed", "int-0001.email", T0 + 499).body == {"messages": []}
    assert one.batch("keyed", [made], T0 + 499).body == {"messages": []}
    seen = {
        "id": made,
        "reference": "int-0001.email",
        "status": "bounced",
        "reason": "mailbox_unknown",
        "at_ms": T0 + 400,
    }
    assert one.look_up("keyed", made, T0 + 500).body == seen
    assert one.search("keyed", "int-0001.email", T0 + 500).body == {"messages": [seen]}
    assert one.batch("keyed", [made, "m-none"], T0 + 500).body == {"messages": [seen]}


def test_one_account_does_not_see_the_messages_of_another() -> None:
    one = model()
    made = post(one, "delivered").body["id"]
    assert one.look_up("keyed", made, T0 + 9_000).code == 404
    assert one.search("keyed", "int-0001.email", T0 + 9_000).body == {"messages": []}
    assert one.batch("keyed", [made], T0 + 9_000).body == {"messages": []}


def test_a_plot_may_hide_its_message_longer_than_the_account_does() -> None:
    one = model()
    made = post(one, "hidden").body["id"]
    assert [one.look_up("plain", made, T0 + at).code for at in (4_999, 5_000)] == [404, 200]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("never", ["accepted"]),
        ("slow+90s-x", ["accepted", "delivered"]),
        ("temporary", ["accepted", "deferred", "deferred", "delivered"]),
        ("latebounce", ["accepted", "delivered", "bounced"]),
        ("complaint", ["accepted", "delivered", "complained"]),
        ("repeat", ["accepted", "delivered", "delivered", "delivered"]),
        ("reorder", ["accepted", "delivered", "accepted", "delivered"]),
        ("unknown", ["accepted", "DLR_TIMEOUT", "sent-internationally", "Partially Delivered"]),
        ("badtext", ["accepted", "a\x00b", "\ud83d", "delivered"]),
        ("oddtokens", ["accepted", "Delivered", None, 7, ""]),
    ],
)
def test_statuses_follow_each_other_as_the_plot_says(name: str, told: list[object]) -> None:
    one = model()
    made = post(one, name).body["id"]
    (message,) = one.transitions(T0 + 120_000)
    assert [t["status"] for t in message["transitions"]] == told
    for step in message["transitions"]:
        assert one.look_up("plain", made, step["at_ms"]).body["status"] == step["status"]


def test_statuses_that_have_not_happened_yet_are_not_told() -> None:
    one = model()
    made = post(one, "slow+90s-x").body["id"]
    assert one.look_up("plain", made, T0 + 89_999).body["status"] == "accepted"
    assert len(one.transitions(T0 + 89_999)[0]["transitions"]) == 1


@pytest.mark.parametrize(
    ("name", "code", "wire"),
    [
        ("lookupthrottle", 429, Wire.ANSWER),
        ("lookuperror", 500, Wire.ANSWER),
        ("lookuphtml", 200, Wire.HTML),
        ("lookupmissing", 404, Wire.ANSWER),
    ],
)
def test_a_look_up_goes_wrong_once_and_then_answers(name: str, code: int, wire: Wire) -> None:
    one = model()
    made = post(one, name).body["id"]
    bad, good = (one.look_up("plain", made, T0 + 2_000) for _ in range(2))
    assert (bad.code, bad.wire) == (code, wire)
    assert good.body["status"] == "delivered"


def test_a_look_up_may_be_answered_about_another_message() -> None:
    one = model()
    made = post(one, "lookupother").body["id"]
    assert one.look_up("plain", made, T0).body["id"] != made
    assert one.look_up("plain", made, T0).body["id"] == made


def test_a_search_goes_wrong_as_a_look_up_does_and_missing_is_an_empty_list() -> None:
    one = model()
    post(one, "lookupmissing")
    assert one.search("plain", "int-0001.email", T0).body == {"messages": []}
    assert len(one.search("plain", "int-0001.email", T0).body["messages"]) == 1
    post(one, "lookuperror", reference="int-0002.email")
    assert one.search("plain", "int-0002.email", T0).code == 500


def test_an_account_offers_only_the_look_ups_it_declares() -> None:
    one = model()
    made = post(one, "delivered", account="mute").body["id"]
    for reply in (one.look_up("mute", made, T0), one.search("mute", "int-0001.email", T0)):
        assert (reply.code, reply.body["code"]) == (404, "not_offered")
    assert one.batch("plain", ["a", "b", "c", "d"], T0).body["code"] == "too_many_ids"


def test_the_feed_tells_bounces_and_complaints_from_an_instant_on_in_order() -> None:
    one = model()
    for number, name in enumerate(("complaint", "bounce", "delivered", "temporary")):
        post(one, name, reference=f"int-{number}.email")
    rows = one.suppressions("plain", 0, T0 + 5_000).body["suppressions"]
    assert [(r["status"], r["to"], r["at_ms"] - T0) for r in rows] == [
        ("bounced", "bounce@example.com", 400),
        ("complained", "complaint@example.com", 900),
    ]
    later = one.suppressions("plain", T0 + 401, T0 + 5_000).body
    assert [r["status"] for r in later["suppressions"]] == ["complained"]
    assert (later["more"], later["next_since_ms"]) == (False, T0 + 901)
    assert one.suppressions("plain", 0, T0 + 399).body["suppressions"] == []


def test_the_feed_is_read_to_its_end_page_by_page_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compose.simulator.behaviour.FEED_MAX", 4)
    one = model()
    for number in range(10):
        post(one, "bounce", at=number // 3, reference=f"int-{number}.email")
    since, seen, pages = 0, [], 0
    while pages < 10:
        page = one.suppressions("plain", since, T0 + 5_000).body
        seen += [r["id"] for r in page["suppressions"]]
        since, pages = page["next_since_ms"], pages + 1
        if not page["more"]:
            break
    assert sorted(seen) == sorted(str(e.took) for e in one.ledger if e.took)
    assert pages == 2
