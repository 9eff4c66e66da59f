"""The suppression list as an operator reads and changes it, by fingerprint.

Reading is by functions of the database that log who and why; changing is a record on the compacted topic,
which a dispatcher puts into the guard. It must not see an address or a number: whoever has one hashes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from schemas.codec import encode
from schemas.errors import BackstopError
from schemas.ids import Channel
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.suppression import Suppression, SuppressionAction
from schemas.topics import TopicNames
from sinks.kafka.producer import OutgoingRecord
from sinks.operator.books import SQL
from sinks.operator.text import check, check_name
from sinks.postgres.pool import Database

PAGE_COUNT_MAX = 5_000  # rows of one reading: far inside the 5 s a statement may take

# What an operator may write down; the rest is for what providers and people said.
BY_HAND = (
    Reason.SUPPRESSED_BY_HAND,
    Reason.OPTED_OUT,
    Reason.COMPLAINT,
    Reason.PERMANENT_BOUNCE,
    Reason.INVALID_RECIPIENT,
)
LISTED = (*BY_HAND, Reason.PROVIDER_SUPPRESSED)  # what an import may bring back


class OptedOut(BackstopError):
    """The person said STOP."""

    remedy = (
        "Only a later consent is a way back: the service sends it with its next intent, or give "
        "--reason consent_given when the person agreed again to you."
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the list; instants in ms. `consent_ms`: the latest consent of that destination."""

    fingerprint: str
    channel: str
    reason: str
    since_ms: int
    opted_out_ms: int | None
    consent_ms: int | None
    cause: str
    operator: str | None
    note: str | None

    @property
    def stands(self) -> bool:
        """Whether nothing is sent there: an opt-out does not outlast a later consent."""
        if self.reason != Reason.OPTED_OUT.value:
            return True
        return (self.opted_out_ms or self.since_ms) >= (self.consent_ms or 0)

    @property
    def is_opted_out(self) -> bool:
        """Whether the person's own word stands, beside whatever else is the reason."""
        return self.opted_out_ms is not None and self.opted_out_ms >= (self.consent_ms or 0)


def find(database: Database, fingerprints: Sequence[str], *, who: str, why: str) -> list[Entry]:
    """What the list holds of one destination under all its fingerprints; logged.

    Raises `OperatorTextRefused` or `GuardUnavailable`.
    """
    asked = {"fingerprints": list(fingerprints), "who": check_name(who, "who"), "why": check(why, "why")}
    with database.transaction() as cursor:
        return [Entry(**row) for row in cursor.execute(SQL["suppression_check"], asked).fetchall()]


def pages(
    database: Database, *, who: str, why: str, count_max: int = PAGE_COUNT_MAX
) -> Iterator[list[Entry]]:
    """The whole list by fingerprint, a page at a time; each reading is logged. Raises as `find`."""
    asked = {"who": check_name(who, "who"), "why": check(why, "why"), "count": count_max}
    after = ("", "")
    while True:
        with database.transaction() as cursor:
            place = {"fingerprint": after[0], "channel": after[1]}
            rows = cursor.execute(SQL["suppression_list"], asked | place).fetchall()
        if rows:
            yield [Entry(**row) for row in rows]
        if len(rows) < count_max:
            return
        after = (rows[-1]["fingerprint"], rows[-1]["channel"])


@dataclass(frozen=True, slots=True)
class Hand:
    """Who does it, why, when, and under which id."""

    operator: str
    why: str
    at_ms: int
    cause: str


def put(fingerprint: str, reason: Reason, by: Hand) -> Suppression:
    """The record that puts a destination on the list."""
    return _record(fingerprint, SuppressionAction.SUPPRESS, reason, by)


def take_off(entries: Iterable[Entry], reason: Reason, by: Hand) -> list[Suppression]:
    """The records that take these off. Raises `OptedOut` when that would undo a person's own word."""
    listed = list(entries)
    if reason is not Reason.CONSENT_GIVEN and any(one.is_opted_out for one in listed):
        raise OptedOut("this person answered STOP: nothing was changed", code="opted_out")
    return [_record(one.fingerprint, SuppressionAction.LIFT, reason, by) for one in listed]


def outgoing(names: TopicNames, records: Iterable[Suppression]) -> list[OutgoingRecord]:
    """As they go to the compacted topic."""
    topic = names[TopicKind.SUPPRESSIONS]
    return [OutgoingRecord(topic, one.key.encode(), encode(one)) for one in records]


def channel_of(fingerprint: str) -> Channel:
    """The channel a fingerprint is of: it stands in it."""
    return Channel.EMAIL if fingerprint.split(".")[1] == "e" else Channel.SMS


def _record(fingerprint: str, action: SuppressionAction, reason: Reason, by: Hand) -> Suppression:
    return Suppression(
        fingerprint=fingerprint,
        channel=channel_of(fingerprint),
        action=action,
        reason=reason,
        cause=by.cause,
        operator=by.operator,
        why=by.why,
        at_ms=by.at_ms,
    )
