"""What a step can do: order a submission or a look-up, suppress, close, finish.

It must not choose when; `streams.core.machine` and its parts do.
"""

from __future__ import annotations

from schemas.attempt import AttemptState
from schemas.decision import CloseKind
from schemas.ids import Channel
from schemas.lookup import LookupPurpose
from schemas.policy import ChannelPolicy, Policy, UndispatchedEmail
from schemas.reasons import Reason
from streams.core import due
from streams.core.draft import Draft
from streams.core.effects import DispatchOrder, Fate, LookupOrder, Step, SuppressionOrder
from streams.core.evidence import SUPPRESSING
from streams.core.schedule import poll_delay_ms
from streams.core.state import IntentState, Track
from streams.core.table import Move

FORGET_AFTER_MS = 3_600_000  # an hour: what waits in a dispatcher or poller that is away comes by then

_ENDS = {
    Reason.COMPLETED: CloseKind.COMPLETED,
    Reason.CANCELLED: CloseKind.CANCELLED,
    Reason.FORCE_CLOSED: CloseKind.CANCELLED,
    Reason.CLOSED: CloseKind.CANCELLED,
    Reason.SUPERSEDED: CloseKind.SUPERSEDED,
    Reason.EXPIRED: CloseKind.EXPIRED,
    Reason.EXPIRED_AT_INTAKE: CloseKind.EXPIRED,
    Reason.SETTLED: CloseKind.SETTLED,
    Reason.UNRESOLVED: CloseKind.UNRESOLVED,
}


def policy_of(draft: Draft) -> Policy:
    """The policy of an intent that has started; it cannot start without one."""
    if draft.policy is None:
        raise LookupError(f"policy {draft.state.policy} was known when this intent started and is not now")
    return draft.policy


def track_of(state: IntentState, channel: Channel) -> Track | None:
    return state.email if channel is Channel.EMAIL else state.sms


def channel_policy(policy: Policy, channel: Channel) -> ChannelPolicy:
    return policy.email if channel is Channel.EMAIL else policy.sms


def last_useful_ms(state: IntentState, policy: Policy) -> int:
    """From this instant on nothing is sent any more: too little time is left to use it."""
    return state.expiry_ms - policy.bounds.min_useful_window_ms


def order_submission(
    draft: Draft, channel: Channel, *, after_unknown: bool = False, key_until_ms: int = 0
) -> None:
    """The next submission number of a channel, until the last useful instant."""
    state, policy = draft.state, policy_of(draft)
    track = track_of(state, channel)
    if track is None:
        raise AssertionError("an order without a track")
    track.submission_no += 1
    track.ordered_ms = draft.now_ms
    track.first_ordered_ms = track.first_ordered_ms or draft.now_ms
    track.retry_ms = track.missed_ms = 0
    skip = channel is Channel.EMAIL and policy.undispatched_email is UndispatchedEmail.SKIP_EMAIL
    draft.dispatches.append(
        DispatchOrder(
            channel,
            track.submission_no,
            track.account,
            last_useful_ms(state, policy),
            skip,
            after_unknown,
            key_until_ms,
        )
    )


def order_lookup(draft: Draft, channel: Channel, purpose: LookupPurpose) -> None:
    """One look-up; at most one is outstanding per channel."""
    state, track = draft.state, track_of(draft.state, channel)
    if track is None:
        raise AssertionError("a look-up without a track")
    within = channel_policy(policy_of(draft), channel).poll.answer_within_ms
    track.poll_no += 1
    track.stage_polls += 1
    track.next_poll_ms = 0
    track.asked_until_ms = draft.now_ms + within
    draft.lookups.append(
        LookupOrder(
            channel,
            track.submission_no,
            track.poll_no,
            purpose,
            track.account,
            track.message_id,
            track.submitted_ms,
            state.claim_due_ms if purpose is LookupPurpose.LAST_LOOK else track.asked_until_ms,
        )
    )


def schedule_poll(draft: Draft, channel: Channel) -> None:
    """The next look-up by schedule, one of them shortly before the deadline; none past the end."""
    state, policy, track = draft.state, policy_of(draft), track_of(draft.state, channel)
    if track is None or track.budget_spent:
        return
    schedule = channel_policy(policy, channel).poll
    seed = f"{state.intent_id}/{channel.value}/{track.poll_no + 1}"
    at = draft.now_ms + poll_delay_ms(schedule, track.stage_polls + 1, seed=seed)
    if channel is Channel.EMAIL and state.claim_due_ms:
        before_deadline = state.deadline_ms - policy.look_wait_ms
        if draft.now_ms < before_deadline < at:
            at = before_deadline
    plan_poll(draft, channel, max(at, track.paused_until_ms))


def plan_poll(draft: Draft, channel: Channel, at_ms: int) -> None:
    """The next look-up at this instant; none at or after the end of the channel's interest."""
    state, track = draft.state, track_of(draft.state, channel)
    if track is not None:
        grace = policy_of(draft).late_evidence_ms if channel is Channel.SMS else 0
        track.next_poll_ms = at_ms if at_ms < state.expiry_ms + grace else 0


def new_stage(track: Track) -> None:
    """A stage has its own budget of answers and starts its schedule anew."""
    track.stage_polls = track.stage_answers = 0
    track.budget_spent = False


def suppress(draft: Draft, channel: Channel, fingerprint: str | None) -> None:
    """A permanent failure seen by look-up enters the suppression list, once."""
    track = track_of(draft.state, channel)
    if track is None or track.suppressed or not fingerprint:
        return
    reason = track.facts.failed_reason
    if reason in SUPPRESSING:
        track.suppressed = True
        draft.suppressions.append(SuppressionOrder(fingerprint, channel, reason, track.account))


def close(draft: Draft, reason: Reason) -> None:
    """End the intent: nothing more is ordered, the payload is forgotten, a stub stays."""
    state = draft.state
    state.closed = _ENDS.get(reason, CloseKind.INVALID)
    draft.move(Move.CLOSE)
    state.forget_ms = _forget_ms(draft)
    state.claim_due_ms = state.intake_due_ms = 0
    for track in (state.email, state.sms):
        if track is not None:
            track.retry_ms = track.next_poll_ms = track.asked_until_ms = 0
    state.variables, state.locale, state.hold_reason = (), "", None
    draft.drop_sealed = True
    draft.keep_sealed = False


def _forget_ms(draft: Draft) -> int:
    """Late evidence is waited for from the expiry or from the end on, whichever is later. An order nobody
    answered, and an intake that was refused, are remembered for `FORGET_AFTER_MS` at least: the answer, or
    the repeat, must meet somebody who knows the intent."""
    state = draft.state
    late = draft.policy.late_evidence_ms if draft.policy is not None else 0
    tracks = [t for t in (state.email, state.sms) if t is not None]
    is_open = any(t.asked_until_ms or (t.submission_no and t.state is AttemptState.PENDING) for t in tracks)
    at_least = FORGET_AFTER_MS if is_open or not tracks else late
    return max(state.expiry_ms + late, draft.now_ms + at_least)


def finish(draft: Draft) -> Step:
    """Arm the next instant and close the books of this step."""
    due.arm(draft.state, draft.policy)
    if draft.state.request_digest:
        draft.state.early = []
    if draft.reason is None:
        return draft.remembered(Fate.ABSORBED)
    return draft.decided()
