"""What attempts and observations change in what is known of a channel, and whether they change anything.

It must not move a phase or order a thing; `streams.core.machine` looks at the facts afterwards.
"""

from __future__ import annotations

from schemas.attempt import ATTEMPT_RANK, Attempt, AttemptState
from schemas.decision import Looked
from schemas.ids import Channel
from schemas.observation import LookupAnswer, Observation, ProviderState
from schemas.reasons import Reason, ReasonClass
from streams.core.acts import channel_policy, last_useful_ms, policy_of, schedule_poll, track_of
from streams.core.draft import Draft
from streams.core.evidence import earliest, join, stronger
from streams.core.schedule import hold_delay_ms, resubmit_delay_ms
from streams.core.state import NEVER, Track

_STRONG = frozenset({AttemptState.ACCEPTED, AttemptState.DELIVERED})
MISSED_AGAIN_MS = 1_000  # «not found» twice within less may be one answer from one cache
PAUSE_MS_MAX = 3_600_000  # as the poller bounds it
_TOLD = frozenset({LookupAnswer.ANSWERED, LookupAnswer.NOT_FOUND})
_OF_STATE = {
    ProviderState.ACCEPTED: Reason.IN_FLIGHT,
    ProviderState.DELIVERED: Reason.DELIVERED,
    ProviderState.FAILED_TEMPORARY: Reason.TEMPORARY_FAILURE,
    ProviderState.UNKNOWN: Reason.UNKNOWN_TOKEN,
}


def take_attempt(draft: Draft, attempt: Attempt) -> bool:
    """Whether the attempt says something new; then the track knows it and the evidence is noted."""
    track = track_of(draft.state, attempt.channel)
    if track is None or not 1 <= attempt.submission_no <= track.submission_no:
        return False
    older = attempt.submission_no < track.submission_no
    if older and (attempt.state not in _STRONG or track.facts.accepted_ms):
        return False  # the order that followed already answers it
    if not older and ATTEMPT_RANK[attempt.state] <= ATTEMPT_RANK[track.state]:
        return False
    settled = track.state is AttemptState.NOT_ACCEPTED and track.reason is Reason.NOT_FOUND
    if settled and attempt.state is AttemptState.UNKNOWN:
        return False  # the same lost answer once more; a look-up has settled it
    draft.rely_on(
        attempt.channel,
        attempt.submission_no,
        says=attempt.state.value,
        reason=attempt.reason,
        observed_at_ms=attempt.at_ms,
    )
    first_word = track.state is AttemptState.PENDING
    if ATTEMPT_RANK[attempt.state] > ATTEMPT_RANK[track.state]:
        track.state, track.reason = attempt.state, attempt.reason
    track.account = attempt.provider_account
    if attempt.state not in (AttemptState.HELD, AttemptState.REFUSED):
        track.holds = 0
        track.real_submissions += first_word
    _take_state(draft, track, attempt)
    return True


def _take_state(draft: Draft, track: Track, attempt: Attempt) -> None:
    facts = track.facts
    match attempt.state:
        case AttemptState.ACCEPTED | AttemptState.DELIVERED | AttemptState.UNKNOWN:
            track.submitted_ms = earliest(track.submitted_ms, attempt.submitted_at_ms or attempt.at_ms)
            track.message_id = track.message_id or attempt.message_id
            # Without a lease nobody else can act after this attempt was told.
            track.lease_until_ms = max(attempt.lease_until_ms or 0, attempt.submitted_at_ms or attempt.at_ms)
            track.retry_ms = 0
            if attempt.state is not AttemptState.UNKNOWN:
                facts.accepted_ms = earliest(facts.accepted_ms, attempt.at_ms)
            if attempt.state is AttemptState.DELIVERED:
                facts.delivered_ms = earliest(facts.delivered_ms, attempt.at_ms)
        case AttemptState.FAILED | AttemptState.REFUSED:
            if attempt.reason is not None and attempt.reason.reason_class is ReasonClass.RECIPIENT:
                facts.failed_ms = earliest(facts.failed_ms, attempt.at_ms)
                facts.failed_reason = stronger(facts.failed_reason, attempt.reason)
                track.suppressed = True  # the dispatcher wrote it with the result
        case AttemptState.HELD | AttemptState.NOT_ACCEPTED:
            if draft.state.closed is None:
                track.retry_ms = _retry_ms(draft, track, attempt)


def _retry_ms(draft: Draft, track: Track, attempt: Attempt) -> int:
    """When to order again; never past the last useful instant (0: not at all)."""
    floor = channel_policy(policy_of(draft), attempt.channel).resubmit_after_ms
    if attempt.state is AttemptState.HELD:
        own = hold_delay_ms(track.holds)
        track.holds += 1
    else:
        own = resubmit_delay_ms(floor, track.submission_no, seed=attempt.attempt_id)
    # A time named by another is kept, but never makes a hot loop (VECTORS, Retry-After 0).
    at = draft.now_ms + own if attempt.retry_at_ms is None else max(draft.now_ms + floor, attempt.retry_at_ms)
    return at if at < last_useful_ms(draft.state, policy_of(draft)) else 0


