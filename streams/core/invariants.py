"""What must never be, checked after every step in production too. A breach quarantines the intent.

It must not repair anything: a broken invariant means the step is not applied.
"""

from __future__ import annotations

from schemas.decision import Phase, Verdict
from schemas.errors import InvariantBroken
from schemas.ids import Channel
from streams.core.draft import Draft
from streams.core.effects import Fate, Step
from streams.core.state import NEVER, IntentState
from streams.core.table import STEPS


def _must(holds: object, sentence: str) -> None:
    if not holds:
        raise InvariantBroken(sentence)


def check(prior: IntentState, step: Step, draft: Draft) -> None:
    """Raises `InvariantBroken` naming the first sentence that does not hold."""
    after = step.state
    if after is prior or after is None:
        _must(
            not step.dispatches and not step.lookups, "a step that forgets or changes nothing orders nothing"
        )
        return
    _must((step.decision is not None) == (step.fate is Fate.DECIDED), "a decided input has one decision")
    _must(after.last_now_ms >= prior.last_now_ms, "time does not go back")
    if prior.request_digest:
        _must(after.request_digest == prior.request_digest, "the first request stands")
        _must(
            after.deadline_ms == prior.deadline_ms and after.expiry_ms == prior.expiry_ms,
            "deadline and expiry never move",
        )
        _must(after.seq == prior.seq + (step.decision is not None), "one decision is one step of the chain")
        _path(prior, draft)
    if prior.closed is not None:
        _must(after.closed is prior.closed and after.phase is Phase.CLOSED, "closed never reopens")
        _must(not step.dispatches and not step.lookups, "closed orders nothing")
    _must(step.subject is None or not prior.request_digest, "a subject is told of with its request only")
    _claims(prior, after, draft)
    _orders(prior, after, step, draft)


def _path(prior: IntentState, draft: Draft) -> None:
    at = prior.phase
    for phase in draft.via:
        _must((at, phase) in STEPS, f"the table has no way from {at.value} to {phase.value}")
        at = phase
    _must(draft.state.phase is at, "a phase changes by a move only")


def _claims(prior: IntentState, after: IntentState, draft: Draft) -> None:
    if prior.claimed_ms:
        _must(after.claimed_ms == prior.claimed_ms, "an SMS is claimed at most once")
    _must(bool(after.claimed_ms) == (after.sms is not None), "an SMS exists only by a claim")
    if after.claimed_ms and not prior.claimed_ms and after.email is not None:
        conclusive = bool(after.email.facts.failed_ms)
        _must(
            conclusive or after.claimed_ms >= after.deadline_ms,
            "no SMS before the deadline without a failure",
        )
        window = 0 if draft.policy is None else draft.policy.bounds.min_useful_window_ms
        _must(after.claimed_ms < after.expiry_ms - window, "no SMS too late to be useful")
        _must(
            draft.gates and all(g.verdict is Verdict.OPEN for g in draft.gates), "no SMS past a closed gate"
        )
        _must(not after.completed, "no SMS for someone who is done")


def _orders(prior: IntentState, after: IntentState, step: Step, draft: Draft) -> None:
    for order in step.dispatches:
        _must(draft.now_ms < order.not_after_ms <= after.expiry_ms, "nothing is ordered too late")
        if order.channel is Channel.EMAIL:
            _must(not prior.claimed_ms, "no e-mail is ordered after the SMS claim")
        else:
            _permitted(after, draft)
    tracks = ((Channel.EMAIL, prior.email, after.email), (Channel.SMS, prior.sms, after.sms))
    for channel, before, now in tracks:
        number = before.submission_no if before is not None else 0
        ordered = [d.submission_no for d in step.dispatches if d.channel is channel]
        reached = now.submission_no if now is not None else number
        _must(
            reached - number == len(ordered) <= 1 and ordered in ([], [reached]),
            "submissions are numbered one by one",
        )


def _permitted(state: IntentState, draft: Draft) -> None:
    """Whatever ordered it, first or again: the gates are asked at the claim only, and once."""
    _must(draft.policy is not None, "no SMS without a policy")
    if draft.policy is None:
        return
    sms, asked_ms = draft.policy.sms, state.requested_ms
    _must(sms.allowed, "no SMS for a purpose that forbids it")
    _must(state.sms_fingerprint and state.country in sms.countries, "no SMS to a number that is not allowed")
    _must(state.sms_consent or not sms.consent_required, "no SMS without a consent")
    given_ms = state.consent_ms if sms.consent_age_ms_min else NEVER
    _must(asked_ms - given_ms >= sms.consent_age_ms_min, "no SMS on a consent that is too recent")
    known_ms = state.phone_verified_ms or asked_ms
    _must(asked_ms - known_ms >= sms.phone_age_ms_min, "no SMS to a number that is too recent")
