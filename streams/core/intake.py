"""What becomes of a request, and of facts that come before it.

It must not order anything by itself but the one e-mail; the machine's other moves are not its business.
"""

from __future__ import annotations

from hashlib import sha256

from schemas.ids import Channel
from schemas.instruction import Instruction, InstructionAction
from schemas.intent import IntentCancelled, IntentCompleted, IntentRequested, IntentSuperseded
from schemas.policy import Policy
from schemas.publishers.refusals import REQUEST_AHEAD_MS_MAX
from schemas.reasons import Reason, ReasonClass
from schemas.record import Record
from schemas.subject import SubjectSeen, seen_of
from streams.core import due
from streams.core.acts import close, finish, order_submission
from streams.core.draft import Draft, Input
from streams.core.effects import Fate, GivenUp, Step
from streams.core.refusals import bounds_fault
from streams.core.schedule import hold_delay_ms
from streams.core.state import EARLY_FACTS_MAX, NEVER, EarlyFact, IntentState, Track

EARLY_AGE_MS_MAX = 600_000  # an outbox delivers within minutes; 10 min of parking is already a fault
UNKNOWN_EXPIRY_MS = 86_400_000  # a day: as long as anything of a purpose without a policy here may live
UNKNOWN_POLICY_WINDOW_MS = 60_000  # the least useful window assumed while the policy is unknown

_CLEAR = {"sealed"}
_ORDERED_ENDS = {
    InstructionAction.COMPLETE: Reason.COMPLETED,
    InstructionAction.CANCEL: Reason.CANCELLED,
    InstructionAction.FORCE_CLOSE: Reason.FORCE_CLOSED,
}


def digest_of(request: IntentRequested) -> str:
    """128 bits of SHA-256 over the clear fields: the same request sealed again has the same digest."""
    clear = request.__pydantic_serializer__.to_json(request, exclude=_CLEAR, exclude_none=True)
    return sha256(clear).hexdigest()[:32]


def sealed_digest_of(request: IntentRequested) -> str:
    return sha256(request.sealed.encode()).hexdigest()[:16]


def park(state: IntentState | None, given: Input, draft: Draft) -> Step:
    """Keep a fact whose intent was not seen; bounded per intent, completions are given up last."""
    fact = EarlyFact(
        given.kind.value,
        given.record.to_bytes(),
        given.trigger.topic,
        given.trigger.partition,
        given.trigger.offset,
        given.at_ms,
        end_reason(given.record),
    )
    new = draft.state
    if any((f.kind, f.value) == (fact.kind, fact.value) for f in new.early):
        return draft.absorbed(state)
    new.early.append(fact)
    if len(new.early) > EARLY_FACTS_MAX:
        worst = min(new.early, key=lambda f: (f.ends is not None, f.at_ms))
        new.early.remove(worst)
        draft.given_up.append(GivenUp(worst, Reason.PARKING_FULL))
    if not new.forget_ms:
        new.forget_ms = draft.now_ms + EARLY_AGE_MS_MAX
    due.arm(new, draft.policy)
    return draft.remembered(Fate.PARKED)


def give_up(state: IntentState, draft: Draft) -> Step:
    """The intent never came: every parked fact becomes a dead letter, and nothing is remembered."""
    return Step(
        Fate.ABSORBED,
        None,
        draft.input.trigger,
        given_up=[GivenUp(f, Reason.ORPHAN_EXPIRED) for f in state.early],
    )


def end_reason(record: Record) -> Reason | None:
    """Why this record ends an intent; None when it does not."""
    if isinstance(record, IntentCompleted):
        return Reason.COMPLETED
    if isinstance(record, IntentCancelled):
        return Reason.CANCELLED
    if isinstance(record, IntentSuperseded):
        return Reason.SUPERSEDED
    return _ORDERED_ENDS.get(record.action) if isinstance(record, Instruction) else None


