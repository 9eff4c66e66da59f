"""What a channel waits for: the next look-up, the ladder after a lost answer, the next submission.

It must not claim an SMS or close an intent (`streams.core.machine`).
"""

from __future__ import annotations

from schemas.attempt import AttemptState
from schemas.decision import Phase
from schemas.ids import Channel
from schemas.lookup import LookupPurpose
from schemas.policy import BounceAfterDelivered, WhenUnsure
from schemas.reasons import Reason
from streams.core.acts import (
    channel_policy,
    last_useful_ms,
    order_lookup,
    order_submission,
    plan_poll,
    policy_of,
    schedule_poll,
    track_of,
)
from streams.core.draft import Draft
from streams.core.facts import counts_ms
from streams.core.schedule import resubmit_delay_ms
from streams.core.state import Track

_AFTER_CLAIM = frozenset({Phase.SMS_CLAIMED, Phase.SMS_ACCEPTED, Phase.SMS_DELIVERED, Phase.EXHAUSTED})


def can_look(draft: Draft, track: Track) -> bool:
    """Whether the provider could tell us about this submission, with what we know of it."""
    caps = draft.capabilities(track)
    by_id = caps.lookup_by_message_id and track.message_id is not None
    return bool(track.submitted_ms) and (by_id or caps.lookup_by_reference)


def wants_look(draft: Draft, channel: Channel, track: Track) -> bool:
    """Whether an answer could still change anything, or belongs in the audit."""
    state = draft.state
    if not can_look(draft, track) or track.budget_spent or track.facts.failed_ms:
        return False
    if track.facts.delivered_ms:
        watched = policy_of(draft).bounce_after_delivered is BounceAfterDelivered.FALLBACK
        return channel is Channel.EMAIL and state.phase is Phase.EMAIL_DELIVERED and watched
    return True


def after_news(draft: Draft, channel: Channel) -> None:
    """Plan the next look-up or the next rung of the ladder once a channel's facts changed."""
    track = track_of(draft.state, channel)
    if track is None or draft.state.closed is not None:
        return
    if not wants_look(draft, channel, track):
        track.next_poll_ms = 0
        if track.budget_spent and not track.facts.failed_ms and not track.facts.delivered_ms:
            draft.because(Reason.POLL_BUDGET_SPENT)
    elif not track.next_poll_ms and not track.asked_until_ms:
        schedule_poll(draft, channel)
    if track.state is AttemptState.UNKNOWN and not track.retry_ms:
        _ladder(draft, channel, track)


def _ladder(draft: Draft, channel: Channel, track: Track) -> None:
    """A lost answer: look up; else the same bytes under the same key; else what the policy says."""
    policy = policy_of(draft)
    soon = channel_policy(policy, channel).resubmit_after_ms
    if can_look(draft, track) and not track.budget_spent:
        # One look exactly when «not found» counts next; before and after it the schedule is enough.
        counts = max(counts_ms(draft, track), track.paused_until_ms)
        if not track.asked_until_ms and counts > draft.now_ms:
            plan_poll(draft, channel, min(track.next_poll_ms or counts, counts))
        return
    seed = f"{draft.state.intent_id}/{channel.value}/{track.submission_no}"
    again = draft.now_ms + resubmit_delay_ms(soon, track.submission_no, seed=seed)
    if again >= last_useful_ms(draft.state, policy):
        return
    spent = track.real_submissions >= channel_policy(policy, channel).submissions_max
    if not spent and again < _key_until_ms(draft, track):
        track.retry_ms = again
    elif not spent and policy.when_unsure is WhenUnsure.RISK_DUPLICATE and not track.risked:
        track.risked = True
        track.retry_ms = again
        draft.because(Reason.RISK_DUPLICATE)
    elif not track.waiting:
        track.waiting = True
        draft.because(Reason.WAITING_UNSURE)


def due_look(draft: Draft, channel: Channel) -> None:
    """On a tick: count a look-up that was not answered in time, and order the one that is due."""
    track = track_of(draft.state, channel)
    if track is None:
        return
    if track.asked_until_ms and draft.now_ms >= track.asked_until_ms:
        track.asked_until_ms = 0
        draft.because(Reason.LOOKUP_LOST)
        schedule_poll(draft, channel)
    due = track.next_poll_ms and draft.now_ms >= track.next_poll_ms and not track.asked_until_ms
    if due and wants_look(draft, channel, track):
        order_lookup(draft, channel, _purpose(draft, channel, track))
        draft.because(Reason.POLL_DUE)
    elif due:
        track.next_poll_ms = 0
        draft.silent = True


def _purpose(draft: Draft, channel: Channel, track: Track) -> LookupPurpose:
    if track.state is AttemptState.UNKNOWN:
        return LookupPurpose.RESOLVE
    if channel is Channel.EMAIL and draft.state.phase in _AFTER_CLAIM:
        return LookupPurpose.AUDIT
    return LookupPurpose.SCHEDULE


def _key_until_ms(draft: Draft, track: Track) -> int:
    """Until when the provider knows the key of a submission that may have left; 0 when none may have."""
    caps = draft.capabilities(track)
    if not track.submitted_ms or not caps.idempotent_submit:
        return 0
    return track.submitted_ms + caps.idempotency_window_ms


def due_submission(draft: Draft, channel: Channel) -> None:
    """On a tick: order the next submission if one is due and the channel may still be used."""
    state, track = draft.state, track_of(draft.state, channel)
    if track is None or not track.retry_ms or draft.now_ms < track.retry_ms:
        return
    wanted = Phase.EMAIL_PENDING if channel is Channel.EMAIL else Phase.SMS_CLAIMED
    policy = policy_of(draft)
    if state.phase is not wanted or draft.now_ms >= last_useful_ms(state, policy):
        track.retry_ms = 0
        draft.silent = True
        return
    if track.real_submissions >= channel_policy(policy, channel).submissions_max:
        track.retry_ms = 0
        draft.because(Reason.SUBMISSIONS_SPENT)
        if channel is Channel.SMS:  # for an e-mail it proves nothing about the person: the deadline decides
            track.facts.failed_ms = draft.now_ms
            track.facts.failed_reason = Reason.SUBMISSIONS_SPENT
        return
    prior = track.state
    settled = prior is AttemptState.NOT_ACCEPTED and track.reason is Reason.NOT_FOUND
    order_submission(
        draft,
        channel,
        after_unknown=prior is AttemptState.UNKNOWN or settled,
        key_until_ms=0 if settled or track.risked else _key_until_ms(draft, track),
    )
    track.state = AttemptState.PENDING
    draft.because(Reason.RELEASED if prior is AttemptState.HELD else Reason.RESUBMITTED)
