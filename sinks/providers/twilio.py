"""Twilio Messaging (SMS): its numbers and words to ours (PROVIDERS.md §5). The body's `code` counts.

    submit: code of a 4xx                             ours
    2xx with a usable sid                             accepted, unless status and error_code say failed
    20429, HTTP 429; 21611 the sender's queue is full not accepted: throttled (never processed)
    21211 21614 21635 21217                           failed: invalid_recipient, suppress
    21610                                             failed: opted_out, suppress
    21408 21612                                       failed: blocked (geography, route)
    20003                                             held: credentials_refused
    any other number                                  held: account_problem (trial, sender, our request)
    no number, 5xx, lost                              by HTTP status (`outcomes`)

    status of a message                               ours
    accepted scheduled queued sending sent            accepted: «sent» stays where no receipt comes
    delivered read partially_delivered                delivered
    undelivered failed                                by error_code, below
    canceled                                          failed_permanent: blocked (nobody of ours cancels)
    any other, receiving received                     unknown, with the raw token kept

    error_code                                        ours
    30005 30006 21211 21614 21635                     failed_permanent: invalid_recipient
    21610                                             failed_permanent: opted_out
    30004 30007 30032 30034 30450 21408 21612         failed_permanent: blocked
    30001 30003 30008 30022 30036 30410               failed_temporary
    30002 63038, none, any other                      failed_permanent: blocked (the message is lost)

There is no idempotency key and no reference of ours, so a lost answer is for the policy to decide. Twilio
asks not to build on error_code: an unknown one costs nothing but the better reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from schemas.accounts import Account, Capabilities
from schemas.ids import Channel
from schemas.observation import LookupAnswer, ProviderState
from schemas.reasons import Reason
from sinks.providers import outcomes
from sinks.providers.adapter import Adapter, Options, Parts
from sinks.providers.base import LookupRequest, LookupResult, Submission, SubmitResult, recipient
from sinks.providers.credentials import BasicLogin, CredentialKind
from sinks.providers.http import FORM, Failure, Http, JsonObject, Reply, form_bytes, path_segment, usable_id
from sinks.providers.outcomes import Meaning
from sinks.providers.words import rfc2822_ms, word

_S, _R = ProviderState, Reason
TOO_MANY, QUEUE_FULL, NOT_FOUND, LOGIN_REFUSED = 20429, 21611, 20404, 20003
REFUSALS: dict[int, Reason] = {
    **dict.fromkeys((21211, 21614, 21635, 21217), _R.INVALID_RECIPIENT),
    21610: _R.OPTED_OUT,
    **dict.fromkeys((21408, 21612), _R.BLOCKED),
}
ERRORS: dict[int, Meaning] = {
    **dict.fromkeys((30005, 30006, 21211, 21614, 21635), (_S.FAILED_PERMANENT, _R.INVALID_RECIPIENT)),
    21610: (_S.FAILED_PERMANENT, _R.OPTED_OUT),
    **dict.fromkeys((30004, 30007, 30032, 30034, 30450, 21408, 21612), (_S.FAILED_PERMANENT, _R.BLOCKED)),
    **dict.fromkeys((30001, 30003, 30008, 30022, 30036, 30410), (_S.FAILED_TEMPORARY, _R.TEMPORARY_FAILURE)),
}
LOST: Meaning = (_S.FAILED_PERMANENT, _R.BLOCKED)  # undelivered or failed for another reason
STATUSES: dict[str, Meaning] = {
    **dict.fromkeys(("accepted", "scheduled", "queued", "sending", "sent"), (_S.ACCEPTED, None)),
    **dict.fromkeys(("delivered", "read", "partially_delivered"), (_S.DELIVERED, None)),
    "canceled": LOST,
}
_FAILED = frozenset({"undelivered", "failed"})
VALIDITY_S_MAX = 36_000


class TwilioOptions(Options):
    # The account, when the login is an API key (SK…) and not the account itself.
    account_sid: Annotated[str | None, Field(pattern="^AC[0-9a-f]{32}$")] = None
    # A messaging service instead of a sender.
    messaging_service_sid: Annotated[str | None, Field(pattern="^MG[0-9a-f]{32}$")] = None

    @model_validator(mode="after")
    def _one_sender(self) -> Self:
        if self.sender is not None and self.messaging_service_sid is not None:
            raise ValueError("name a sender or a messaging_service_sid, not both")
        return self


class TwilioProvider:
    """One account at Twilio. Safe between threads."""

    def __init__(self, account: Account, http: Http, options: TwilioOptions, *, account_sid: str) -> None:
        self._account, self._http, self._options = account, http, options
        self._messages = f"/2010-04-01/Accounts/{path_segment(account_sid)}/Messages"

    @property
    def account(self) -> Account:
        return self._account

    def submit(self, submission: Submission, *, now_ms: int, timeout_ms: int) -> SubmitResult:
        """One POST, once."""
        body = request_bytes(submission, self._options)
        answer = self._http.call(
            "POST", f"{self._messages}.json", timeout_ms=timeout_ms, body=body, content_type=FORM
        )
        return outcomes.not_sent(answer) if isinstance(answer, Failure) else submitted(answer, now_ms)

    def look_up(
        self, requests: Sequence[LookupRequest], *, now_ms: int, timeout_ms: int
    ) -> Sequence[LookupResult]:
        """One call each; all share `timeout_ms`."""
        share_ms = timeout_ms // max(1, len(requests))
        return [self._ask(request, now_ms, share_ms) for request in requests]

    def close(self) -> None:
        self._http.close()

    def _ask(self, request: LookupRequest, now_ms: int, timeout_ms: int) -> LookupResult:
        wanted = usable_id(request.message_id)
        if wanted is None:
            return LookupResult(LookupAnswer.SKIPPED)
        path = f"{self._messages}/{path_segment(wanted)}.json"
        answer = self._http.call("GET", path, timeout_ms=timeout_ms)
        code = None if isinstance(answer, Failure) else _number(answer.body, "code")
        bad = outcomes.no_answer(answer, now_ms, is_not_found=code == NOT_FOUND)
        if bad is not None or isinstance(answer, Failure):
            return bad or outcomes.MALFORMED
        body = answer.body or {}
        if body.get("sid") != wanted:
            return outcomes.MALFORMED
        meaning, raw = meaning_of(body)
        return outcomes.told(meaning, raw, message_id=wanted, at_ms=rfc2822_ms(body.get("date_updated")))


def request_bytes(submission: Submission, options: TwilioOptions) -> bytes:
    """The form: the same submission always gives the same bytes."""
    service = options.messaging_service_sid
    return form_bytes(
        [
            ("To", recipient(submission, Channel.SMS)),
            ("Body", submission.text),
            ("MessagingServiceSid", service) if service else ("From", options.sender or submission.sender),
            ("ValidityPeriod", str(max(1, min(VALIDITY_S_MAX, submission.ttl_ms // 1000)))),
            ("SmartEncoded", "false"),  # what was rendered and priced is what goes out
        ]
    )


def submitted(reply: Reply, now_ms: int) -> SubmitResult:
    """What an answer to a submission means."""
    if reply.is_success:
        return _taken(reply)
    code = _number(reply.body, "code")
    if code is None or not 400 <= reply.status < 500:
        return outcomes.by_status(reply, now_ms)
    if reply.status == 429 or code in (TOO_MANY, QUEUE_FULL):
        return outcomes.throttled(reply, now_ms)
    if code in REFUSALS:
        return outcomes.refused(REFUSALS[code])
    by_key = code == LOGIN_REFUSED
    return outcomes.held(reply, now_ms, Reason.CREDENTIALS_REFUSED if by_key else Reason.ACCOUNT_PROBLEM)


def _taken(reply: Reply) -> SubmitResult:
    message_id = usable_id(reply.text("sid"))
    (state, reason), _ = meaning_of(reply.body or {})
    if state is ProviderState.FAILED_PERMANENT and reason is not None:
        return outcomes.refused(reason, message_id)
    return outcomes.taken(message_id)


def meaning_of(body: JsonObject) -> tuple[Meaning, object]:
    """State and reason, and the raw token: the error code when there is one, else the status."""
    status, code = body.get("status"), _number(body, "error_code")
    if word(status) in _FAILED:
        return ERRORS.get(code or 0, LOST), status if code is None else f"{word(status)}:{code}"
    return STATUSES.get(word(status), outcomes.UNKNOWN_WORD), status


def _number(body: JsonObject | None, name: str) -> int | None:
    """A code, also one that came as text."""
    found = (body or {}).get(name)
    if isinstance(found, str) and re.fullmatch(r"[0-9]{1,9}", found, re.ASCII):
        return int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _make(parts: Parts) -> TwilioProvider:
    options = parts.options_as(TwilioOptions)
    sid = options.account_sid or parts.credential.name
    return TwilioProvider(parts.account, parts.http, options, account_sid=sid)


ADAPTER = Adapter(
    name="twilio",
    channels=frozenset({Channel.SMS}),
    make=_make,
    base_url="https://api.twilio.com",
    credential=CredentialKind.LOGIN,
    read_credential=BasicLogin,
    capabilities=Capabilities(
        lookup_by_message_id=True,
        # A message can be asked for as soon as its answer is out; the lists lag (PROVIDERS.md §5).
        visibility_delay_ms=60_000,
        time_to_live=True,
        sandbox=True,
        # One segment a second per long code; the API's own limit is concurrency and unpublished.
        submits_per_s=1.0,
        lookups_per_s=10.0,
    ),
    options=TwilioOptions,
)