def take(request: IntentRequested, draft: Draft) -> Step:
    """The first request of this id: remember it, check it, order its e-mail or end it."""
    state = draft.state
    state.request_digest = digest_of(request)
    state.sealed_digest = sealed_digest_of(request)
    state.tenant, state.purpose, state.policy = request.tenant, request.purpose, request.policy
    state.locale, state.country = request.locale, request.country
    state.email_fingerprint, state.sms_fingerprint = request.email_fingerprint, request.sms_fingerprint
    state.sms_consent = request.sms_consent is not None
    state.consent_ms = NEVER if request.sms_consent is None else request.sms_consent.granted_at_ms
    state.phone_verified_ms = request.phone_verified_at_ms or NEVER
    state.variables, state.publisher = request.variables, request.publisher or ""
    state.requested_ms = request.requested_at_ms
    state.deadline_ms, state.expiry_ms = request.deadline_ms, request.expiry_ms
    draft.policy = draft.context.policies.get(request.policy)
    draft.keep_sealed = True
    draft.subject = _subject_of(request, draft)
    if draft.now_ms >= state.expiry_ms:
        # It may have lived before and be forgotten: the coordinates keep its decision ids unique.
        where = draft.input.trigger
        state.life = f"@{where.partition}.{where.offset}"
    for fact in state.early:
        if fact.ends is not None:
            state.completed = fact.ends is Reason.COMPLETED
            draft.because(fact.ends)
            close(draft, fact.ends)
            return finish(draft)
    start(draft)
    return finish(draft)


def _subject_of(request: IntentRequested, draft: Draft) -> SubjectSeen | None:
    """What whoever keeps the subject must know of this request, also when it is refused here: the service has
    asked anew, and the link of the request before is dead, whatever becomes of this one."""
    if request.subject_key is None:
        return None
    at_ms = draft.input.at_ms
    longest_ms = max(
        (p.bounds.expiry_ms_max for p in draft.context.policies.values() if p.purpose == request.purpose),
        default=UNKNOWN_EXPIRY_MS,
    )
    # An older request was in the log by now, at most so far ahead of it, and lives no longer than this.
    return seen_of(request, log_ms=at_ms, forget_at_ms=at_ms + REQUEST_AHEAD_MS_MAX + longest_ms)


def start(draft: Draft) -> None:
    """Order the e-mail, hold, or end; also when a held intake is tried again."""
    state, policy = draft.state, draft.policy
    problem = _problem(draft, policy)
    state.intake_due_ms = 0
    if problem is None and policy is not None:
        state.hold_reason, state.hold_count = None, 0
        state.template = policy.template
        state.email = Track(account=policy.email.account)
        state.claim_due_ms = state.deadline_ms
        order_submission(draft, Channel.EMAIL)
        draft.because(Reason.INTAKE)
    elif problem is not None and problem.reason_class is ReasonClass.OURS:
        hold_anew = state.hold_reason is not problem
        state.hold_count = 0 if hold_anew else state.hold_count + 1
        state.hold_reason = problem
        state.intake_due_ms = min(draft.now_ms + hold_delay_ms(state.hold_count), state.expiry_ms)
        if hold_anew:
            draft.because(problem)
        else:
            draft.silent = True
    elif problem is not None:
        draft.because(problem)
        close(draft, problem)


def _problem(draft: Draft, policy: Policy | None) -> Reason | None:
    """Why this request cannot start now; class ours means later, class intent means never."""
    state, now = draft.state, draft.now_ms
    window = UNKNOWN_POLICY_WINDOW_MS if policy is None else policy.bounds.min_useful_window_ms
    if now >= state.expiry_ms or (policy is not None and state.expiry_ms <= now + window):
        return Reason.EXPIRED_AT_INTAKE
    if policy is None:
        return Reason.POLICY_UNKNOWN
    if policy.purpose != state.purpose:
        return Reason.PURPOSE_MISMATCH
    if bounds_fault(state, policy, now_ms=now) is not None:
        return Reason.OUT_OF_BOUNDS
    if policy.email.account not in draft.context.accounts:
        return Reason.ACCOUNT_UNKNOWN
    return draft.context.template_problem(policy.template, state.variables)
