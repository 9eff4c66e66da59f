"""To whom a refusal is told, and what in the request it is about: the publisher and a JSON pointer.

A publisher in any language reads its decisions and learns which field to correct (RFC 6901, names only).
It must not decide that something is refused, nor quote a value.
"""

from __future__ import annotations

from schemas.decision import InputKind
from schemas.intent import IntentRequested
from schemas.policy import Policy
from schemas.publishers.refusals import (
    BOUNDED,
    POINTERS,
    REQUEST_AHEAD_MS_MAX,
    VARIABLES_AT_DISPATCH,
    VARIABLES_AT_INTAKE,
)
from schemas.reasons import Reason
from schemas.record import Record
from streams.core.state import IntentState


def pointer_of(reason: Reason, kind: InputKind, state: IntentState, policy: Policy | None) -> str | None:
    """What in the request this reason is about; None when it is not about the request."""
    if reason is Reason.OUT_OF_BOUNDS:
        return None if policy is None else bounds_fault(state, policy, now_ms=state.last_now_ms)
    if reason is Reason.INVALID_VARIABLES:
        return VARIABLES_AT_DISPATCH if kind is InputKind.ATTEMPT else VARIABLES_AT_INTAKE
    return POINTERS.get(reason)


def publisher_of(record: Record, state: IntentState, *, is_refusal: bool) -> str | None:
    """Who published the request of this decision, on its intake and on every refusal of it."""
    if isinstance(record, IntentRequested):
        return record.publisher  # of a second request under this id it is the second one's
    return state.publisher or None if is_refusal else None


def bounds_fault(state: IntentState, policy: Policy, *, now_ms: int) -> str | None:
    """The instant of a request that is outside its policy's bounds, as a pointer; None when all fit."""
    bounds, asked = policy.bounds, state.requested_ms
    at_request, at_deadline, at_expiry = BOUNDED
    if asked > now_ms + REQUEST_AHEAD_MS_MAX:
        return at_request
    if not bounds.deadline_ms_min <= state.deadline_ms - asked <= bounds.deadline_ms_max:
        return at_deadline
    if state.expiry_ms - asked > bounds.expiry_ms_max:
        return at_expiry
    return None if state.deadline_ms < state.expiry_ms - bounds.min_useful_window_ms else at_deadline
