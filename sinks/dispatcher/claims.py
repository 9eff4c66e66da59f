"""The guard: claims, who is done, who must not be written to. One port, two implementations.

`PostgresClaims` is the guarantee; `claims_memory.MemoryClaims` passes the same contract and serves
scenarios. It must not decide: `rules.judge` does, under the locks taken here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, Protocol

from psycopg.types.json import Jsonb

from schemas.budget import Budgets
from schemas.ids import Channel
from schemas.reasons import Reason, reason_of
from schemas.subject import SubjectSeen
from sinks.dispatcher import counted
from sinks.dispatcher.rules import (
    NOT_TAKEN,
    ClaimRequest,
    Facts,
    Grant,
    Lifted,
    Listed,
    Row,
    RowAnswer,
    Verdict,
    afford,
    answer_of,
    is_to_count,
    judge,
)
from sinks.dispatcher.subjects import weigh
from sinks.postgres.pool import Database
from sinks.postgres.queries import load
from streams.core.subjects import Newest

SQL = load("sinks.dispatcher")

Place = tuple[str, int]
_NOBODY: Mapping[str, int] = MappingProxyType({})


class Claims(Protocol):
    """Every method raises `GuardUnavailable` when the guard cannot answer."""

    def now_ms(self) -> int:
        """The guard's own clock, ms since the epoch: leases are by it."""
        ...

    def claim(self, request: ClaimRequest) -> Verdict:
        """Judge the order and, when granted, write the row and count what it costs, in one transaction."""
        ...

    def look(
        self,
        intent_id: str,
        channel: Channel,
        submission_no: int,
        *,
        after_unknown: bool,
        call_timeout_ms: int,
    ) -> RowAnswer | None:
        """What the row says to an order that will not be claimed; None when nothing of it can have left."""
        ...

    def begin(self, claim_id: str) -> int | None:
        """Directly before the first byte: the instant (ms) when the claim is still ours, its lease alive,
        its intent not closed and no SMS there that it yields to; else None."""
        ...

    def stopped_by(self, claim_id: str) -> Reason:
        """Why `begin` said None: how the intent ended, `email_skipped`, or `lease_lost`."""
        ...

    def finish(
        self,
        claim_id: str,
        *,
        intent_id: str,
        channel: Channel,
        submission_no: int,
        state: str,
        result: Mapping[str, Any],
        suppress: tuple[str, Reason] | None = None,
    ) -> bool:
        """Write the result (and a suppression) in one transaction; False when the claim was lost meanwhile:
        the result is kept as a late one. `submission_no` is the number it answers; a row never goes back.
        A row given up as unknown takes what its holder learned, and the higher number it was told under.
        What an SMS was counted for is given back, once, when no submission of it can have left."""
        ...

    def write_facts(
        self,
        *,
        closed: list[tuple[str, Reason]],
        suppressed: Sequence[Listed],
        lifted: Sequence[Lifted],
        progress: Mapping[Place, int],
        consented: Mapping[str, int] = _NOBODY,
        asked: Sequence[SubjectSeen] = (),
    ) -> None:
        """What was read of the topics, and how far, in one transaction; `lifted` before `suppressed`.
        `consented`: since when, by fingerprint; what a person opted out of before then is open again.
        `asked`: requests about subjects; whatever of these is older than another is closed."""
        ...

    def progress(self) -> dict[Place, int]: ...


