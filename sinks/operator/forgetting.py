"""Forgetting a person: which intents were about a destination, and taking what leads there out of the books.

Everything is by fingerprint: it must not see an address or a number. It must not touch what keeps the person
safe: the suppression list, and the claim of an intent that could still be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.record import TopicKind
from schemas.topics import DAY_MS, TOPICS, TopicNames
from sinks.operator.books import SQL
from sinks.operator.text import check, check_name
from sinks.postgres.pool import Database

# Fields that lead to a person for whoever has the address, the service's books or a provider's message id. A
# test holds this list against every field of every record: what is in neither list fails it.
LEADS = (
    "email_fingerprint",
    "sms_fingerprint",
    "fingerprint",
    "country",
    "challenge_ref",
    "subject_key",
    "sms_consent",
    "phone_verified_at_ms",
    "message_id",
    "request_digest",
    "sealed_sha256",
    "sealed_chars",
)
LATE_MS = 7 * DAY_MS  # how long after its expiry any policy takes evidence about an intent
BATCH_COUNT = 20  # intents of one transaction: some hundred rows, far inside what a statement may take

# Topics on which an envelope lies: only a dispatcher can open it, until the log drops it or its key is gone.
_SEALED_ON = (TopicKind.INTENTS, TopicKind.DISPATCHES_URGENT, TopicKind.DISPATCHES_BULK)


@dataclass(frozen=True, slots=True)
class About:
    """One intent that was about the person; instants in ms since the epoch."""

    intent_id: str
    requested_ms: int
    expiry_ms: int
    ended: bool
    is_forgotten: bool

    def is_live(self, now_ms: int) -> bool:
        """Whether something may still be sent for it."""
        return not self.ended and now_ms < self.expiry_ms


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was done. `again_after_ms`: until then rows may come that were on their way; None: none can."""

    intents: int
    audit_rows: int
    claims: int
    claims_kept: int
    consents: int
    again_after_ms: int | None
    sealed_until_ms: int | None


def about(
    database: Database, fingerprints: Sequence[str], *, names: TopicNames, who: str, why: str
) -> list[About]:
    """The intents of a destination under all its fingerprints, the oldest first; the reading is logged.

    Raises `OperatorTextRefused` or `GuardUnavailable`.
    """
    asked = {"who": check_name(who, "who"), "why": check(why, "why"), "topics": list(names.of(TOPICS))}
    with database.transaction() as cursor:
        found = cursor.execute(SQL["person_intents"], asked | {"fingerprints": list(fingerprints)}).fetchall()
    return [About(**row) for row in found]


def forget(
    database: Database,
    fingerprints: Sequence[str],
    intents: Sequence[About],
    *,
    names: TopicNames,
    now_ms: int,
    who: str,
    why: str,
) -> Forgotten:
    """Take what leads to the person out of the rows of these intents, and delete the person's consents.

    What was forgotten in the last 14 days is swept as well: records that were on their way name it again, and
    nobody can find it by the person. So nothing given is a sweep alone.

    Safe to repeat: killed on the way, what was done is done. Raises `OperatorTextRefused` or
    `GuardUnavailable`.
    """
    asked: dict[str, Any] = {
        "who": check_name(who, "who"),
        "why": check(why, "why"),
        "topics": list(names.of(TOPICS)),
        "leads": list(LEADS),
        "now_ms": now_ms,
    }
    audited = claimed = 0
    with database.transaction() as cursor:
        lately = [row["intent_id"] for row in cursor.execute(SQL["forgotten_lately"])]
    for batch in _batches(list(dict.fromkeys([*(one.intent_id for one in intents), *lately]))):
        with database.transaction() as cursor:
            for row in cursor.execute(SQL["forget_intents"], asked | {"intents": batch}):
                audited, claimed = audited + row["audited"], claimed + row["claimed"]
    with database.transaction() as cursor:
        gone = cursor.execute(SQL["forget_consents"], asked | {"fingerprints": list(fingerprints)}).fetchall()
    return Forgotten(
        intents=len(intents),
        audit_rows=audited,
        claims=claimed,
        claims_kept=claims_kept(intents, now_ms),
        consents=gone[0]["consents"],
        again_after_ms=again_after_ms(intents, now_ms),
        sealed_until_ms=sealed_until_ms(intents, now_ms),
    )


def claims_kept(intents: Iterable[About], now_ms: int) -> int:
    """How many keep their claim, because they could still be sent."""
    return sum(one.expiry_ms >= now_ms for one in intents)


def again_after_ms(intents: Iterable[About], now_ms: int) -> int | None:
    """Until when records on their way can name them again; None: none can."""
    return _last(intents, LATE_MS, now_ms)


def sealed_until_ms(intents: Iterable[About], now_ms: int) -> int | None:
    """When the log has dropped the last envelope at the latest; None: it has."""
    return _last(intents, max(TOPICS[kind].retention_ms for kind in _SEALED_ON), now_ms)


def _last(intents: Iterable[About], after_expiry_ms: int, now_ms: int) -> int | None:
    """The latest of these instants that is still to come."""
    instants = [one.expiry_ms + after_expiry_ms for one in intents]
    return max((at_ms for at_ms in instants if at_ms > now_ms), default=None)


def _batches(ids: Sequence[str]) -> Iterable[list[str]]:
    return (list(ids[start : start + BATCH_COUNT]) for start in range(0, len(ids), BATCH_COUNT))
