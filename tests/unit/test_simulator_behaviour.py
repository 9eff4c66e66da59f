"""The simulated provider goes wrong on purpose, always in the same way."""

from __future__ import annotations

import pytest

from compose.simulator.answers import REPLAYED, Wire
from compose.simulator.behaviour import Outage, Rule
from compose.simulator.parts import Rate
from compose.simulator.plots import EMAIL_PLOTS
from compose.simulator.script import Answer, Plot, Status, Step
from tests.builders import T0
from tests.simulator_asks import model, post


@pytest.mark.parametrize(
    ("name", "code", "wire", "taken"),
    [
        ("delivered", 202, Wire.ANSWER, 1),
        ("swallowed", 202, Wire.ANSWER, 1),
        ("answer", 202, Wire.ANSWER, 1),
        ("lost", 202, Wire.CUT, 1),
        ("busy", 202, Wire.CUT, 1),
        ("reset", 202, Wire.RESET, 1),
        ("close", 202, Wire.CLOSE, 1),
        ("hang", 202, Wire.HANG, 1),
        ("html", 200, Wire.HTML, 1),
        ("gateway", 502, Wire.HTML, 1),
        ("empty", 200, Wire.EMPTY, 1),
        ("list", 200, Wire.LIST, 1),
        ("noid", 202, Wire.ANSWER, 1),
        ("vanish", 202, Wire.CUT, 0),
        ("error", 500, Wire.ANSWER, 0),
        ("unavailable", 503, Wire.ANSWER, 0),
        ("throttle", 429, Wire.ANSWER, 0),
        ("unauthorised", 401, Wire.ANSWER, 0),
        ("forbidden", 403, Wire.ANSWER, 0),
        ("suspended", 403, Wire.ANSWER, 0),
        ("invalid", 422, Wire.ANSWER, 0),
        ("suppressed", 422, Wire.ANSWER, 0),
        ("blocked", 422, Wire.ANSWER, 0),
        ("content", 422, Wire.ANSWER, 0),
    ],
)
def test_each_plot_answers_and_takes_as_its_name_says(name: str, code: int, wire: Wire, taken: int) -> None:
    one = model()
    reply = post(one, f"{name}+1")
    assert (reply.code, reply.wire) == (code, wire)
    assert sum(e.took is not None for e in one.ledger) == taken


def test_an_answer_without_an_id_names_no_message_and_a_swallowed_one_says_so_at_once() -> None:
    assert "id" not in post(model(), "noid").body
    assert post(model(), "swallowed").body["status"] == "suppressed"


def test_a_refusal_has_a_code_and_a_sentence() -> None:
    assert post(model(), "invalid").body == {
        "code": "invalid_recipient",
        "detail": "The recipient is not valid.",
    }


def test_a_fault_lasts_as_many_submissions_as_the_recipient_says() -> None:
    one = model()
    assert [post(one, "throttle-3", n).code for n in range(5)] == [429, 429, 429, 202, 202]


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("throttle", 0, "1"),
        ("throttlesoon", 0, "soon"),
        ("unavailable", 0, "1"),
        ("throttledate", 0, "Mon, 21 Sep 2026 14:13:21 GMT"),
        ("throttledate", 1, "Mon, 21 Sep 2026 14:13:22 GMT"),  # rounded up: never shorter than said
    ],
)
def test_retry_after_is_seconds_a_date_that_is_not_too_soon_or_nonsense(
    name: str, at: int, value: str
) -> None:
    assert post(model(), name, at).headers == {"Retry-After": value}


def test_without_a_reference_each_recipient_is_counted_alone() -> None:
    one = model()
    assert [post(one, to, reference="").code for to in ("error+a", "error+b", "error+a")] == [500, 500, 202]


def test_the_same_key_and_body_replays_the_first_answer_and_takes_nothing() -> None:
    one = model()
    post(one, "lost", account="keyed")
    reply = post(one, "lost", 30_000, account="keyed")
    assert (reply.code, reply.body) == (202, {"id": one.ledger[0].took, "status": "accepted"})
    assert reply.headers == REPLAYED
    assert one.ledger[1].replayed
    assert one.duplicates() == []


def test_the_same_key_with_another_body_is_refused_and_after_the_window_it_is_new() -> None:
    one = model()
    post(one, "delivered", account="keyed")
    reply = post(one, "delivered", 59_999, account="keyed", body=b"{1}")
    assert (reply.code, reply.body["code"]) == (409, "idempotency_mismatch")
    assert post(one, "delivered", 60_000, account="keyed").code == 202
    assert one.duplicates() == ["int-0001.email"]


def test_the_same_key_is_told_to_wait_while_the_first_request_is_worked_on() -> None:
    one = model()
    assert post(one, "busy", account="keyed").wire is Wire.CUT
    early = post(one, "busy", 500, account="keyed")
    assert (early.code, early.body["code"], early.headers) == (409, "in_progress", {"Retry-After": "2"})
    assert post(one, "busy", 500, account="keyed", body=b"{1}").body["code"] == "idempotency_mismatch"
    assert post(one, "busy", 2_000, account="keyed").body["id"] == one.ledger[0].took
    assert one.duplicates() == []