class PostgresClaims:
    """The guard in Postgres: `synchronous_commit=on`, advisory locks per destination and intent."""

    def __init__(
        self, database: Database, budgets: Budgets, *, fault: Callable[[str], None] = lambda _point: None
    ) -> None:
        """`fault` is for crash tests: called by name when a row is written and not yet committed."""
        self._database, self._budgets, self._fault = database, budgets, fault

    def now_ms(self) -> int:
        with self._database.transaction() as cursor:
            return int(cursor.execute(SQL["now_ms"]).fetchone()["now_ms"])  # type: ignore[index]

    def claim(self, request: ClaimRequest) -> Verdict:
        values: dict[str, Any] = {
            "intent_id": request.intent_id,
            "channel": request.channel.value,
            "fingerprint": request.fingerprint,
            "fingerprints": list(request.fingerprints),
            "destination": min(request.fingerprints),
            "expiry_ms": request.expiry_ms,
        }
        with self._database.transaction() as cursor:
            cursor.execute(SQL["lock_fingerprint"], values)
            verdict, row, now_ms = _judged(cursor, request, values)
            cost = request.cost if is_to_count(request, row) else None
            if isinstance(verdict, Grant) and cost is not None:
                counted.lock(cursor, cost.scopes)
                # Waiting for the counts took time, in which the intent may have ended.
                verdict, row, now_ms = _judged(cursor, request, values)
                if isinstance(verdict, Grant):
                    used = counted.read(cursor, cost.scopes, cost.currency, now_ms)
                    verdict = afford(verdict, self._budgets, cost, used)
            if isinstance(verdict, Grant):
                statement = SQL["claim_insert" if verdict.is_first else "claim_again"]
                cursor.execute(
                    statement,
                    values
                    | {
                        "tenant": request.tenant,
                        "request_digest": request.request_digest,
                        "dispatch_key": request.dispatch_key,
                        "template": request.template,
                        "ttl_ms": verdict.ttl_ms,
                        "submission_no": request.submission_no,
                        "provider_account": request.account,
                        "claim_id": request.claim_id,
                        "lease_until_ms": now_ms + request.lease_ms,
                        "now_ms": now_ms,
                        "unless_sms_claimed": request.unless_sms_claimed,
                        "may_have_left": verdict.may_have_left,
                    },
                )
                if cost is not None:
                    counted.add(cursor, request.intent_id, cost, now_ms)
                self._fault("in_claim")
            return verdict

    def look(
        self,
        intent_id: str,
        channel: Channel,
        submission_no: int,
        *,
        after_unknown: bool,
        call_timeout_ms: int,
    ) -> RowAnswer | None:
        with self._database.transaction() as cursor:
            asked = {"intent_id": intent_id, "channel": channel.value}
            row = _row(cursor.execute(SQL["claim_read"], asked).fetchone())
            now_ms = int(cursor.execute(SQL["now_ms"]).fetchone()["now_ms"])  # type: ignore[index]
        if row is None:
            return None
        return answer_of(
            row,
            submission_no,
            after_unknown=after_unknown,
            call_timeout_ms=call_timeout_ms,
            now_ms=now_ms,
        )

    def begin(self, claim_id: str) -> int | None:
        with self._database.transaction() as cursor:
            found = cursor.execute(SQL["begin_submit"], {"claim_id": claim_id}).fetchone()
            return None if found is None else int(found["submitted_ms"])

    def stopped_by(self, claim_id: str) -> Reason:
        with self._database.transaction() as cursor:
            found = cursor.execute(SQL["stopped_by"], {"claim_id": claim_id}).fetchone()
        if found is None:  # a successor has the row
            return Reason.LEASE_LOST
        if found["closed"] is not None:
            return reason_of(found["closed"])
        return Reason.EMAIL_SKIPPED if found["yields"] else Reason.LEASE_LOST

    def finish(
        self,
        claim_id: str,
        *,
        intent_id: str,
        channel: Channel,
        submission_no: int,
        state: str,
        result: Mapping[str, Any],
        suppress: tuple[str, Reason] | None = None,
    ) -> bool:
        values = {
            "claim_id": claim_id,
            "intent_id": intent_id,
            "channel": channel.value,
            "submission_no": submission_no,
            "state": state,
            "result": Jsonb(dict(result)),
        }
        with self._database.transaction() as cursor:
            ours = cursor.execute(SQL["finish"], values).fetchone() is not None
            if not ours:
                cursor.execute(SQL["late_result"], values)
            if suppress is not None:
                _list(cursor, Listed(suppress[0], channel.value, suppress[1], claim_id))
            if ours and state in NOT_TAKEN:
                counted.give_back(cursor, claim_id)
            self._fault("in_result")
            return ours

    def write_facts(
        self,
        *,
        closed: list[tuple[str, Reason]],
        suppressed: Sequence[Listed],
        lifted: Sequence[Lifted],
        progress: Mapping[Place, int],
        consented: Mapping[str, int] = _NOBODY,
        asked: Sequence[SubjectSeen] = (),
    ) -> None:
        with self._database.transaction() as cursor:
            if asked:  # before anything else is locked
                cursor.execute(SQL["subjects_lock"])
            done = [intent_id for intent_id, reason in closed if _is_news(cursor, intent_id, reason)]
            _supersede(cursor, asked)
            for off in lifted:
                place = {"fingerprint": off.fingerprint, "channel": off.channel}
                by_consent = off.consent_ms is not None
                cursor.execute(SQL["suppression_lift" if by_consent else "suppression_mistake"], place)
            for one in suppressed:
                _list(cursor, one)
            agreed = _agreed(consented, lifted)
            if agreed:
                given = {"fingerprints": sorted(agreed), "given": [agreed[f] for f in sorted(agreed)]}
                cursor.execute(SQL["consent_write"], given)
            for (topic, partition), offset in progress.items():
                read = {"topic": topic, "partition": partition, "next_offset": offset}
                cursor.execute(SQL["progress_write"], read)
            if done:  # the counts are locked after everything else
                counted.completed(cursor, done)
            self._fault("in_facts")
        self._fault("after_facts")

    def progress(self) -> dict[Place, int]:
        with self._database.transaction() as cursor:
            rows = cursor.execute(SQL["progress_read"]).fetchall()
        return {(str(r["topic"]), int(r["partition"])): int(r["next_offset"]) for r in rows}


