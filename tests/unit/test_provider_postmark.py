"""Does the adapter put every number and word of Postmark where its table says (PROVIDERS.md §6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.attempt import AttemptState
from schemas.errors import InvariantBroken, SettingsRefused
from schemas.observation import LookupAnswer, ProviderState
from schemas.reasons import Reason
from tests.provider_answers import MAIL, NOW, TEXT, Answers

A, S, R = AttemptState, ProviderState, Reason
ID = "b7bc2f4a-e38e-4336-af7d-e6c392c2f817"
TO = "Error parsing 'To': Illegal email address 'x@'. It must contain the '@' symbol."
UNKNOWN = (A.UNKNOWN, R.SUBMIT_UNKNOWN, False)
THROTTLED = (A.NOT_ACCEPTED, R.THROTTLED, False)
ACCOUNT = (A.HELD, R.ACCOUNT_PROBLEM, False)


def postmark(*replies: Any, **options: Any) -> Answers:
    return Answers("postmark", "tok-canary", replies, options)


def refusal(code: int, message: str = "") -> dict[str, Any]:
    return {"ErrorCode": code, "Message": message}


SUBMITS: list[tuple[int, Any, tuple[AttemptState, Reason | None, bool]]] = [
    (200, {"ErrorCode": 0, "MessageID": ID}, (A.ACCEPTED, None, False)),
    (200, {"ErrorCode": 0}, UNKNOWN),
    (200, {"ErrorCode": 0, "MessageID": ".."}, UNKNOWN),
    (200, {"ErrorCode": "0", "MessageID": ID}, UNKNOWN),
    (200, {"MessageID": ID}, UNKNOWN),
    (422, refusal(406), (A.FAILED, R.PROVIDER_SUPPRESSED, True)),
    (200, refusal(406), (A.FAILED, R.PROVIDER_SUPPRESSED, True)),
    (422, refusal(300, TO), (A.FAILED, R.INVALID_RECIPIENT, True)),
    (422, refusal(300, "Invalid 'To' address: 'x'."), (A.FAILED, R.INVALID_RECIPIENT, True)),
    (422, refusal(300, "Invalid 'From' address: 'x'."), ACCOUNT),
    (422, refusal(300, "Zero recipients specified"), ACCOUNT),
    (422, refusal(300), ACCOUNT),
    (401, refusal(10), (A.HELD, R.CREDENTIALS_REFUSED, False)),
    *((422, refusal(code), ACCOUNT) for code in (400, 401, 402, 403, 405, 409, 410, 411, 412, 413)),
    *((422, refusal(code), ACCOUNT) for code in (1235, 1236, 701, 99_999)),
    (429, refusal(429), THROTTLED),
    (429, b"", THROTTLED),
    (503, refusal(100), THROTTLED),
    (500, refusal(500), UNKNOWN),
    (500, refusal(406), UNKNOWN),
    (503, b"<html>", UNKNOWN),
    (404, b"<html>", ACCOUNT),
]


@pytest.mark.parametrize(("status", "body", "outcome"), SUBMITS)
def test_a_submission_is_what_the_table_says(status: int, body: Any, outcome: Any) -> None:
    found = postmark((status, body)).submit(MAIL)
    assert (found.state, found.reason, found.suppress) == outcome
    assert found.message_id == (ID if found.state is A.ACCEPTED else None)


def test_the_request_carries_our_reference_and_no_tracking() -> None:
    asked = postmark((200, {"ErrorCode": 0, "MessageID": ID}), message_stream="resets")
    asked.submit(MAIL)
    (request,) = asked.seen
    assert (request.method, request.url.path) == ("POST", "/email")
    assert request.headers["x-postmark-server-token"] == "tok-canary"
    assert request.headers["accept"] == "application/json"
    assert json.loads(request.content) == {
        "From": "no-reply@example.com",
        "To": "canary@example.com",
        "Subject": "Reset",
        "TextBody": "Hello é",
        "HtmlBody": "<p>Hello</p>",
        "Metadata": {"attempt": "int-0001-test.email"},
        "MessageStream": "resets",
        "TrackOpens": False,
        "TrackLinks": "None",
    }


def test_a_number_is_no_recipient_of_an_e_mail() -> None:
    asked = postmark((200, {}))
    with pytest.raises(InvariantBroken):
        asked.submit(TEXT)
    assert not asked.seen


@pytest.mark.parametrize("key", ["", "two words", "é", "a\nb"])
def test_a_key_that_cannot_stand_in_a_header_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII"):
        Answers("postmark", key, []).adapter()


def test_an_option_postmark_does_not_have_is_refused_with_those_it_has() -> None:
    with pytest.raises(SettingsRefused, match=r"options\.stream.*message_stream"):
        postmark(stream="x").adapter()


def details(*events: Any, status: Any = "Sent") -> dict[str, Any]:
    return {"MessageID": ID, "Status": status, "MessageEvents": list(events)}


def event(kind: Any, at: str = "2026-09-21T14:13:20.0000000+00:00", **more: Any) -> dict[str, Any]:
    return {"Type": kind, "ReceivedAt": at, "Details": more}


WORDS: list[tuple[Any, tuple[ProviderState, Reason | None, str]]] = [
    (details(), (S.ACCEPTED, None, "Sent")),
    (details(status="Queued"), (S.ACCEPTED, None, "Queued")),
    (details(status="Scheduled"), (S.ACCEPTED, None, "Scheduled")),
    (details(status="Processed"), (S.ACCEPTED, None, "Processed")),
    (details(status="Blocked"), (S.FAILED_PERMANENT, R.BLOCKED, "Blocked")),
    (details(status="Failed"), (S.FAILED_PERMANENT, R.CONTENT_REFUSED, "Failed")),
    (details(status="sent"), (S.UNKNOWN, R.UNKNOWN_TOKEN, "sent")),
    (details(status=None), (S.UNKNOWN, R.UNKNOWN_TOKEN, "")),
    (details(event("Delivered")), (S.DELIVERED, None, "Delivered")),
    (details(event("Transient")), (S.FAILED_TEMPORARY, R.TEMPORARY_FAILURE, "Transient")),
    (details(event("Transient"), event("Delivered")), (S.DELIVERED, None, "Delivered")),
    (details(event("Delivered"), event("NewWord")), (S.DELIVERED, None, "Delivered")),
    *(
        (details(event(k)), (S.ACCEPTED, None, "Sent"))
        for k in ("Opened", "LinkClicked", "SubscriptionChanged")
    ),
    (details(event("NewWord")), (S.UNKNOWN, R.UNKNOWN_TOKEN, "NewWord")),
    (details(event(None)), (S.UNKNOWN, R.UNKNOWN_TOKEN, "")),
    (details(event("sent to a@b.example")), (S.UNKNOWN, R.UNKNOWN_TOKEN, "withheld")),
]


@pytest.mark.parametrize(("body", "meaning"), WORDS)
def test_a_word_means_what_the_table_says(body: Any, meaning: Any) -> None:
    found = postmark((200, body)).look_up(ID)
    assert (found.answer, found.message_id) == (LookupAnswer.ANSWERED, ID)
    assert (found.provider_state, found.reason, found.raw_token) == meaning


BOUNCES = {
    ("HardBounce", "BadEmailAddress"): (S.FAILED_PERMANENT, R.INVALID_RECIPIENT),
    ("Blocked", "SpamNotification", "DMARCPolicy", "ChallengeVerification"): (S.FAILED_PERMANENT, R.BLOCKED),
    ("ManuallyDeactivated", "Unsubscribe", "ManualSuppression"): (S.FAILED_PERMANENT, R.PROVIDER_SUPPRESSED),
    ("SpamComplaint",): (S.FAILED_PERMANENT, R.COMPLAINT),
    ("TemplateRenderingFailed", "InboundError"): (S.FAILED_PERMANENT, R.CONTENT_REFUSED),
    ("Transient", "DnsError", "SoftBounce"): (S.FAILED_TEMPORARY, R.TEMPORARY_FAILURE),
    ("Unknown", "SMTPApiError", "VirusNotification"): (S.FAILED_TEMPORARY, R.TEMPORARY_FAILURE),
    ("AutoResponder", "AddressChange", "Subscribe", "OpenRelayTest"): (S.DELIVERED, None),  # of before
    ("Whatever", ""): (S.DELIVERED, None),
}


@pytest.mark.parametrize(("kind", "meaning"), [(k, m) for ks, m in BOUNCES.items() for k in ks])
def test_a_bounce_counts_by_its_own_type(kind: str, meaning: Any) -> None:
    told = details(event("Delivered"), event("Bounced", "2026-09-21T14:13:21.5Z", BounceID=692560173))
    asked = postmark((200, told), (200, {"ID": 692560173, "Type": kind}))
    found = asked.look_up(ID)
    expected = (S.DELIVERED, None) if meaning[0] is S.FAILED_TEMPORARY else meaning
    assert (found.provider_state, found.reason) == expected
    assert asked.seen[1].url.path == "/bounces/692560173"
    alone = postmark((200, details(event("Bounced", BounceID=1))), (200, {"Type": kind})).look_up(ID)
    of_before = {S.DELIVERED: S.UNKNOWN if kind in ("Whatever", "") else S.ACCEPTED}
    assert alone.provider_state is of_before.get(meaning[0], meaning[0])


@pytest.mark.parametrize("number", [None, "7", -1, True, {}, 1.5])
def test_a_bounce_without_a_usable_number_is_no_answer(number: Any) -> None:
    asked = postmark((200, details(event("Bounced", BounceID=number))))
    assert asked.look_up(ID).answer is LookupAnswer.MALFORMED
    assert len(asked.seen) == 1


@pytest.mark.parametrize(
    ("status", "body", "answer"),
    [
        (422, refusal(701), LookupAnswer.MALFORMED),
        (500, b"", LookupAnswer.UNAVAILABLE),
        (429, b"", LookupAnswer.THROTTLED),
        (401, refusal(10), LookupAnswer.CREDENTIALS),
    ],
)
def test_a_bounce_that_cannot_be_read_is_not_guessed(status: int, body: Any, answer: LookupAnswer) -> None:
    asked = postmark((200, details(event("Bounced", BounceID=1))), (status, body))
    assert (asked.look_up(ID).answer, asked.look_up(ID).provider_state) == (answer, None)


ANSWERS: list[tuple[int, Any, LookupAnswer]] = [
    (422, refusal(701), LookupAnswer.NOT_FOUND),
    (404, b"<html>", LookupAnswer.MALFORMED),
    (422, refusal(402), LookupAnswer.MALFORMED),
    (200, details() | {"MessageID": "another"}, LookupAnswer.MALFORMED),
    (200, details() | {"MessageEvents": None}, LookupAnswer.MALFORMED),
    (200, details() | {"MessageEvents": [7]}, LookupAnswer.MALFORMED),
]


@pytest.mark.parametrize(("status", "body", "answer"), ANSWERS)
def test_an_answer_about_no_message_says_nothing(status: int, body: Any, answer: LookupAnswer) -> None:
    found = postmark((status, body)).look_up(ID)
    assert (found.answer, found.provider_state) == (answer, None)


def entry(reference: str = MAIL.reference, **more: Any) -> dict[str, Any]:
    return {"MessageID": ID, "Metadata": {"attempt": reference}, "Status": "Sent"} | more


@pytest.mark.parametrize(
    ("messages", "answer", "message_id"),
    [
        ([], LookupAnswer.NOT_FOUND, None),
        ([entry()], LookupAnswer.ANSWERED, ID),
        ([entry(Status="Failed", MessageID="x"), entry()], LookupAnswer.ANSWERED, ID),
        ([entry("another.email")], LookupAnswer.MALFORMED, None),
        ([entry(Metadata=None)], LookupAnswer.MALFORMED, None),
        (None, LookupAnswer.MALFORMED, None),
    ],
)
def test_our_reference_finds_a_message_and_only_ours(
    messages: Any, answer: LookupAnswer, message_id: str | None
) -> None:
    asked = postmark((200, {"TotalCount": 1, "Messages": messages}))
    found = asked.look_up()
    assert (found.answer, found.message_id) == (answer, message_id)
    assert asked.seen[0].url.params["metadata_attempt"] == MAIL.reference


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("2026-09-21T14:13:20.1234567+00:00", NOW + 123),
        ("2026-09-21T09:13:20-05:00", NOW),
        ("2026-09-21T14:13:20", None),  # without a zone (case F27)
        ("yesterday", None),
        ("9999-12-31T23:59:59Z", None),
    ],
)
def test_a_time_counts_with_its_zone_only(text: str, at_ms: int | None) -> None:
    assert postmark((200, details(event("Delivered", text)))).look_up(ID).provider_time_ms == at_ms
