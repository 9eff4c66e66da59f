"""The only place that moves an intent: state and one input in, new state, effects and a reason out.

The table and the story above it are in `streams.core.table`. This module must not ask the time, roll
dice or read a setting: whatever it needs is an argument.
"""

from __future__ import annotations

from schemas.attempt import Attempt, AttemptState
from schemas.codec import Undecodable, decode
from schemas.decision import CloseKind, InputKind, Phase
from schemas.ids import Channel
from schemas.intent import IntentRequested, IntentSuperseded
from schemas.observation import Observation
from schemas.policy import BounceAfterDelivered
from schemas.reasons import Reason, ReasonClass
from schemas.record import TopicKind
from schemas.tick import Tick, TickCause
from streams.core import claim, due, facts, intake, invariants, polling
from streams.core.acts import (
    close,
    finish,
    new_stage,
    policy_of,
    suppress,
)
from streams.core.draft import Context, Draft, Input, where
from streams.core.effects import Fate, Step, SuppressionOrder
from streams.core.evidence import SUPPRESSING
from streams.core.state import EarlyFact, IntentState
from streams.core.table import Move

_BOTH = (Channel.EMAIL, Channel.SMS)
# These say nothing about the intent as a whole: the channel is simply not used any more.
_CHANNEL_ONLY = frozenset({Reason.EXPIRED, Reason.CONFLICTING_REQUEST})
_WENT_OUT = frozenset({AttemptState.ACCEPTED, AttemptState.DELIVERED})
_OVER = frozenset({AttemptState.FAILED, AttemptState.REFUSED})
_NOT_OUT = _OVER | {AttemptState.HELD, AttemptState.NOT_ACCEPTED}
_TOPIC_OF = {
    InputKind.COMPLETION.value: TopicKind.INTENTS,
    InputKind.CANCELLATION.value: TopicKind.INTENTS,
    InputKind.ATTEMPT.value: TopicKind.ATTEMPTS,
    InputKind.OBSERVATION.value: TopicKind.OBSERVATIONS,
    InputKind.INSTRUCTION.value: TopicKind.INSTRUCTIONS,
}


def steps(state: IntentState | None, given: Input, context: Context) -> list[Step]:
    """Account for one input, and for the facts that were parked for it. Never empty, never partial.

    Raises `InvariantBroken`, or whatever a fault of ours raises; nothing has changed then.
    """
    first = step(state, given, context)
    found = [first]
    if state is None or first.state is None or not first.state.request_digest:
        return found
    for fact in state.early:
        parked = step(found[-1].state, _unpark(fact, state.intent_id, given.at_ms), context)
        parked.was_parked = True
        found.append(parked)
    return found


def _unpark(fact: EarlyFact, intent_id: str, at_ms: int) -> Input:
    record = decode(_TOPIC_OF[fact.kind], intent_id.encode(), fact.value)
    if isinstance(record, Undecodable):
        raise TypeError(f"a parked fact cannot be read back: {record.reason.value}")
    return Input(record, InputKind(fact.kind), where(fact.topic, fact.partition, fact.offset), at_ms)


def step(state: IntentState | None, given: Input, context: Context) -> Step:
    """One input of one intent, checked against the invariants."""
    known = state if state is not None else IntentState(given.record.intent_id)  # type: ignore[attr-defined]
    draft = Draft(known, given, context)
    found = _dispatch(state, known, draft)
    invariants.check(known, found, draft)
    return found


def _dispatch(state: IntentState | None, known: IntentState, draft: Draft) -> Step:
    given = draft.input
    if not known.request_digest:
        return _before_request(state, draft)
    ends = intake.end_reason(given.record)
    if ends is not None:
        return _end(known, draft, ends)
    match given.kind:
        case InputKind.REQUEST:
            return _repeat(known, draft)
        case InputKind.TICK:
            return _tick(known, draft)
        case InputKind.INSTRUCTION:
            return _release(known, draft)
        case _:
            return _news(known, draft)


def _before_request(state: IntentState | None, draft: Draft) -> Step:
    """No request was read yet: take it, park a fact, or give up what was parked too long."""
    given = draft.input
    if isinstance(given.record, IntentRequested):
        return intake.take(given.record, draft)
    if given.kind is InputKind.TICK:
        if state is not None and draft.now_ms >= state.forget_ms:
            return intake.give_up(state, draft)
        return draft.absorbed(state)
    if isinstance(given.record, IntentSuperseded):
        return draft.absorbed(state)  # said because of its request, which lies before it: it was forgotten
    if isinstance(given.record, Observation):
        _suppress_unknown(draft, given.record)
    return intake.park(state, given, draft)


