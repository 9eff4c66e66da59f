"""The adapter for the provider simulator (`compose/simulator`): its words to ours, by code, never by prose.

    submit: HTTP, code                          ours
    2xx with a usable id                        accepted, unless code or status below say refused (case F35)
    2xx without one: HTML, empty, [], null      unknown
    400 422 invalid_recipient                   failed: invalid_recipient, suppress
    400 422 suppressed                          failed: provider_suppressed, suppress
    400 422 opted_out                           failed: opted_out, suppress
    400 422 complained                          failed: complaint, suppress
    400 422 blocked                             failed: blocked
    400 422 content_refused                     failed: content_refused
    429                                         not accepted: throttled, with the parsed time
    409 in_progress                             unknown: the same key later; 409 anything else: unknown
    401 403                                     held: credentials_refused
    an account code, 402 404 405, any other 4xx held: account_problem (nobody's address is at fault)
    408 425 3xx 5xx                             unknown
    no connection                               not accepted: provider_unreachable
    anything lost after the first byte          unknown

    status token, in any spelling               ours
    accepted queued sending sent processed      accepted
    deferred temporary_failure expired          failed_temporary: no fallback before the deadline
    delivered read                              delivered
    bounced                                     failed_permanent: permanent_bounce, or what `reason` says
    undeliverable failed blocked                failed_permanent: blocked, or what `reason` says
    rejected                                    failed_permanent: content_refused, or what `reason` says
    suppressed dropped opted_out complained     failed_permanent with that reason
    any other                                   unknown, with the raw token kept

A delivery report is never undone here, opens are not evidence, and tracking is off in every e-mail. It must
not decide, repeat a call, or keep a body.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from schemas.accounts import Account
from schemas.errors import InvariantBroken
from schemas.ids import Channel
from schemas.observation import LookupAnswer, ProviderState
from schemas.reasons import Reason
from sinks.providers import outcomes
from sinks.providers.adapter import Adapter
from sinks.providers.base import LookupRequest, LookupResult, Submission, SubmitResult, recipient
from sinks.providers.credentials import BearerToken, CredentialKind
from sinks.providers.http import Failure, Http, JsonObject, Reply, path_segment, usable_id
from sinks.providers.words import epoch_ms, sanitise, word

REFUSALS = {
    "invalid_recipient": Reason.INVALID_RECIPIENT,
    "suppressed": Reason.PROVIDER_SUPPRESSED,
    "opted_out": Reason.OPTED_OUT,
    "complained": Reason.COMPLAINT,
    "blocked": Reason.BLOCKED,
    "content_refused": Reason.CONTENT_REFUSED,
}
ACCOUNT_CODES = frozenset(
    {"no_such_account", "account_suspended", "sender_unverified", "quota_exceeded", "payment_required"}
)
_S, _R = ProviderState, Reason
TOKENS: dict[str, tuple[ProviderState, Reason | None]] = {
    **dict.fromkeys(("accepted", "queued", "sending", "sent", "processed"), (_S.ACCEPTED, None)),
    **dict.fromkeys(
        ("deferred", "temporary_failure", "expired"), (_S.FAILED_TEMPORARY, _R.TEMPORARY_FAILURE)
    ),
    **dict.fromkeys(("delivered", "read"), (_S.DELIVERED, None)),
    "bounced": (_S.FAILED_PERMANENT, _R.PERMANENT_BOUNCE),
    # Not a bounce of the address: a handset out of reach must not enter the suppression list for ever.
    **dict.fromkeys(("undeliverable", "failed", "blocked"), (_S.FAILED_PERMANENT, _R.BLOCKED)),
    "rejected": (_S.FAILED_PERMANENT, _R.CONTENT_REFUSED),
    **dict.fromkeys(("suppressed", "dropped"), (_S.FAILED_PERMANENT, _R.PROVIDER_SUPPRESSED)),
    "opted_out": (_S.FAILED_PERMANENT, _R.OPTED_OUT),
    "complained": (_S.FAILED_PERMANENT, _R.COMPLAINT),
}
WHY = {
    "mailbox_unknown": _R.INVALID_RECIPIENT,
    "number_unknown": _R.INVALID_RECIPIENT,
    "unreachable": _R.BLOCKED,
    **REFUSALS,
}
TRACKING_OFF = {"opens": False, "clicks": False}


class SimulatedProvider:
    """One account at the simulator. `http` carries base address and credential. Safe between threads."""

    def __init__(self, account: Account, http: Http) -> None:
        self._account, self._http = account, http
        self._messages = f"/v1/{account.name}/messages"

    @property
    def account(self) -> Account:
        return self._account

    def submit(self, submission: Submission, *, now_ms: int, timeout_ms: int) -> SubmitResult:
        """One POST, once. `ValueError` when the reference is not one of ours."""
        if usable_id(submission.reference) is None:
            raise ValueError("a submission's reference is a dispatch key")
        keyed = self._account.capabilities.idempotent_submit
        answer = self._http.call(
            "POST",
            self._messages,
            timeout_ms=timeout_ms,
            body=request_bytes(submission, self._account.channel),
            headers={"Idempotency-Key": submission.reference} if keyed else None,
        )
        if isinstance(answer, Failure):
            return outcomes.not_sent(answer)
        return _submitted(answer, now_ms)

    def look_up(
        self, requests: Sequence[LookupRequest], *, now_ms: int, timeout_ms: int
    ) -> Sequence[LookupResult]:
        """One result per request, in order. Those with an id share one call; each other one is a call, and
        all calls share `timeout_ms`."""
        caps = self._account.capabilities
        if len(requests) > caps.lookup_batch_max:
            raise ValueError(f"{len(requests)} look-ups at once; at most {caps.lookup_batch_max}")
        by_id = [r for r in requests if caps.lookup_by_message_id and usable_id(r.message_id) is not None]
        share_ms = timeout_ms // max(1, len(requests) - len(by_id) + bool(by_id))
        shared = {} if len(by_id) < 2 else self._ask_ids(by_id, now_ms, share_ms)
        return [shared.get(r) or self._ask_one(r, now_ms, share_ms) for r in requests]

    def close(self) -> None:
        self._http.close()

    def _ask_one(self, request: LookupRequest, now_ms: int, timeout_ms: int) -> LookupResult:
        caps = self._account.capabilities
        wanted = usable_id(request.message_id) if caps.lookup_by_message_id else None
        if wanted is not None:
            path = f"{self._messages}/{path_segment(wanted)}"
            answer = self._http.call("GET", path, timeout_ms=timeout_ms)
            bad = _no_answer(answer, now_ms)
            return bad or _described(_body(answer), wanted)
        if not caps.lookup_by_reference:
            return LookupResult(LookupAnswer.SKIPPED)
        query = {"reference": request.reference}
        answer = self._http.call("GET", self._messages, timeout_ms=timeout_ms, query=query)
        return _no_answer(answer, now_ms) or _best(_body(answer), request.reference)

    def _ask_ids(
        self, requests: Sequence[LookupRequest], now_ms: int, timeout_ms: int
    ) -> dict[LookupRequest, LookupResult]:
        body = json.dumps({"ids": [r.message_id for r in requests]}).encode()
        answer = self._http.call("POST", f"{self._messages}/lookup", timeout_ms=timeout_ms, body=body)
        bad = _no_answer(answer, now_ms)
        if bad is not None:
            return dict.fromkeys(requests, bad)
        listed = outcomes.listed(_body(answer), "messages")
        if listed is None:
            return dict.fromkeys(requests, outcomes.MALFORMED)
        found = {entry["id"]: entry for entry in listed if usable_id(entry.get("id"))}
        # An entry we cannot name may be any of those that are missing: then missing proves nothing.
        missing = outcomes.NOT_FOUND if len(found) == len(listed) else outcomes.MALFORMED
        return {
            r: _described(found[r.message_id], r.message_id) if r.message_id in found else missing
            for r in requests
        }


def request_bytes(submission: Submission, channel: Channel) -> bytes:
    """The request body: the same submission always gives the same bytes (case F08)."""
    fields: JsonObject = {
        "reference": submission.reference,
        "to": recipient(submission, channel),
        "from": submission.sender,
        "text": submission.text,
        "ttl_ms": submission.ttl_ms,
    }
    if channel is Channel.EMAIL:
        fields |= {"subject": submission.subject, "html": submission.html, "tracking": dict(TRACKING_OFF)}
        if any(fields["tracking"].values()):
            raise InvariantBroken("an e-mail would be sent with tracking on", scope="partition")
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def _submitted(reply: Reply, now_ms: int) -> SubmitResult:
    code, status = reply.text("code"), reply.status
    if (reply.is_success or status in (400, 422)) and code in REFUSALS:
        return outcomes.refused(REFUSALS[code], usable_id(reply.text("id")))
    if reply.is_success:
        return _taken(reply)
    if status in (401, 403) and code in ACCOUNT_CODES:
        return outcomes.held(reply, now_ms)
    return outcomes.by_status(reply, now_ms)


def _taken(reply: Reply) -> SubmitResult:
    body = reply.body or {}
    message_id = usable_id(body.get("id"))
    state, reason, _ = normalise(body.get("status"), body.get("reason"))
    if state is ProviderState.FAILED_PERMANENT and reason is not None:
        return outcomes.refused(reason, message_id)
    return outcomes.taken(message_id)


def _no_answer(answer: Reply | Failure, now_ms: int) -> LookupResult | None:
    """Why this says nothing about the message; None when its body does."""
    if isinstance(answer, Failure):
        return outcomes.no_answer(answer, now_ms)
    code = answer.text("code")
    return outcomes.no_answer(
        answer,
        now_ms,
        is_not_found=answer.status == 404 and code == "not_found",
        is_account=code in ACCOUNT_CODES,
    )


def _body(answer: Reply | Failure) -> JsonObject:
    return answer.body or {} if isinstance(answer, Reply) else {}


def _best(body: JsonObject, reference: str) -> LookupResult:
    """The best news among the messages under our reference."""
    entries = outcomes.listed(body, "messages")
    if entries is None or any(entry.get("reference") != reference for entry in entries):
        return outcomes.MALFORMED
    return outcomes.best(_described(entry, None) for entry in entries)


def _described(entry: JsonObject, wanted: str | None) -> LookupResult:
    """One message as the provider describes it. Another message's answer is not an answer (case F05)."""
    if wanted is not None and entry.get("id") != wanted:
        return outcomes.MALFORMED
    state, reason, raw = normalise(entry.get("status"), entry.get("reason"))
    return LookupResult(
        LookupAnswer.ANSWERED,
        provider_state=state,
        reason=reason,
        raw_token=raw,
        message_id=usable_id(entry.get("id")),
        provider_time_ms=epoch_ms(entry.get("at_ms")),
    )


def normalise(token: object, why: object = None) -> tuple[ProviderState, Reason | None, str]:
    """State, reason and the sanitised raw token. Total: whatever is not a known word is `unknown` (F22)."""
    state, reason = TOKENS.get(word(token), outcomes.UNKNOWN_WORD)
    if state is ProviderState.FAILED_PERMANENT:
        reason = WHY.get(word(why), reason)
    return state, reason, sanitise(token)


ADAPTER = Adapter(
    name="simulated",
    channels=frozenset(Channel),
    make=lambda parts: SimulatedProvider(parts.account, parts.http),
    base_url="http://127.0.0.1:8025",
    credential=CredentialKind.BEARER,
    read_credential=BearerToken,
    capabilities=None,  # it can do whatever an account says
)
