"""Does the adapter put every code and word of its table where the table says."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.accounts import Account, Capabilities
from schemas.attempt import AttemptState
from schemas.destinations import EmailAddress, PhoneNumber
from schemas.errors import SettingsRefused
from schemas.ids import RAW_TOKEN_PATTERN, Channel
from schemas.observation import LookupAnswer, ProviderState
from schemas.reasons import Reason, ReasonClass
from sinks.providers.base import LookupRequest, Submission
from sinks.providers.credentials import BearerToken
from sinks.providers.http import Http
from sinks.providers.outcomes import SUPPRESSING
from sinks.providers.registry import build
from sinks.providers.simulated import (
    REFUSALS,
    TOKENS,
    WHY,
    SimulatedProvider,
    normalise,
    request_bytes,
)
from sinks.providers.words import sanitise

NOW = 1_790_000_000_000
CAPS = Capabilities(
    idempotent_submit=True,
    idempotency_window_ms=1000,
    lookup_by_message_id=True,
    lookup_by_reference=True,
    lookup_batch_max=10,
)
MAIL = Submission(
    reference="int-0001-test.email",
    to=EmailAddress.parse("canary@example.com"),
    sender="no-reply@example.com",
    text="Hello é",
    subject="Reset",
    html="<p>Hello</p>",
    ttl_ms=60_000,
)
A = AttemptState


def adapter(
    status: int,
    body: Any = None,
    *,
    retry_after: str | None = None,
    caps: Capabilities = CAPS,
    seen: list[httpx.Request] | None = None,
) -> SimulatedProvider:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def handler(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(request)
        headers = {} if retry_after is None else {"Retry-After": retry_after}
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(content))

    http = Http("http://127.0.0.1:1", monotonic=lambda: 0.0, transport=httpx.MockTransport(handler))
    account = Account(name="mail-a", provider="simulated", channel=Channel.EMAIL, capabilities=caps)
    return SimulatedProvider(account, http)


SUBMITS: list[tuple[int, Any, AttemptState, Reason | None, bool]] = [
    (202, {"id": "m-1", "status": "accepted"}, A.ACCEPTED, None, False),
    (200, {"id": "m-1", "status": "new-word"}, A.ACCEPTED, None, False),
    (202, {"id": "m-1", "status": None}, A.ACCEPTED, None, False),
    (202, b"\xef\xbb\xbf" + b'{"id": "m-1"}', A.ACCEPTED, None, False),
    # case F23: an answer that is not one is unknown, never failed
    (202, {}, A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (202, {"id": ""}, A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (202, {"id": None}, A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (202, {"id": 7}, A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (202, {"id": ".."}, A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (202, {"id": "x" * 600}, A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (200, b"<html>gateway</html>", A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (200, b"", A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (200, [], A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (200, None, A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (200, {"status": "error"}, A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    # case F35: refused by code, in three shapes
    (422, {"code": "invalid_recipient"}, A.FAILED, Reason.INVALID_RECIPIENT, True),
    (422, {"code": "suppressed", "detail": "wording changed"}, A.FAILED, Reason.PROVIDER_SUPPRESSED, True),
    (400, {"code": "opted_out"}, A.FAILED, Reason.OPTED_OUT, True),
    (422, {"code": "complained"}, A.FAILED, Reason.COMPLAINT, True),
    (422, {"code": "content_refused"}, A.FAILED, Reason.CONTENT_REFUSED, False),
    (422, {"code": "blocked"}, A.FAILED, Reason.BLOCKED, False),
    (200, {"id": "m-1", "code": "suppressed"}, A.FAILED, Reason.PROVIDER_SUPPRESSED, True),
    (200, {"id": "m-1", "status": "Suppressed"}, A.FAILED, Reason.PROVIDER_SUPPRESSED, True),
    # prose is not a code
    (422, {"code": "other", "detail": "invalid_recipient"}, A.HELD, Reason.ACCOUNT_PROBLEM, False),
    (422, b"recipient is suppressed", A.HELD, Reason.ACCOUNT_PROBLEM, False),
    # ours
    (401, {"code": "unauthorized"}, A.HELD, Reason.CREDENTIALS_REFUSED, False),
    (403, b"", A.HELD, Reason.CREDENTIALS_REFUSED, False),
    (403, {"code": "account_suspended"}, A.HELD, Reason.ACCOUNT_PROBLEM, False),
    (402, {"code": "payment_required"}, A.HELD, Reason.ACCOUNT_PROBLEM, False),
    (404, {"code": "no_such_account"}, A.HELD, Reason.ACCOUNT_PROBLEM, False),
    (401, {"code": "invalid_recipient"}, A.HELD, Reason.CREDENTIALS_REFUSED, False),
    (429, {"code": "too_many"}, A.NOT_ACCEPTED, Reason.THROTTLED, False),
    # case F08: two kinds of 409, both unknown, never a fresh key
    (409, {"code": "in_progress"}, A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (409, {"code": "idempotency_mismatch"}, A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    # case F09
    (302, b"", A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (408, b"", A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (500, {"code": "internal"}, A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (502, b"<html>", A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (503, {"code": "account_down"}, A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (503, {"code": "invalid_recipient"}, A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
    (500, {"code": "account_suspended"}, A.UNKNOWN, Reason.SUBMIT_UNKNOWN, False),
]


@pytest.mark.parametrize(("status", "body", "state", "reason", "suppress"), SUBMITS)
def test_a_submission_is_what_the_table_says(
    status: int, body: Any, state: AttemptState, reason: Reason | None, suppress: bool
) -> None:
    found = adapter(status, body).submit(MAIL, now_ms=NOW, timeout_ms=100)
    assert (found.state, found.reason, found.suppress) == (state, reason, suppress)
    assert found.message_id == ("m-1" if "m-1" in repr(body) else None)


@pytest.mark.parametrize("status", [401, 403, 409, 429, 503])
@pytest.mark.parametrize(("value", "at"), [("30", NOW + 30_000), ("soon", None), (None, None)])
def test_a_named_time_travels_with_the_result(status: int, value: str | None, at: int | None) -> None:
    found = adapter(status, {}, retry_after=value).submit(MAIL, now_ms=NOW, timeout_ms=100)
    assert found.retry_at_ms == at


@pytest.mark.parametrize(
    ("kind", "state", "reason"),
    [
        (httpx.ConnectError, A.NOT_ACCEPTED, Reason.PROVIDER_UNREACHABLE),
        (httpx.ReadTimeout, A.UNKNOWN, Reason.SUBMIT_UNKNOWN),
        (httpx.RemoteProtocolError, A.UNKNOWN, Reason.SUBMIT_UNKNOWN),
    ],
)
def test_a_lost_call_is_not_accepted_only_before_the_first_byte(
    kind: type[httpx.RequestError], state: AttemptState, reason: Reason
) -> None:
    def handler(_request: httpx.Request) -> httpx.Response:
        raise kind("x")

    http = Http("http://127.0.0.1:1", monotonic=lambda: 0.0, transport=httpx.MockTransport(handler))
    found = SimulatedProvider(adapter(200).account, http).submit(MAIL, now_ms=NOW, timeout_ms=100)
    assert (found.state, found.reason) == (state, reason)


def test_a_submission_is_one_post_with_tracking_off_and_the_key_that_never_changes() -> None:
    seen: list[httpx.Request] = []
    provider = adapter(202, {"id": "m-1"}, seen=seen)
    for _ in range(2):
        provider.submit(MAIL, now_ms=NOW, timeout_ms=100)
    first, again = seen
    assert first.content == again.content == request_bytes(MAIL, Channel.EMAIL)
    assert first.headers["idempotency-key"] == MAIL.reference
    assert json.loads(first.content)["tracking"] == {"opens": False, "clicks": False}
    assert (first.method, first.url.path) == ("POST", "/v1/mail-a/messages")


def test_an_account_without_idempotency_gets_no_key() -> None:
    seen: list[httpx.Request] = []
    adapter(202, {"id": "m-1"}, caps=Capabilities(), seen=seen).submit(MAIL, now_ms=NOW, timeout_ms=1)
    assert "idempotency-key" not in seen[0].headers


def test_an_sms_has_no_parts_of_an_email() -> None:
    text = Submission("int-0001-test.sms", PhoneNumber.parse("+447700900123"), "Backstop", "Hi", ttl_ms=9)
    assert json.loads(request_bytes(text, Channel.SMS)) == {
        "reference": "int-0001-test.sms",
        "to": "+447700900123",
        "from": "Backstop",
        "text": "Hi",
        "ttl_ms": 9,
    }


def test_a_reference_that_is_no_dispatch_key_is_a_fault_of_ours() -> None:
    with pytest.raises(ValueError, match="dispatch key"):
        adapter(202).submit(Submission("int é", MAIL.to, "s", "t"), now_ms=NOW, timeout_ms=1)


ONE = {"id": "m-1", "reference": "ref-1", "status": "delivered", "reason": None, "at_ms": NOW - 5}
ASK = LookupRequest("ref-1", "m-1", 1)
BY_REFERENCE = LookupRequest("ref-1", None, 1)
L = LookupAnswer

LOOKUPS: list[tuple[int, Any, LookupAnswer]] = [
    (200, ONE, L.ANSWERED),
    (200, ONE | {"id": "m-2"}, L.MALFORMED),
    (200, {"status": "delivered"}, L.MALFORMED),
    (200, {"status": "error"}, L.MALFORMED),
    (200, [], L.MALFORMED),
    (200, b"<html>", L.MALFORMED),
    (200, b"", L.MALFORMED),
    (404, {"code": "not_found"}, L.NOT_FOUND),
    (404, b"<html>nginx</html>", L.MALFORMED),
    (404, {"code": "no_such_account"}, L.CREDENTIALS),
    (401, {"code": "unauthorized"}, L.CREDENTIALS),
    (403, b"", L.CREDENTIALS),
    (429, {}, L.THROTTLED),
    (408, b"", L.UNAVAILABLE),
    (500, {}, L.UNAVAILABLE),
    (503, {"code": "unavailable"}, L.UNAVAILABLE),
    (302, b"", L.MALFORMED),
    (400, {"code": "bad_request"}, L.MALFORMED),
]


@pytest.mark.parametrize(("status", "body", "answer"), LOOKUPS)
def test_a_look_up_is_what_the_table_says(status: int, body: Any, answer: LookupAnswer) -> None:
    (found,) = adapter(status, body).look_up([ASK], now_ms=NOW, timeout_ms=100)
    assert found.answer is answer
    assert (found.provider_state is not None) == (answer is L.ANSWERED)


@pytest.mark.parametrize("status", [401, 429, 503])
def test_a_named_time_travels_with_the_answer_and_a_malformed_one_is_told(status: int) -> None:
    (found,) = adapter(status, {}, retry_after="30").look_up([ASK], now_ms=NOW, timeout_ms=100)
    assert (found.retry_at_ms, found.retry_after_malformed) == (NOW + 30_000, False)
    (found,) = adapter(status, {}, retry_after="-5").look_up([ASK], now_ms=NOW, timeout_ms=100)
    assert (found.retry_at_ms, found.retry_after_malformed) == (None, True)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"messages": []}, (L.NOT_FOUND, None)),
        ({"messages": [ONE]}, (L.ANSWERED, "m-1")),
        ({"messages": [ONE | {"status": "bounced", "id": "m-0"}, ONE]}, (L.ANSWERED, "m-1")),
        ({"messages": [ONE, ONE | {"reference": "ref-2"}]}, (L.MALFORMED, None)),
        ({"messages": [None]}, (L.MALFORMED, None)),
        ({"messages": {}}, (L.MALFORMED, None)),
        ({}, (L.MALFORMED, None)),
    ],
)
def test_a_search_by_reference_believes_only_our_own_messages(body: Any, expected: Any) -> None:
    seen: list[httpx.Request] = []
    (found,) = adapter(200, body, seen=seen).look_up([BY_REFERENCE], now_ms=NOW, timeout_ms=100)
    assert (found.answer, found.message_id) == expected
    assert seen[0].url.params["reference"] == "ref-1"


def test_a_batch_is_one_call_answered_by_id_in_any_order() -> None:
    seen: list[httpx.Request] = []
    body = {"messages": [ONE | {"id": "m-2", "status": "sent"}, ONE, ONE | {"id": "stranger"}]}
    asks = [LookupRequest(f"ref-{i}", f"m-{i}", 1) for i in (1, 2, 3)]
    found = adapter(200, body, seen=seen).look_up(asks, now_ms=NOW, timeout_ms=100)
    assert [(r.answer, r.provider_state) for r in found] == [
        (L.ANSWERED, ProviderState.DELIVERED),
        (L.ANSWERED, ProviderState.ACCEPTED),
        (L.NOT_FOUND, None),
    ]
    assert json.loads(seen[0].content) == {"ids": ["m-1", "m-2", "m-3"]}
    assert len(seen) == 1


@pytest.mark.parametrize("odd", [{"status": "sent"}, {"id": 7}, {"id": ".."}])
def test_absence_from_a_batch_with_an_unnamed_entry_proves_nothing(odd: Any) -> None:
    asks = [LookupRequest(f"ref-{i}", f"m-{i}", 1) for i in (1, 2)]
    found = adapter(200, {"messages": [ONE, odd]}).look_up(asks, now_ms=NOW, timeout_ms=100)
    assert [r.answer for r in found] == [L.ANSWERED, L.MALFORMED]


def test_a_batch_over_the_accounts_limit_is_a_fault_of_ours() -> None:
    with pytest.raises(ValueError, match="at most 10"):
        adapter(200).look_up([ASK] * 11, now_ms=NOW, timeout_ms=1)


def test_an_account_that_can_look_up_nothing_is_not_asked() -> None:
    seen: list[httpx.Request] = []
    (found,) = adapter(200, ONE, caps=Capabilities(), seen=seen).look_up([ASK], now_ms=NOW, timeout_ms=1)
    assert (found.answer, seen) == (L.SKIPPED, [])


@pytest.mark.parametrize(
    ("token", "why", "state", "reason"),
    [
        ("Delivered", None, ProviderState.DELIVERED, None),
        (" DELIVERED ", None, ProviderState.DELIVERED, None),
        ("Temporary-Failure", None, ProviderState.FAILED_TEMPORARY, Reason.TEMPORARY_FAILURE),
        ("opted out", None, ProviderState.FAILED_PERMANENT, Reason.OPTED_OUT),
        ("bounced", "mailbox_unknown", ProviderState.FAILED_PERMANENT, Reason.INVALID_RECIPIENT),
        ("bounced", "a new code", ProviderState.FAILED_PERMANENT, Reason.PERMANENT_BOUNCE),
        ("bounced", None, ProviderState.FAILED_PERMANENT, Reason.PERMANENT_BOUNCE),
        ("undeliverable", "unreachable", ProviderState.FAILED_PERMANENT, Reason.BLOCKED),
        ("complained", None, ProviderState.FAILED_PERMANENT, Reason.COMPLAINT),
        ("delivered", "mailbox_unknown", ProviderState.DELIVERED, None),
        ("undelivered", None, ProviderState.UNKNOWN, Reason.UNKNOWN_TOKEN),
        ("DLR_TIMEOUT", None, ProviderState.UNKNOWN, Reason.UNKNOWN_TOKEN),
        ("sent-internationally", None, ProviderState.UNKNOWN, Reason.UNKNOWN_TOKEN),
        ("partially_delivered", None, ProviderState.UNKNOWN, Reason.UNKNOWN_TOKEN),
        ("", None, ProviderState.UNKNOWN, Reason.UNKNOWN_TOKEN),
        (None, None, ProviderState.UNKNOWN, Reason.UNKNOWN_TOKEN),
        (7, None, ProviderState.UNKNOWN, Reason.UNKNOWN_TOKEN),
        ({"delivery-status": None}, {}, ProviderState.UNKNOWN, Reason.UNKNOWN_TOKEN),
    ],
)
def test_a_word_in_any_spelling_is_known_or_unknown_and_never_final_by_mistake(
    token: Any, why: Any, state: ProviderState, reason: Reason | None
) -> None:
    assert normalise(token, why)[:2] == (state, reason)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(JSON, JSON)
@example("delivered to victim@example.com", None)
@example("\ud83d", "\ud83d")
def test_any_json_value_as_a_word_gives_a_token_our_records_take(token: Any, why: Any) -> None:
    _, _, raw = normalise(token, why)
    assert re.fullmatch(RAW_TOKEN_PATTERN, raw)


@pytest.mark.parametrize(
    "word",
    [
        "bounced victim@example.com",
        "to %40 b",
        "+44 7700 900 123",
        "see https://a.example",
        "Dear Ann Example it failed",
    ],
)
def test_a_word_that_may_name_a_person_is_withheld(word: str) -> None:
    assert sanitise(word) == "withheld"


def test_the_tables_use_reasons_of_the_right_class() -> None:
    for state, reason in TOKENS.values():
        failed = state is ProviderState.FAILED_PERMANENT
        assert failed == (reason is not None and reason.reason_class is ReasonClass.RECIPIENT)
    assert all(r.reason_class is ReasonClass.RECIPIENT for r in (*WHY.values(), *REFUSALS.values()))
    assert Reason.BLOCKED not in SUPPRESSING
    assert Reason.CONTENT_REFUSED not in SUPPRESSING


def test_the_registry_refuses_a_provider_without_an_adapter_and_an_address_that_is_none() -> None:
    account = adapter(200).account
    token = BearerToken("tok-canary")
    other = account.model_copy(update={"provider": "nobody"})
    with pytest.raises(SettingsRefused, match="no adapter named nobody"):
        build(other, base_url="http://127.0.0.1:1", credential=token, monotonic=lambda: 0.0)
    with pytest.raises(SettingsRefused, match="base address"):
        build(account, base_url="http://mail.example", credential=token, monotonic=lambda: 0.0)
    made = build(account, base_url="http://127.0.0.1:1", credential=token, monotonic=lambda: 0.0)
    assert made.account == account
    assert "canary" not in repr(made)
    made.close()
