"""The machine as a table you can print: which move leads from which phase to which.

Theory of operation
-------------------
An intent starts in `email_pending`, with one e-mail ordered, and waits there for evidence. Three things
end the waiting: the provider says delivered (`email_delivered`), the e-mail has conclusively failed
(`email_invalid`), or the deadline passes on a tick whose evidence was read (the SMS claim).

`email_invalid` waits for nothing but open gates: the claim is tried in the same step. It stays only
while a gate holds. If a gate refuses, no channel is left: `exhausted`.

`email_delivered` waits for completion or expiry. A permanent bounce after it does not undo it; it may
lead to a claim, by policy only.

`sms_claimed` is where the one right to send an SMS has been used. There is no way back from it, and
none into it a second time. It waits for the dispatcher's attempt, `sms_accepted` for the provider's
word, `sms_delivered` and `exhausted` for completion or expiry.

`closed` waits for nothing and never reopens. Evidence that comes later is appended.

When two rules apply, the one higher in this list wins: closed stays closed; completion, cancellation
and an instruction close; a reason of class intent closes; expiry closes; conclusive failure claims;
the deadline claims; everything else only changes what is known and what is asked next.
"""

from __future__ import annotations

from enum import StrEnum

from schemas.decision import Phase


class Move(StrEnum):
    """What can happen to a phase. Nothing else moves an intent."""

    EMAIL_DELIVERED = "email_delivered"
    EMAIL_FAILED = "email_failed"  # conclusively
    CLAIM = "claim"  # the SMS gets its one right
    CLAIM_AFTER_DELIVERY = "claim_after_delivery"  # policy bounce_after_delivered = fallback
    NO_CHANNEL_LEFT = "no_channel_left"
    SMS_ACCEPTED = "sms_accepted"
    SMS_DELIVERED = "sms_delivered"
    SMS_FAILED = "sms_failed"
    CLOSE = "close"


_P, _M = Phase, Move

TABLE: dict[tuple[Phase, Move], Phase] = {
    (_P.EMAIL_PENDING, _M.EMAIL_DELIVERED): _P.EMAIL_DELIVERED,
    (_P.EMAIL_PENDING, _M.EMAIL_FAILED): _P.EMAIL_INVALID,
    (_P.EMAIL_PENDING, _M.CLAIM): _P.SMS_CLAIMED,
    (_P.EMAIL_INVALID, _M.CLAIM): _P.SMS_CLAIMED,
    (_P.EMAIL_INVALID, _M.NO_CHANNEL_LEFT): _P.EXHAUSTED,
    (_P.EMAIL_DELIVERED, _M.CLAIM_AFTER_DELIVERY): _P.SMS_CLAIMED,
    (_P.SMS_CLAIMED, _M.SMS_ACCEPTED): _P.SMS_ACCEPTED,
    (_P.SMS_CLAIMED, _M.SMS_DELIVERED): _P.SMS_DELIVERED,
    (_P.SMS_CLAIMED, _M.SMS_FAILED): _P.EXHAUSTED,
    (_P.SMS_ACCEPTED, _M.SMS_DELIVERED): _P.SMS_DELIVERED,
    (_P.SMS_ACCEPTED, _M.SMS_FAILED): _P.EXHAUSTED,
    **{(phase, _M.CLOSE): _P.CLOSED for phase in Phase if phase is not _P.CLOSED},
}

CLAIMS = frozenset({Move.CLAIM, Move.CLAIM_AFTER_DELIVERY})
STEPS = frozenset((prior, phase) for (prior, _), phase in TABLE.items())


def mermaid() -> str:
    """The diagram in the README; a test keeps both the same."""
    lines = ["stateDiagram-v2", "    [*] --> email_pending"]
    lines += [
        f"    {prior.value} --> {after.value}: {move.value}"
        for (prior, move), after in TABLE.items()
        if move is not Move.CLOSE
    ]
    lines += ["    any --> closed: completed, cancelled, superseded, expired, settled, unresolved, invalid"]
    return "\n".join(lines)