def _is_news(cursor: Any, intent_id: str, reason: Reason) -> bool:
    """Close it; whether it is by this that its person did the thing."""
    given = {"intent_id": intent_id, "reason": reason.value}
    written = cursor.execute(SQL["closed_write"], given).fetchone() is not None
    return written and reason is Reason.COMPLETED


def _list(cursor: Any, one: Listed) -> None:
    cursor.execute(SQL["suppression_write"], asdict(one) | {"reason": one.reason.value})


def _supersede(cursor: Any, asked: Sequence[SubjectSeen]) -> None:
    """Remember the newest of each subject and close the others."""
    if not asked:
        return
    subjects = {"subjects": sorted({one.key for one in asked})}
    rows = cursor.execute(SQL["subjects_read"], subjects).fetchall()
    known = {
        r["subject"]: Newest(r["intent_id"], r["requested_ms"], r["expiry_ms"], r["forget_ms"]) for r in rows
    }
    gone = {"intents": sorted({one.intent_id for one in asked}), "reason": Reason.SUPERSEDED.value}
    before = {r["intent_id"] for r in cursor.execute(SQL["closed_as"], gone).fetchall()}
    changed, over = weigh(known, asked, gone=before)
    newest = {
        "subjects": list(changed),
        "intents": [row.intent_id for row in changed.values()],
        "requested": [row.requested_ms for row in changed.values()],
        "expiries": [row.expiry_ms for row in changed.values()],
        "forget": [row.forget_ms for row in changed.values()],
    }
    cursor.execute(SQL["subjects_write"], newest)
    for intent_id in over:
        cursor.execute(SQL["closed_write"], {"intent_id": intent_id, "reason": Reason.SUPERSEDED.value})
    cursor.execute(SQL["subjects_forget"])


def _agreed(consented: Mapping[str, int], lifted: Sequence[Lifted]) -> dict[str, int]:
    """An opt-out told once more must not undo an operator's word that the person agreed since."""
    found = dict(consented)
    for off in lifted:
        if off.consent_ms is not None:
            found[off.fingerprint] = max(off.consent_ms, found.get(off.fingerprint, 0))
    return found


def _row(found: Mapping[str, Any] | None) -> Row | None:
    if found is None:
        return None
    return Row(**{name: found[name] for name in Row.__dataclass_fields__})


def _judged(cursor: Any, request: ClaimRequest, values: Mapping[str, Any]) -> tuple[Verdict, Row | None, int]:
    """By the database's clock and everything it knows now, but for the counts."""
    now_ms = int(cursor.execute(SQL["now_ms"]).fetchone()["now_ms"])
    row = _row(cursor.execute(SQL["claim_read"], values).fetchone())
    return judge(request, row, _facts(cursor, values), now_ms), row, now_ms


def _facts(cursor: Any, values: Mapping[str, Any]) -> Facts:
    closed = cursor.execute(SQL["closed_read"], values).fetchone()
    suppressed = cursor.execute(SQL["suppression_read"], values).fetchone()
    return Facts(
        None if closed is None else closed["reason"],
        None if suppressed is None else suppressed["reason"],
        cursor.execute(SQL["withdrawal_read"], values).fetchone() is not None,
        cursor.execute(SQL["sms_exists"], values).fetchone() is not None,
        cursor.execute(SQL["lived_before"], values).fetchone() is not None,
    )
