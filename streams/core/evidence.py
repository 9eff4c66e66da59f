"""The evidence lattice: observations joined so that their order does not matter.

It must not decide anything; `streams.core.machine` does.
"""

from __future__ import annotations

from schemas.observation import LookupAnswer, Observation, ProviderState
from schemas.reasons import Reason
from streams.core.state import Facts

SUPPRESSING = frozenset(
    {
        Reason.INVALID_RECIPIENT,
        Reason.PERMANENT_BOUNCE,
        Reason.PROVIDER_SUPPRESSED,
        Reason.COMPLAINT,
        Reason.OPTED_OUT,
    }
)


def earliest(one: int, other: int) -> int:
    """The earlier of two instants, where 0 means never."""
    if not one or not other:
        return one or other
    return min(one, other)


def join(facts: Facts, observation: Observation) -> Facts:
    """The facts with this observation joined in: commutative, associative, idempotent."""
    if observation.answer is not LookupAnswer.ANSWERED or observation.provider_state is None:
        return facts
    at = observation.observed_at_ms
    new = Facts(
        facts.accepted_ms,
        facts.delivered_ms,
        facts.failed_ms,
        facts.failed_reason,
        facts.temporary_ms,
        facts.unknown_ms,
        facts.raw_token,
    )
    match observation.provider_state:
        case ProviderState.ACCEPTED:
            new.accepted_ms = earliest(new.accepted_ms, at)
        case ProviderState.DELIVERED:
            new.delivered_ms = earliest(new.delivered_ms, at)
        case ProviderState.FAILED_PERMANENT:
            new.failed_ms = earliest(new.failed_ms, at)
            new.failed_reason = stronger(new.failed_reason, observation.reason or Reason.PERMANENT_BOUNCE)
        case ProviderState.FAILED_TEMPORARY:
            new.temporary_ms = earliest(new.temporary_ms, at)
        case ProviderState.UNKNOWN:
            new.unknown_ms = earliest(new.unknown_ms, at)
            new.raw_token = max(new.raw_token, observation.raw_token or "")
    return new


def stronger(one: Reason | None, other: Reason) -> Reason:
    """A complaint outranks the rest (it forbids more); else the greater code, whatever came first."""
    if one is None:
        return other
    return max(one, other, key=lambda r: (r is Reason.COMPLAINT, r.value))