def _suppress_unknown(draft: Draft, seen: Observation) -> None:
    """A permanent failure of an intent that was forgotten still counts for the person."""
    if seen.fingerprint and seen.reason in SUPPRESSING and seen.reason is not None:
        draft.suppressions.append(
            SuppressionOrder(seen.fingerprint, seen.channel, seen.reason, seen.provider_account)
        )


def _repeat(state: IntentState, draft: Draft) -> Step:
    """The same id again: the first request stands; a difference is refused once."""
    request = draft.input.record
    if not isinstance(request, IntentRequested):
        raise TypeError("a request was expected")
    digest = intake.digest_of(request)
    if digest in (state.request_digest, state.conflict_digest):
        return draft.absorbed(state)
    draft.state.conflict_digest = digest
    draft.because(Reason.CONFLICTING_REQUEST)
    return finish(draft)


def _end(state: IntentState, draft: Draft, reason: Reason) -> Step:
    """The person did it, the service withdrew it, or a newer request replaced it. What is in flight is
    recorded as an overlap."""
    new = draft.state
    if reason is Reason.COMPLETED:
        if new.completed:
            return draft.absorbed(state)
        new.completed = True
    if state.closed is not None:
        if reason is not Reason.COMPLETED or state.closed is CloseKind.COMPLETED:
            return draft.absorbed(state)
        draft.because(reason)
        draft.because(Reason.LATE_EVIDENCE)
        return finish(draft)
    draft.because(reason)
    if any(
        t is not None and t.submission_no and t.state is AttemptState.PENDING for t in (new.email, new.sms)
    ):
        new.overlap = True
        draft.because(Reason.OVERLAP)
    close(draft, reason)
    return finish(draft)


def _release(state: IntentState, draft: Draft) -> Step:
    """Out of quarantine, or out of a hold before its time. What was learnt meanwhile counts now."""
    if state.closed is not None:
        return draft.absorbed(state)
    draft.state.quarantined = False
    pulled = _try_holds_now(draft, every=True)
    if not state.quarantined and not pulled:
        return draft.absorbed(state)
    draft.because(Reason.RELEASED)
    if state.quarantined:
        _consequences(draft)
        for channel in _BOTH:
            polling.after_news(draft, channel)
    return finish(draft)


def _try_holds_now(draft: Draft, *, every: bool = False) -> bool:
    """A control changed, or an operator says so: what is held is due now. Whether anything was held."""
    state, now, pulled = draft.state, draft.now_ms, False
    news = state.hold_controls_offset != draft.context.controls.offset
    if state.hold_reason is not None and (every or (news and state.hold_reason is Reason.CONTROL_PAUSED)):
        if state.intake_due_ms > now:
            state.intake_due_ms, pulled = now, True
        elif state.claim_due_ms > now:
            state.claim_due_ms, pulled = now, True
    for track in (state.email, state.sms):
        if track is None or track.state is not AttemptState.HELD or track.retry_ms <= now:
            continue
        if every or track.reason is Reason.CONTROL_PAUSED:
            track.retry_ms, pulled = now, True
    return pulled


def _news(state: IntentState, draft: Draft) -> Step:
    """An attempt or an observation: join it, then look at what follows from it at once."""
    record = draft.input.record
    if isinstance(record, Attempt):
        changed, channel = facts.take_attempt(draft, record), record.channel
        if changed:
            draft.because(_attempt_reason(record))
    elif isinstance(record, Observation):
        changed, channel = facts.take_observation(draft, record), record.channel
        if changed:
            suppress(draft, channel, _fingerprint(state, channel))
    else:
        raise TypeError(f"no rule for {type(record).__name__}")
    if not changed:
        return draft.absorbed(state)
    _count_needless(state, draft)
    if state.closed is not None:
        _after_the_end(draft)
    elif not state.quarantined:
        _consequences(draft)
        polling.after_news(draft, channel)
    return finish(draft)


def _fingerprint(state: IntentState, channel: Channel) -> str | None:
    return state.email_fingerprint if channel is Channel.EMAIL else state.sms_fingerprint


_ATTEMPT_REASONS = {
    AttemptState.ACCEPTED: Reason.ACCEPTED,
    AttemptState.DELIVERED: Reason.DELIVERED,
    AttemptState.UNKNOWN: Reason.SUBMIT_UNKNOWN,
}


def _attempt_reason(attempt: Attempt) -> Reason:
    return _ATTEMPT_REASONS.get(attempt.state) or attempt.reason or Reason.SUBMIT_UNKNOWN


