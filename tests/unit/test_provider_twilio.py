"""Does the adapter put every number and word of Twilio where its table says (PROVIDERS.md §5)."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import pytest

from schemas.attempt import AttemptState
from schemas.errors import InvariantBroken, SettingsRefused
from schemas.observation import LookupAnswer, ProviderState
from schemas.reasons import Reason
from tests.provider_answers import MAIL, TEXT, Answers

A, S, R = AttemptState, ProviderState, Reason
ACCOUNT_SID, SERVICE_SID = "AC" + "1" * 32, "MG" + "2" * 32
SID = "SM" + "3" * 32
UNKNOWN = (A.UNKNOWN, R.SUBMIT_UNKNOWN, False)
THROTTLED = (A.NOT_ACCEPTED, R.THROTTLED, False)
ACCOUNT = (A.HELD, R.ACCOUNT_PROBLEM, False)
INVALID = (A.FAILED, R.INVALID_RECIPIENT, True)
OPTED_OUT = (A.FAILED, R.OPTED_OUT, True)
BLOCKED = (A.FAILED, R.BLOCKED, False)


def twilio(*replies: Any, login: str = f"{ACCOUNT_SID}:tok-canary", **options: Any) -> Answers:
    return Answers("twilio", login, replies, options)


def refusal(code: Any) -> dict[str, Any]:
    return {"code": code, "message": "words", "more_info": "", "status": 400}


SUBMITS: list[tuple[int, Any, tuple[AttemptState, Reason | None, bool]]] = [
    (201, {"sid": SID, "status": "queued", "error_code": None}, (A.ACCEPTED, None, False)),
    (201, {"sid": SID, "status": "accepted"}, (A.ACCEPTED, None, False)),
    (201, {"sid": SID, "status": "new-word"}, (A.ACCEPTED, None, False)),
    (201, {"sid": SID, "status": "failed", "error_code": 21610}, OPTED_OUT),
    (201, {"sid": SID, "status": "failed", "error_code": "21211"}, INVALID),
    (201, {"sid": SID, "status": "failed", "error_code": 30003}, (A.ACCEPTED, None, False)),
    (201, {"status": "queued"}, UNKNOWN),
    (201, {"sid": ""}, UNKNOWN),
    (200, b"<html>", UNKNOWN),
    *((400, refusal(code), INVALID) for code in (21211, 21614, 21635, 21217)),
    (400, refusal(21610), OPTED_OUT),
    (400, refusal("21610"), OPTED_OUT),
    (403, refusal(21408), BLOCKED),
    (400, refusal(21612), BLOCKED),
    (429, refusal(20429), THROTTLED),
    (429, b"", THROTTLED),
    (400, refusal(20429), THROTTLED),
    (400, refusal(21611), THROTTLED),
    (401, refusal(20003), (A.HELD, R.CREDENTIALS_REFUSED, False)),
    *((400, refusal(code), ACCOUNT) for code in (21608, 21606, 21212, 20404, 99_999)),
    (403, refusal(20005), ACCOUNT),
    (404, refusal(20404), ACCOUNT),
    (400, b"21211", ACCOUNT),
    (500, refusal(21211), UNKNOWN),
    (503, refusal(20503), UNKNOWN),
    (408, b"", UNKNOWN),
]


@pytest.mark.parametrize(("status", "body", "outcome"), SUBMITS)
def test_a_submission_is_what_the_table_says(status: int, body: Any, outcome: Any) -> None:
    found = twilio((status, body)).submit(TEXT)
    assert (found.state, found.reason, found.suppress) == outcome


def test_the_request_is_a_form_with_the_lifetime_that_is_left() -> None:
    asked = twilio((201, {"sid": SID}), sender="+15005550006")
    asked.submit(TEXT)
    (request,) = asked.seen
    assert (request.method, request.url.path) == ("POST", f"/2010-04-01/Accounts/{ACCOUNT_SID}/Messages.json")
    assert request.headers["authorization"].startswith("Basic ")
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert parse_qsl(request.content.decode(), strict_parsing=True) == [
        ("To", "+447700900123"),
        ("Body", "Hello é"),
        ("From", "+15005550006"),
        ("ValidityPeriod", "60"),
        ("SmartEncoded", "false"),
    ]


@pytest.mark.parametrize(("ttl_ms", "seconds"), [(0, "1"), (1_999, "1"), (60_000, "60"), (10**9, "36000")])
def test_the_lifetime_is_what_twilio_allows(ttl_ms: int, seconds: str) -> None:
    asked = twilio((201, {"sid": SID}))
    asked.adapter().submit(
        type(TEXT)(TEXT.reference, TEXT.to, "Backstop", "x", ttl_ms=ttl_ms), now_ms=0, timeout_ms=1
    )
    assert dict(parse_qsl(asked.seen[0].content.decode()))["ValidityPeriod"] == seconds


def test_a_messaging_service_stands_for_the_sender() -> None:
    asked = twilio((201, {"sid": SID}), messaging_service_sid=SERVICE_SID)
    asked.submit(TEXT)
    sent = dict(parse_qsl(asked.seen[0].content.decode()))
    assert sent["MessagingServiceSid"] == SERVICE_SID
    assert "From" not in sent


def test_an_api_key_names_the_account_it_is_for() -> None:
    asked = twilio((201, {"sid": SID}), login="SK1:secret", account_sid=ACCOUNT_SID)
    asked.submit(TEXT)
    assert asked.seen[0].url.path.startswith(f"/2010-04-01/Accounts/{ACCOUNT_SID}/")


@pytest.mark.parametrize(
    "options",
    [
        {"account_sid": "AC1"},
        {"messaging_service_sid": "x"},
        {"sender": "A", "messaging_service_sid": SERVICE_SID},
        {"from": "A"},
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsRefused, match="options"):
        twilio(**options).adapter()


@pytest.mark.parametrize("login", ["", "name", ":secret", "name:", "na me:secret"])
def test_a_login_that_is_none_is_refused_without_being_shown(login: str) -> None:
    with pytest.raises(ValueError, match=r"login") as refused:
        twilio(login=login).adapter()
    assert "secret" not in str(refused.value).replace("name:secret", "")


def test_an_address_is_no_recipient_of_an_sms() -> None:
    with pytest.raises(InvariantBroken):
        twilio((201, {})).submit(MAIL)


FAILED: list[tuple[Any, tuple[ProviderState, Reason]]] = [
    *((code, (S.FAILED_PERMANENT, R.INVALID_RECIPIENT)) for code in (30005, 30006, 21211, 21614, 21635)),
    (21610, (S.FAILED_PERMANENT, R.OPTED_OUT)),
    *((code, (S.FAILED_PERMANENT, R.BLOCKED)) for code in (30004, 30007, 30032, 30034, 30450, 21408)),
    *((code, (S.FAILED_PERMANENT, R.BLOCKED)) for code in (21612, 30002, 63038, 99_999)),
    (None, (S.FAILED_PERMANENT, R.BLOCKED)),
    ("?", (S.FAILED_PERMANENT, R.BLOCKED)),
    *((code, (S.FAILED_TEMPORARY, R.TEMPORARY_FAILURE)) for code in (30001, 30003, 30008, 30022, 30036)),
    (30410, (S.FAILED_TEMPORARY, R.TEMPORARY_FAILURE)),
    ("30003", (S.FAILED_TEMPORARY, R.TEMPORARY_FAILURE)),
]


@pytest.mark.parametrize("status", ["undelivered", "failed", "Failed"])
@pytest.mark.parametrize(("code", "meaning"), FAILED)
def test_a_failure_means_what_its_number_says(status: str, code: Any, meaning: Any) -> None:
    found = twilio((200, {"sid": SID, "status": status, "error_code": code})).look_up(SID)
    assert (found.provider_state, found.reason) == meaning


@pytest.mark.parametrize(
    ("status", "state", "reason"),
    [
        *((word, S.ACCEPTED, None) for word in ("accepted", "scheduled", "queued", "sending", "sent")),
        *((word, S.DELIVERED, None) for word in ("delivered", "read", "partially_delivered")),
        ("canceled", S.FAILED_PERMANENT, R.BLOCKED),
        *((word, S.UNKNOWN, R.UNKNOWN_TOKEN) for word in ("receiving", "received", "new", "")),
        (None, S.UNKNOWN, R.UNKNOWN_TOKEN),
        (7, S.UNKNOWN, R.UNKNOWN_TOKEN),
    ],
)
def test_a_status_means_what_the_table_says(status: Any, state: ProviderState, reason: Reason | None) -> None:
    told = {"sid": SID, "status": status, "date_updated": "Mon, 21 Sep 2026 14:13:20 +0000"}
    found = twilio((200, told)).look_up(SID)
    assert (found.answer, found.provider_state, found.reason) == (LookupAnswer.ANSWERED, state, reason)
    assert (found.message_id, found.provider_time_ms) == (SID, 1_790_000_000_000)


@pytest.mark.parametrize(
    ("status", "body", "answer"),
    [
        (404, refusal(20404), LookupAnswer.NOT_FOUND),
        (404, b"<html>", LookupAnswer.MALFORMED),
        (200, {"sid": "SM" + "9" * 32, "status": "delivered"}, LookupAnswer.MALFORMED),
        (401, refusal(20003), LookupAnswer.CREDENTIALS),
        (429, refusal(20429), LookupAnswer.THROTTLED),
        (503, refusal(20404), LookupAnswer.UNAVAILABLE),
    ],
)
def test_an_answer_about_no_message_says_nothing(status: int, body: Any, answer: LookupAnswer) -> None:
    found = twilio((status, body)).look_up(SID)
    assert (found.answer, found.provider_state) == (answer, None)


def test_a_message_without_an_id_cannot_be_asked_for() -> None:
    asked = twilio((200, {}))
    assert asked.look_up().answer is LookupAnswer.SKIPPED
    assert not asked.seen
