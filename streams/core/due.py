"""The next instant at which an intent wants a tick, and how late that tick may be.

It must not read a clock: both instants are part of the state.
"""

from __future__ import annotations

from schemas.attempt import AttemptState
from schemas.decision import Phase
from schemas.policy import Policy
from streams.core.state import IntentState

IN_FLIGHT = frozenset({AttemptState.PENDING, AttemptState.UNKNOWN, AttemptState.ACCEPTED})
_SMS_WAITS = frozenset({Phase.SMS_CLAIMED, Phase.SMS_ACCEPTED})


def end_ms(state: IntentState, policy: Policy | None) -> int:
    """When time closes it: at expiry, or after the grace while an SMS may still be confirmed."""
    in_flight = state.phase in _SMS_WAITS and state.sms is not None and state.sms.state in IN_FLIGHT
    if in_flight and policy is not None:
        return state.expiry_ms + policy.late_evidence_ms
    return state.expiry_ms


def quarantine(state: IntentState, policy: Policy | None) -> None:
    """Hold an intent the machine failed on, until an operator releases it or its time is over."""
    state.quarantined = True
    arm(state, policy)


def arm(state: IntentState, policy: Policy | None) -> None:
    """Set `due_ms` and `due_latest_ms` from everything that waits for time."""
    if not state.request_digest or state.closed is not None:
        state.due_ms = state.due_latest_ms = state.forget_ms
        return
    end = end_ms(state, policy)
    waits = [end]
    if not state.quarantined:
        waits += [state.intake_due_ms, state.claim_due_ms]
        for track in (state.email, state.sms):
            if track is not None:
                waits += [track.retry_ms, track.asked_until_ms or track.next_poll_ms]
    state.due_ms = at = min(w for w in waits if w)
    if policy is None:
        state.due_latest_ms = at
        return
    latest = at + policy.claim_hold_ms_max
    useful = state.expiry_ms - policy.bounds.min_useful_window_ms - 1
    state.due_latest_ms = max(at, min(latest, useful)) if at <= useful else latest