def _after_the_end(draft: Draft) -> None:
    """Evidence after the end is appended; a message that went out all the same is an honest overlap."""
    state = draft.state
    draft.above_all(Reason.LATE_EVIDENCE)
    late = draft.input.record
    if not state.overlap and isinstance(late, Attempt) and late.state in _WENT_OUT:
        state.overlap = True
        draft.because(Reason.OVERLAP)


def _count_needless(prior: IntentState, draft: Draft) -> None:
    """E-mail proved delivered only after the claim; a delivery that bounced before it does not count."""
    state, before, email = draft.state, prior.email, draft.state.email
    news = email is not None and email.facts.delivered_ms and before and not before.facts.delivered_ms
    if prior.claimed_ms and not state.needless and news:
        state.needless = True
        draft.because(Reason.NEEDLESS_FALLBACK)


def _consequences(draft: Draft) -> None:
    """What the facts mean for the phase, now."""
    state = draft.state
    for track in (state.email, state.sms):
        reason = track.reason if track is not None and track.state in _NOT_OUT else None
        if reason is not None and reason.reason_class is ReasonClass.INTENT and reason not in _CHANNEL_ONLY:
            draft.above_all(reason)
            state.completed = state.completed or reason is Reason.COMPLETED
            close(draft, reason)
            return
    _email_consequences(draft)
    _sms_consequences(draft)


def _email_consequences(draft: Draft) -> None:
    state, email = draft.state, draft.state.email
    if email is None:
        return
    if state.phase is Phase.EMAIL_PENDING:
        if email.facts.failed_ms and not email.facts.delivered_ms:
            draft.move(Move.EMAIL_FAILED)
            claim.attempt(draft, Reason.CONCLUSIVE_FAILURE)
        elif email.facts.delivered_ms:
            draft.move(Move.EMAIL_DELIVERED)
            state.claim_due_ms, state.hold_reason = 0, None
            new_stage(email)
    if state.phase is Phase.EMAIL_DELIVERED and email.facts.failed_ms:
        draft.because(Reason.BOUNCE_AFTER_DELIVERED)
        untried = not state.claim_due_ms and state.sms_refused is None
        if untried and policy_of(draft).bounce_after_delivered is BounceAfterDelivered.FALLBACK:
            claim.attempt(draft, Reason.CONCLUSIVE_FAILURE)


def _sms_consequences(draft: Draft) -> None:
    state, sms = draft.state, draft.state.sms
    if sms is None:
        return
    if state.phase is Phase.SMS_CLAIMED and sms.facts.accepted_ms and not sms.facts.failed_ms:
        draft.move(Move.SMS_ACCEPTED)
    if state.phase not in (Phase.SMS_CLAIMED, Phase.SMS_ACCEPTED):
        return
    if sms.facts.delivered_ms:
        draft.move(Move.SMS_DELIVERED)
    elif sms.facts.failed_ms or sms.state in _OVER:
        draft.move(Move.SMS_FAILED)
        draft.because(Reason.EXHAUSTED)


def _tick(state: IntentState, draft: Draft) -> Step:
    """Time has passed. Everything that is due is looked at again; nothing due changes nothing."""
    now, new, tick = draft.now_ms, draft.state, draft.input.record
    if state.closed is not None:
        return Step(Fate.ABSORBED, None if now >= state.forget_ms else state, draft.input.trigger)
    if now >= state.expiry_ms:
        _expire(draft)
    elif state.quarantined:
        return draft.absorbed(state)
    elif state.email is None:
        if now >= state.intake_due_ms:  # no control holds an intake
            intake.start(draft)
    else:
        if isinstance(tick, Tick) and tick.cause is TickCause.CONTROL:
            _try_holds_now(draft)
        if new.claim_due_ms and now >= new.claim_due_ms:
            claim.when_due(draft)
    if draft.state.closed is None and not state.quarantined and draft.state.email is not None:
        for channel in _BOTH:
            polling.due_submission(draft, channel)
        _sms_consequences(draft)
        for channel in _BOTH:
            polling.due_look(draft, channel)
            if draft.reason is not None:
                polling.after_news(draft, channel)
    if draft.reason is None and not draft.silent:
        return draft.absorbed(state)
    return finish(draft)


def _expire(draft: Draft) -> None:
    """The expiry ends everything; an SMS that may still be confirmed is watched through the grace."""
    state = draft.state
    if draft.now_ms < due.end_ms(state, draft.policy):
        return
    if state.phase in (Phase.EMAIL_DELIVERED, Phase.SMS_DELIVERED, Phase.EXHAUSTED):
        reason = Reason.SETTLED
    elif state.sms is not None and state.sms.state in due.IN_FLIGHT:
        reason = Reason.UNRESOLVED
    else:
        reason = Reason.EXPIRED
    draft.because(reason)
    close(draft, reason)