def take_observation(draft: Draft, seen: Observation) -> bool:
    """Whether the observation changes what is known, or answers the look-up that is outstanding."""
    state, track = draft.state, track_of(draft.state, seen.channel)
    if track is None or seen.submission_no > track.submission_no:
        return False
    joined = join(track.facts, seen)
    answers = bool(track.asked_until_ms) and seen.poll_no == track.poll_no
    if joined == track.facts and not answers:
        return False
    track.facts = joined
    says = seen.provider_state.value if seen.provider_state is not None else seen.answer.value
    draft.rely_on(
        seen.channel,
        seen.submission_no,
        says=says,
        reason=seen.reason,
        raw_token=seen.raw_token,
        observed_at_ms=seen.observed_at_ms,
    )
    if seen.provider_state is not None and seen.answer is LookupAnswer.ANSWERED:
        _resolve(track, seen)
    elif seen.answer is LookupAnswer.NOT_FOUND:
        _not_found(draft, track, seen)
    if answers and state.closed is None:
        _answered(draft, track, seen)
    if draft.reason is None:
        draft.because(_reason(seen))
    return True


def _reason(seen: Observation) -> Reason:
    if seen.answer is LookupAnswer.NOT_FOUND:
        return Reason.NOT_FOUND_YET
    if seen.answer is not LookupAnswer.ANSWERED or seen.provider_state is None:
        return Reason.LOOKUP_FAILED
    if seen.provider_state is ProviderState.FAILED_PERMANENT:
        return seen.reason or Reason.PERMANENT_BOUNCE
    return _OF_STATE[seen.provider_state]


def _resolve(track: Track, seen: Observation) -> None:
    """The provider knows the message: whatever was unknown about its acceptance is known now."""
    if ATTEMPT_RANK[track.state] < ATTEMPT_RANK[AttemptState.ACCEPTED]:
        track.state, track.reason = AttemptState.ACCEPTED, None
    track.submitted_ms = earliest(track.submitted_ms, seen.observed_at_ms)
    track.message_id = track.message_id or seen.message_id
    track.retry_ms = 0


def _not_found(draft: Draft, track: Track, seen: Observation) -> None:
    """Counts only for a lost answer, from `counts_ms` on, and settles it the second time."""
    about_it = track.state is AttemptState.UNKNOWN and seen.submission_no == track.submission_no
    # A poller whose clock runs ahead saw it before the log did, whatever it says.
    at_ms = min(seen.observed_at_ms, draft.now_ms)
    if not about_it or at_ms < counts_ms(draft, track):
        return
    if not track.missed_ms:
        track.missed_ms = draft.now_ms
        return
    track.state, track.reason = AttemptState.NOT_ACCEPTED, Reason.NOT_FOUND
    if draft.state.closed is None:
        track.retry_ms = draft.now_ms
    draft.because(Reason.NOT_FOUND)


def counts_ms(draft: Draft, track: Track) -> int:
    """From here on the next «not found» counts: after the lease and the provider's visibility delay, and that
    delay once more after the first. One such answer about a message that is there is within what indexes
    do; two, a delay apart, are an answer."""
    delay_ms = draft.capabilities(track).visibility_delay_ms
    first_ms = max(track.lease_until_ms, track.submitted_ms) + delay_ms
    return max(first_ms, track.missed_ms + max(delay_ms, MISSED_AGAIN_MS)) if track.missed_ms else first_ms


def _answered(draft: Draft, track: Track, seen: Observation) -> None:
    """The outstanding look-up is answered, one way or another: count it and plan the next."""
    state, policy = draft.state, policy_of(draft)
    track.asked_until_ms = 0
    if seen.answer in _TOLD:
        track.answers += 1
        track.stage_answers += 1
        track.last_answer_ms = draft.now_ms
        if track.stage_answers >= channel_policy(policy, seen.channel).poll.answers_max:
            track.budget_spent = True
    looking = state.look_poll_no and state.looked is None and seen.channel is Channel.EMAIL
    if looking and state.look_poll_no == track.poll_no:
        if seen.answer in _TOLD:
            state.looked = Looked.ANSWERED
        if state.claim_due_ms:
            state.claim_due_ms = draft.now_ms
    # By the log's time: a clock that was ahead must not silence an account for as long as it was.
    track.paused_until_ms = min(seen.paused_until_ms or NEVER, draft.now_ms + PAUSE_MS_MAX)
    schedule_poll(draft, seen.channel)
