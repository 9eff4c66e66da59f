"""Which request about a person was seen, the person being a keyed hash: the way supersession travels.

It must not hold what the hash was made of: an account id or an address stays with the service.
"""

from __future__ import annotations

from typing import Literal

from schemas.ids import Instant, IntentId, Purpose, SubjectKey, TenantId
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
