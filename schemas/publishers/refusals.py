"""Which field of a request a refusal is about: the table that decisions and the contract's page share.

It must not decide that something is refused.
"""

from __future__ import annotations

from schemas.reasons import Reason

REQUEST_AHEAD_MS_MAX = 300_000  # a publisher's clock may run 5 min ahead of the log, not more

POINTERS = {
    Reason.EXPIRED_AT_INTAKE: "/expiry_ms",
    Reason.POLICY_UNKNOWN: "/policy",
    Reason.TEMPLATE_UNKNOWN: "/policy",
    Reason.ACCOUNT_UNKNOWN: "/policy",
    Reason.PURPOSE_MISMATCH: "/purpose",
    Reason.CONFLICTING_REQUEST: "/intent_id",
    Reason.KEY_UNKNOWN: "/sealed",
    Reason.KEY_SHREDDED: "/sealed",
    Reason.SEAL_BROKEN: "/sealed",
    Reason.BINDING_MISMATCH: "/sealed",
}
# `INVALID_VARIABLES`: their names are checked at intake, their values once they are unsealed.
VARIABLES_AT_INTAKE, VARIABLES_AT_DISPATCH = "/variables", "/sealed"
# `OUT_OF_BOUNDS`: whichever of these is outside the policy's bounds, in this order.
BOUNDED = ("/requested_at_ms", "/deadline_ms", "/expiry_ms")
