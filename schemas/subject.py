"""Which request about a person was seen, the person being a keyed hash: the way supersession travels.

It must not hold what the hash was made of: an account id or an address stays with the service.
"""

from __future__ import annotations

from typing import Literal

from schemas.ids import INSTANT_MS_MAX, Instant, IntentId, Purpose, SubjectKey, TenantId
from schemas.intent import IntentRequested
from schemas.record import Record


class SubjectSeen(Record):
    """A request about a subject was read. Keyed by tenant, purpose and subject: none supersedes beyond them.

    `requested_at_ms` is the request's own, and never later than the log says. From `forget_at_ms` on no
    older request of this subject can be alive.
    """

    record: Literal["subject_seen"] = "subject_seen"
    version: Literal[1] = 1
    tenant: TenantId
    purpose: Purpose
    subject_key: SubjectKey
    intent_id: IntentId
    requested_at_ms: Instant
    expiry_ms: Instant
    forget_at_ms: Instant

    @property
    def key(self) -> str:
        return f"{self.tenant}/{self.purpose}/{self.subject_key}"


def seen_of(request: IntentRequested, *, log_ms: int, forget_at_ms: int) -> SubjectSeen | None:
    """What a request that the log took in at `log_ms` says about its subject; None when it names none."""
    if request.subject_key is None:
        return None
    return SubjectSeen(
        tenant=request.tenant,
        purpose=request.purpose,
        subject_key=request.subject_key,
        intent_id=request.intent_id,
        # A publisher's clock that is ahead must not outrank who asks after it.
        requested_at_ms=min(request.requested_at_ms, log_ms),
        expiry_ms=request.expiry_ms,
        forget_at_ms=min(forget_at_ms, INSTANT_MS_MAX - 1),
    )
