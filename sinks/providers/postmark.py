"""Postmark (e-mail): its numbers and words to ours (PROVIDERS.md §6). The body's `ErrorCode` counts.

    submit: ErrorCode (in any answer of 2xx or 4xx)   ours
    0 with a usable MessageID                         accepted
    406 inactive recipient                            failed: provider_suppressed, suppress
    300, and Message names 'To'                       failed: invalid_recipient, suppress
    10                                                held: credentials_refused
    100 maintenance                                   not accepted: throttled (it says it is not working)
    any other number, 300 about another field         held: account_problem (sender, credits, stream, …)
    no number                                         by HTTP status (`outcomes`); 500 and lost: unknown

    Type of an event                                  ours
    Delivered                                         delivered
    Transient                                         failed_temporary: Postmark goes on trying
    Bounced                                           by the Type of the bounce it names
    Opened LinkClicked SubscriptionChanged            nothing: opens are not evidence
    any other                                         unknown, with the raw token kept
    no event; Status Queued Scheduled Processed Sent  accepted: «Sent» is not delivered
    no event; Status Blocked, Failed                  failed_permanent: blocked, content_refused

    Type of a bounce                                  ours
    HardBounce BadEmailAddress                        failed_permanent: invalid_recipient
    Blocked SpamNotification DMARCPolicy ChallengeVerification      failed_permanent: blocked
    ManuallyDeactivated Unsubscribe ManualSuppression failed_permanent: provider_suppressed
    SpamComplaint                                     failed_permanent: complaint
    TemplateRenderingFailed InboundError              failed_permanent: content_refused
    Transient DnsError SoftBounce Unknown SMTPApiError VirusNotification   failed_temporary
    AutoResponder AddressChange Subscribe OpenRelayTest             nothing
    any other                                         unknown

Our reference travels as `Metadata.attempt`, by which a lost answer is found again. There are no idempotency
keys: a repeated POST is a second message. Tracking is off in every e-mail.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from schemas.accounts import Account, Capabilities
from schemas.ids import Channel
from schemas.observation import LookupAnswer, ProviderState
from schemas.reasons import Reason
from sinks.providers import outcomes
from sinks.providers.adapter import Adapter, Options, Parts
from sinks.providers.base import LookupRequest, LookupResult, Submission, SubmitResult, recipient
from sinks.providers.credentials import ApiKey, CredentialKind
from sinks.providers.http import Failure, Http, JsonObject, Reply, path_segment, usable_id
from sinks.providers.outcomes import Meaning
from sinks.providers.words import iso_ms

_S, _R = ProviderState, Reason
MAINTENANCE, TOKEN_REFUSED, INVALID_REQUEST, INACTIVE, NO_SUCH_MESSAGE = 100, 10, 300, 406, 701
EVENTS: dict[str, Meaning] = {
    "Delivered": (_S.DELIVERED, None),
    "Transient": (_S.FAILED_TEMPORARY, _R.TEMPORARY_FAILURE),
}
BOUNCES: dict[str, Meaning] = {
    **dict.fromkeys(("HardBounce", "BadEmailAddress"), (_S.FAILED_PERMANENT, _R.INVALID_RECIPIENT)),
    **dict.fromkeys(
        ("Blocked", "SpamNotification", "DMARCPolicy", "ChallengeVerification"),
        (_S.FAILED_PERMANENT, _R.BLOCKED),
    ),
    **dict.fromkeys(
        ("ManuallyDeactivated", "Unsubscribe", "ManualSuppression"),
        (_S.FAILED_PERMANENT, _R.PROVIDER_SUPPRESSED),
    ),
    "SpamComplaint": (_S.FAILED_PERMANENT, _R.COMPLAINT),
    **dict.fromkeys(("TemplateRenderingFailed", "InboundError"), (_S.FAILED_PERMANENT, _R.CONTENT_REFUSED)),
    **dict.fromkeys(
        ("Transient", "DnsError", "SoftBounce", "Unknown", "SMTPApiError", "VirusNotification"),
        (_S.FAILED_TEMPORARY, _R.TEMPORARY_FAILURE),
    ),
}
STATUSES: dict[str, Meaning] = {
    **dict.fromkeys(("Queued", "Scheduled", "Processed", "Sent"), (_S.ACCEPTED, None)),
    "Blocked": (_S.FAILED_PERMANENT, _R.BLOCKED),
    "Failed": (_S.FAILED_PERMANENT, _R.CONTENT_REFUSED),
}
NO_NEWS = frozenset(
    {"Opened", "LinkClicked", "SubscriptionChanged"}
    | {"AutoResponder", "AddressChange", "Subscribe", "OpenRelayTest"}
)
ATTEMPT = "attempt"  # a metadata key has at most 20 characters, its value 80: a dispatch key has 70
FOUND_MAX = 50  # messages under one reference; two are already one too many
_NAMES_TO = re.compile(r"(?:Invalid|Error parsing) 'To'", re.IGNORECASE)


class PostmarkOptions(Options):
    # The message stream of the server; Postmark's own default.
    message_stream: str = "outbound"


class PostmarkProvider:
    """One server at Postmark. Safe between threads."""

    def __init__(self, account: Account, http: Http, options: PostmarkOptions) -> None:
        self._account, self._http, self._options = account, http, options

    @property
    def account(self) -> Account:
        return self._account

    def submit(self, submission: Submission, *, now_ms: int, timeout_ms: int) -> SubmitResult:
        """One POST, once."""
        body = request_bytes(submission, self._options)
        answer = self._http.call("POST", "/email", timeout_ms=timeout_ms, body=body)
        return outcomes.not_sent(answer) if isinstance(answer, Failure) else submitted(answer, now_ms)

    def look_up(
        self, requests: Sequence[LookupRequest], *, now_ms: int, timeout_ms: int
    ) -> Sequence[LookupResult]:
        """One call each; a second for the type of a bounce. All share `timeout_ms`."""
        share_ms = timeout_ms // (2 * max(1, len(requests)))
        return [self._ask(request, now_ms, share_ms) for request in requests]

    def close(self) -> None:
        self._http.close()

    def _ask(self, request: LookupRequest, now_ms: int, timeout_ms: int) -> LookupResult:
        wanted = usable_id(request.message_id)
        if wanted is None:
            return self._search(request.reference, now_ms, timeout_ms)
        path = f"/messages/outbound/{path_segment(wanted)}/details"
        answer = self._http.call("GET", path, timeout_ms=timeout_ms)
        bad = _no_answer(answer, now_ms)
        if bad is not None or isinstance(answer, Failure):
            return bad or outcomes.MALFORMED
        body = answer.body or {}
        if body.get("MessageID") != wanted:
            return outcomes.MALFORMED
        return self._described(body, wanted, now_ms, timeout_ms)

    def _search(self, reference: str, now_ms: int, timeout_ms: int) -> LookupResult:
        query = {"count": str(FOUND_MAX), "offset": "0", f"metadata_{ATTEMPT}": reference}
        answer = self._http.call("GET", "/messages/outbound", timeout_ms=timeout_ms, query=query)
        bad = _no_answer(answer, now_ms)
        if bad is not None or isinstance(answer, Failure):
            return bad or outcomes.MALFORMED
        entries = outcomes.listed(answer.body, "Messages")
        if entries is None or not all(_is_under(entry, reference) for entry in entries):
            return outcomes.MALFORMED
        return outcomes.best(
            outcomes.told(STATUSES.get(_text(e, "Status"), outcomes.UNKNOWN_WORD), e.get("Status"),
                          message_id=usable_id(e.get("MessageID")), at_ms=iso_ms(e.get("ReceivedAt")))
            for e in entries
        )  # fmt: skip

    def _described(self, body: JsonObject, message_id: str, now_ms: int, timeout_ms: int) -> LookupResult:
        events = outcomes.listed(body, "MessageEvents")
        if events is None:
            return outcomes.MALFORMED
        status = body.get("Status")
        found = [outcomes.told(STATUSES.get(_text(body, "Status"), outcomes.UNKNOWN_WORD), status)]
        for event in events:
            kind = event.get("Type")
            if kind in NO_NEWS:
                continue
            meaning = EVENTS.get(_text(event, "Type"), outcomes.UNKNOWN_WORD)
            if kind == "Bounced":
                kind = self._bounce(event, now_ms, timeout_ms)
                if isinstance(kind, LookupResult):
                    return kind
                if kind in NO_NEWS:
                    continue
                meaning = BOUNCES.get(kind, outcomes.UNKNOWN_WORD)
            found.append(outcomes.told(meaning, kind, at_ms=iso_ms(event.get("ReceivedAt"))))
        return outcomes.latest(found, message_id)

    def _bounce(self, event: JsonObject, now_ms: int, timeout_ms: int) -> str | LookupResult:
        """The type of the bounce an event names: the event itself does not say whether it is for good."""
        details = event.get("Details")
        number = details.get("BounceID") if isinstance(details, dict) else None
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            return outcomes.MALFORMED
        answer = self._http.call("GET", f"/bounces/{number}", timeout_ms=timeout_ms)
        bad = _no_answer(answer, now_ms)
        if bad is not None or isinstance(answer, Failure):
            return bad if bad is not None and bad.answer is not LookupAnswer.NOT_FOUND else outcomes.MALFORMED
        return answer.text("Type")


def request_bytes(submission: Submission, options: PostmarkOptions) -> bytes:
    """The request body: the same submission always gives the same bytes."""
    fields: JsonObject = {
        "From": options.sender or submission.sender,
        "To": recipient(submission, Channel.EMAIL),
        "Subject": submission.subject,
        "TextBody": submission.text,
        "HtmlBody": submission.html,
        "Metadata": {ATTEMPT: submission.reference},
        "MessageStream": options.message_stream,
        "TrackOpens": False,
        "TrackLinks": "None",
    }
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def submitted(reply: Reply, now_ms: int) -> SubmitResult:
    """What an answer to a submission means."""
    code = _code(reply)
    if code is None or (reply.status >= 500 and code != MAINTENANCE):
        return outcomes.UNSURE if reply.is_success else outcomes.by_status(reply, now_ms)
    if reply.status == 429 or code == MAINTENANCE:
        return outcomes.throttled(reply, now_ms)
    if code == 0:
        return outcomes.taken(usable_id(reply.text("MessageID"))) if reply.is_success else outcomes.UNSURE
    if code == INACTIVE:
        return outcomes.refused(Reason.PROVIDER_SUPPRESSED)
    if code == INVALID_REQUEST and _NAMES_TO.match(reply.text("Message")):
        return outcomes.refused(Reason.INVALID_RECIPIENT)
    by_key = code == TOKEN_REFUSED
    return outcomes.held(reply, now_ms, Reason.CREDENTIALS_REFUSED if by_key else Reason.ACCOUNT_PROBLEM)


def _code(reply: Reply) -> int | None:
    found = (reply.body or {}).get("ErrorCode")
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _no_answer(answer: Reply | Failure, now_ms: int) -> LookupResult | None:
    code = None if isinstance(answer, Failure) else _code(answer)
    return outcomes.no_answer(answer, now_ms, is_not_found=code == NO_SUCH_MESSAGE)


def _is_under(entry: JsonObject, reference: str) -> bool:
    metadata = entry.get("Metadata")
    return isinstance(metadata, dict) and metadata.get(ATTEMPT) == reference


def _text(entry: JsonObject, name: str) -> str:
    found = entry.get(name)
    return found if isinstance(found, str) else ""


def _make(parts: Parts) -> PostmarkProvider:
    return PostmarkProvider(parts.account, parts.http, parts.options_as(PostmarkOptions))


ADAPTER = Adapter(
    name="postmark",
    channels=frozenset({Channel.EMAIL}),
    make=_make,
    base_url="https://api.postmarkapp.com",
    credential=CredentialKind.KEY,
    read_credential=ApiKey.under("X_Postmark_Server_Token"),
    capabilities=Capabilities(
        lookup_by_message_id=True,
        lookup_by_reference=True,
        # Undocumented (PROVIDERS.md §13, 5): a minute, as the others' lists take.
        visibility_delay_ms=60_000,
        suppression_list=True,
        sandbox=True,
        # No numeric limit is documented; these keep one account polite.
        submits_per_s=10.0,
        lookups_per_s=10.0,
    ),
    options=PostmarkOptions,
)
