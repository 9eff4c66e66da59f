"""What every provider's answers have in common, in our words: the HTTP status decides, never prose.

An adapter looks for its provider's codes first and comes here for the rest. It must not know a provider.

    submission                                ours
    no connection                             not accepted: provider_unreachable
    anything lost after the first byte        unknown
    429                                       not accepted: throttled, with the named time
    401 403                                   held: credentials_refused
    any other 4xx but 408 409 425             held: account_problem (nobody's address is at fault)
    408 409 425 1xx 3xx 5xx, a 2xx without an id   unknown
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from schemas.attempt import AttemptState
from schemas.observation import LookupAnswer, ProviderState
from schemas.reasons import Reason
from sinks.providers import retry_after
from sinks.providers.base import LookupResult, SubmitResult
from sinks.providers.http import Failure, JsonObject, Reply, Sent
from sinks.providers.words import sanitise

# Refusals that are about the address: it must not be written to again.
SUPPRESSING = frozenset(
    {Reason.INVALID_RECIPIENT, Reason.PROVIDER_SUPPRESSED, Reason.OPTED_OUT, Reason.COMPLAINT}
)
Meaning = tuple[ProviderState, Reason | None]  # of one word of a provider
UNSURE = SubmitResult(AttemptState.UNKNOWN, Reason.SUBMIT_UNKNOWN)
MALFORMED = LookupResult(LookupAnswer.MALFORMED)
NOT_FOUND = LookupResult(LookupAnswer.NOT_FOUND)
UNKNOWN_WORD: Meaning = (ProviderState.UNKNOWN, Reason.UNKNOWN_TOKEN)

# Of several messages under one reference the best news counts: a failure is final only when all failed.
_NEWS = (
    ProviderState.FAILED_PERMANENT,
    ProviderState.UNKNOWN,
    ProviderState.FAILED_TEMPORARY,
    ProviderState.ACCEPTED,
    ProviderState.DELIVERED,
)
_UNSURE_CODES = frozenset({408, 409, 425})


def not_sent(answer: Failure) -> SubmitResult:
    """No answer at all."""
    if answer.sent is Sent.NO:
        return SubmitResult(AttemptState.NOT_ACCEPTED, Reason.PROVIDER_UNREACHABLE)
    return UNSURE


def refused(reason: Reason, message_id: str | None = None) -> SubmitResult:
    """Refused for good, by code."""
    return SubmitResult(AttemptState.FAILED, reason, message_id, suppress=reason in SUPPRESSING)


def throttled(reply: Reply, now_ms: int) -> SubmitResult:
    """Known not to be taken."""
    return SubmitResult(AttemptState.NOT_ACCEPTED, Reason.THROTTLED, retry_at_ms=at_ms(reply, now_ms))


def held(reply: Reply, now_ms: int, reason: Reason = Reason.ACCOUNT_PROBLEM) -> SubmitResult:
    """Not taken for a reason that is ours: the account, the key, the request."""
    return SubmitResult(AttemptState.HELD, reason, retry_at_ms=at_ms(reply, now_ms))


def unsure(reply: Reply, now_ms: int) -> SubmitResult:
    return SubmitResult(AttemptState.UNKNOWN, Reason.SUBMIT_UNKNOWN, retry_at_ms=at_ms(reply, now_ms))


def taken(message_id: str | None) -> SubmitResult:
    """Accepted, when there is an id that we can ask for; else nobody knows."""
    return UNSURE if message_id is None else SubmitResult(AttemptState.ACCEPTED, message_id=message_id)


def by_status(reply: Reply, now_ms: int) -> SubmitResult:
    """An answer that is no success and has no code the adapter knows."""
    status = reply.status
    if status == 429:
        return throttled(reply, now_ms)
    if not 400 <= status < 500 or status in _UNSURE_CODES:
        return unsure(reply, now_ms)
    return held(reply, now_ms, Reason.CREDENTIALS_REFUSED if status in (401, 403) else Reason.ACCOUNT_PROBLEM)


def at_ms(reply: Reply, now_ms: int) -> int | None:
    """The time a `Retry-After` names."""
    return retry_after.parse(reply.retry_after, now_ms=now_ms).at_ms


# look-ups


def no_answer(
    answer: Reply | Failure, now_ms: int, *, is_not_found: bool = False, is_account: bool = False
) -> LookupResult | None:
    """Why this says nothing about the message; None when its body does.

    `is_not_found`: the adapter recognised its provider's own «no such message». A gateway's 404, or one for
    a path we spoilt, must not read as «was not accepted» (case F05). `is_account`: a code that is about us.
    """
    if isinstance(answer, Failure):
        return LookupResult(LookupAnswer.UNAVAILABLE)
    told = retry_after.parse(answer.retry_after, now_ms=now_ms)
    status, reason = answer.status, None
    if is_account and not answer.is_success:
        how, reason = LookupAnswer.CREDENTIALS, Reason.ACCOUNT_PROBLEM
    elif status in (401, 403):
        how, reason = LookupAnswer.CREDENTIALS, Reason.CREDENTIALS_REFUSED
    elif status == 429:
        how, reason = LookupAnswer.THROTTLED, Reason.THROTTLED
    elif status >= 500 or status in (408, 425):
        how = LookupAnswer.UNAVAILABLE
    elif is_not_found:
        how = LookupAnswer.NOT_FOUND
    elif answer.is_success and answer.body is not None:
        return None
    else:
        how = LookupAnswer.MALFORMED
    return LookupResult(how, reason=reason, retry_at_ms=told.at_ms, retry_after_malformed=told.malformed)


def listed(body: JsonObject | None, name: str) -> list[JsonObject] | None:
    """A list of objects in a body; None when it is anything else."""
    found = (body or {}).get(name)
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        return None
    return found


def best(results: Iterable[LookupResult]) -> LookupResult:
    """The best news among messages under one reference; not found without any."""
    found = list(results)
    if not found:
        return NOT_FOUND
    return max(found, key=lambda r: _NEWS.index(r.provider_state or ProviderState.UNKNOWN))


def told(
    meaning: Meaning, raw: object, *, message_id: str | None = None, at_ms: int | None = None
) -> LookupResult:
    """One message, or one event of it, as its provider describes it."""
    state, reason = meaning
    return LookupResult(
        LookupAnswer.ANSWERED,
        provider_state=state,
        reason=reason,
        raw_token=sanitise(raw),
        message_id=message_id,
        provider_time_ms=at_ms,
    )


def latest(found: Sequence[LookupResult], message_id: str) -> LookupResult:
    """Of all that a provider says of one message: a permanent failure, else a delivery, else the last in
    time (those without a time first). `found` is not empty."""
    state = {r.provider_state for r in found}
    for final in (ProviderState.FAILED_PERMANENT, ProviderState.DELIVERED):
        if final in state:
            found = [r for r in found if r.provider_state is final]
            break
    last = max(enumerate(found), key=lambda pair: (pair[1].provider_time_ms or 0, pair[0]))[1]
    return replace(last, message_id=message_id)