def test_an_account_without_keys_takes_every_submission() -> None:
    one = model()
    first, second = post(one, "lost"), post(one, "lost", 100)
    assert first.body["id"] != second.body["id"]
    assert one.duplicates() == ["int-0001.email"]


def test_a_key_of_something_not_taken_is_free_again() -> None:
    one = model()
    assert post(one, "error", account="keyed").code == 500
    assert post(one, "error", 1, account="keyed", body=b"{1}").code == 202


def test_a_slow_answer_says_how_long_it_takes() -> None:
    assert post(model(), "answer").delay_ms == 2_000
    assert post(model(), "answer+300ms-x").delay_ms == 300


@pytest.mark.parametrize(
    ("which", "code"), [("broken_credentials", 401), ("forbidden", 403), ("out_of_order", 503)]
)
def test_a_broken_account_takes_and_tells_nothing_while_others_work(which: str, code: int) -> None:
    one = model()
    getattr(one, which).add("plain")
    assert post(one, "delivered").code == code
    for reply in (
        one.look_up("plain", "m-1", T0),
        one.search("plain", "int-0001.email", T0),
        one.batch("plain", ["m-1"], T0),
        one.suppressions("plain", 0, T0),
    ):
        assert reply.code == code
    assert post(one, "delivered", account="keyed").code == 202
    assert [e.account for e in one.ledger if e.took] == ["keyed"]


def test_an_outage_has_a_beginning_and_an_end() -> None:
    one = model()
    one.outages["plain"] = Outage(T0 + 10, T0 + 20, retry_after_s=3)
    assert [post(one, "delivered", at, reference=f"int-{at}").code for at in (9, 10, 19, 20)] == [
        202,
        503,
        503,
        202,
    ]
    assert post(one, "delivered", 15).headers == {"Retry-After": "3"}


def test_a_wrong_credential_and_an_unknown_account_are_refused() -> None:
    one = model()
    assert post(one, "delivered", credential_ok=False).code == 401
    assert post(one, "delivered", account="person@example.com").body["code"] == "no_such_account"
    assert [e.account for e in one.ledger] == ["plain", "unknown"]


def test_rates_are_kept_when_asked_for_and_say_when_to_come_again() -> None:
    one = model(enforce_rates=True)
    codes = [post(one, "delivered", at, reference=f"int-{at}").code for at in (0, 100, 200, 999, 1_000)]
    assert codes == [202, 202, 429, 429, 202]
    assert one.ledger[2].answered == "throttle"
    first, second = (one.look_up("plain", "m-1", T0 + at) for at in (0, 500))
    assert (first.code, second.code, second.headers) == (404, 429, {"Retry-After": "2"})
    assert one.look_up("plain", "m-1", T0 + 2_000).code == 404
    assert [post(model(), "delivered", at, reference=f"int-{at}").code for at in range(9)] == [202] * 9


def test_a_rate_is_never_above_its_limit_in_any_second() -> None:
    rate = Rate(5)
    granted = [at for at in range(0, 4_000, 7) if rate.wait_ms(at) == 0]
    assert max(sum(at <= g < at + 1_000 for g in granted) for at in range(3_000)) == 5
    assert len(granted) == 20


def test_nothing_is_taken_that_the_ledger_could_not_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compose.simulator.ledger.SUBMISSIONS_MAX", 2)
    one = model()
    assert [post(one, "delivered", reference=f"int-{n}").code for n in range(3)] == [202, 202, 503]


def test_the_first_rule_that_matches_decides_before_the_magic_recipient() -> None:
    one = model()
    one.rules = [
        Rule(EMAIL_PLOTS["invalid"], account="keyed"),
        Rule(EMAIL_PLOTS["error"], reference="int-0002.*"),
        Rule(EMAIL_PLOTS["suppressed"], to="person*@example.com"),
    ]
    assert post(one, "person1").body["code"] == "suppressed"
    assert post(one, "person1", reference="int-0002.email").code == 500
    assert post(one, "person1", account="keyed").body["code"] == "invalid_recipient"
    assert post(one, "delivered").code == 202


def test_plots_given_by_the_caller_decide_first() -> None:
    written = Plot((Step(Answer.THROTTLE, 9),), (Status(5, "x"),))
    one = model(plots=lambda to: written if to.startswith("delivered") else None)
    assert post(one, "delivered").headers == {"Retry-After": "9"}
    assert post(one, "invalid").code == 422
    one.rules = [Rule(EMAIL_PLOTS["error"])]
    assert post(one, "delivered", reference="int-0002.email").code == 429


def test_odd_ids_come_in_every_shape_and_can_be_asked_for() -> None:
    one = model(odd_ids=True)
    ids = [post(one, "delivered", reference=f"int-{n}").body["id"] for n in range(60)]
    assert len(set(ids)) == 60
    for mark in ("/", "..", "?", "#", "%2F", "<", "+"):
        assert any(mark in i for i in ids), mark
    assert {one.look_up("plain", i, T0).body["id"] for i in ids} == set(ids)
