"""The guard in memory, for scenarios: the same contract, one process, nothing survives.

It must not be used where a crash matters.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from schemas.budget import Budgets
from schemas.ids import Channel
from schemas.reasons import Reason
from schemas.subject import SubjectSeen
from sinks.dispatcher.counted_memory import Counts
from sinks.dispatcher.rules import (
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
    gives_back,
    is_to_count,
    judge,
)
from sinks.dispatcher.subjects import weigh
from streams.core.subjects import Newest

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Entry:
    """Why a destination is on the list, and when the person last opted out, whatever the reason says."""

    reason: Reason
    opted_out_ms: int | None = None


class MemoryClaims:
    """`clock_ms` is the guard's clock."""

    def __init__(self, clock_ms: Callable[[], int], budgets: Budgets) -> None:
        self._clock_ms, self._budgets, self._lock = clock_ms, budgets, threading.RLock()
        self._counts = Counts()
        self._rows: dict[tuple[str, Channel], Row] = {}
        self._expiries: dict[str, int] = {}
        self._closed: dict[str, Reason] = {}
        self._suppressed: dict[tuple[str, str], _Entry] = {}
        self._consents: dict[str, int] = {}
        self._withdrawn: set[str] = set()
        self._subjects: dict[str, Newest] = {}
        self._progress: dict[Place, int] = {}
        self.late: dict[str, Mapping[str, Any]] = {}

    def now_ms(self) -> int:
        return self._clock_ms()

    def claim(self, request: ClaimRequest) -> Verdict:
        with self._lock:
            now_ms = self._clock_ms()
            place = (request.intent_id, request.channel)
            row = self._rows.get(place)
            facts = Facts(
                self._closed.get(request.intent_id),
                self._standing(request.fingerprints, request.channel.value),
                any(f in self._withdrawn for f in request.fingerprints),
                (request.intent_id, Channel.SMS) in self._rows,
                self._expiries.get(request.intent_id, request.expiry_ms) != request.expiry_ms,
            )
            verdict = judge(request, row, facts, now_ms)
            cost = request.cost if is_to_count(request, row) else None
            if isinstance(verdict, Grant) and cost is not None:
                used = self._counts.read(cost.scopes, cost.currency, now_ms)
                verdict = afford(verdict, self._budgets, cost, used)
            if isinstance(verdict, Grant):
                if cost is not None:
                    self._counts.add(request.intent_id, cost, now_ms)
                self._expiries[request.intent_id] = request.expiry_ms
                self._rows[place] = Row(
                    request.submission_no,
                    "claimed",
                    request.claim_id,
                    request.request_digest,
                    now_ms + request.lease_ms,
                    verdict.ttl_ms,
                    None,
                    request.account,
                    None,
                    request.unless_sms_claimed,
                    verdict.may_have_left,
                    request.cost is not None,
                )
            return verdict

    def _standing(self, fingerprints: Sequence[str], channel: str) -> Reason | None:
        """Why this destination must not be written to, under any live key."""
        agreed_ms = max((self._consents.get(f, 0) for f in fingerprints), default=0)
        for fingerprint in fingerprints:
            one = self._suppressed.get((fingerprint, channel))
            if one is not None and (
                one.reason is not Reason.OPTED_OUT or (one.opted_out_ms or 0) >= agreed_ms
            ):
                return one.reason
        return None

    def look(
        self,
        intent_id: str,
        channel: Channel,
        submission_no: int,
        *,
        after_unknown: bool,
        call_timeout_ms: int,
    ) -> RowAnswer | None:
        with self._lock:
            row = self._rows.get((intent_id, channel))
            if row is None:
                return None
            now_ms = self._clock_ms()
            return answer_of(
                row,
                submission_no,
                after_unknown=after_unknown,
                call_timeout_ms=call_timeout_ms,
                now_ms=now_ms,
            )

    def begin(self, claim_id: str) -> int | None:
        with self._lock:
            now_ms = self._clock_ms()
            place, row = self._held_by(claim_id)
            if row is None or row.state != "claimed" or now_ms >= row.lease_until_ms:
                return None
            if place[0] in self._closed or self._yields(place[0], row):
                return None
            self._rows[place] = replace(row, state="submitting", submitted_ms=now_ms)
            return now_ms

    def stopped_by(self, claim_id: str) -> Reason:
        with self._lock:
            (intent_id, _), row = self._held_by(claim_id)
            if row is None:
                return Reason.LEASE_LOST
            skipped = Reason.EMAIL_SKIPPED if self._yields(intent_id, row) else Reason.LEASE_LOST
            return self._closed.get(intent_id, skipped)

    def _held_by(self, claim_id: str) -> tuple[tuple[str, Channel], Row | None]:
        for place, row in self._rows.items():
            if row.claim_id == claim_id:
                return place, row
        return ("", Channel.EMAIL), None

    def _yields(self, intent_id: str, row: Row) -> bool:
        return row.unless_sms_claimed and not row.may_have_left and (intent_id, Channel.SMS) in self._rows

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
        with self._lock:
            if suppress is not None:
                self._list(Listed(suppress[0], channel.value, suppress[1], claim_id))
            row = self._rows.get((intent_id, channel))
            if row is None or row.claim_id != claim_id or not _may_finish(row, state, submission_no):
                if self.late.get(claim_id, {}).get("state", "unknown") == "unknown":
                    self.late[claim_id] = result
                return False
            number = max(row.submission_no, submission_no)
            row = replace(row, state=state, result=result, submission_no=number)
            if row.is_counted and gives_back(state, may_have_left=row.may_have_left):
                self._counts.give_back(intent_id)
                row = replace(row, is_counted=False)
            self._rows[intent_id, channel] = row
            return True

    def write_facts(
        self,
        *,
        closed: list[tuple[str, Reason]],
        suppressed: Sequence[Listed],
        lifted: Sequence[Lifted],
        progress: Mapping[Place, int],
        consented: Mapping[str, int] = MappingProxyType({}),
        asked: Sequence[SubjectSeen] = (),
    ) -> None:
        with self._lock:
            for intent_id, reason in closed:
                if intent_id not in self._closed and reason is Reason.COMPLETED:
                    self._counts.completed([intent_id])
                self._closed.setdefault(intent_id, reason)
            gone = {i for i, reason in self._closed.items() if reason is Reason.SUPERSEDED} if asked else ()
            changed, over = weigh(self._subjects, asked, gone=gone)
            self._subjects |= changed
            for intent_id in over:
                self._closed.setdefault(intent_id, Reason.SUPERSEDED)
            for off in lifted:
                self._lift(off)
            for one in suppressed:
                self._list(one)
            for fingerprint, given_ms in consented.items():
                self._consents[fingerprint] = max(given_ms, self._consents.get(fingerprint, 0))
            for read, offset in progress.items():
                self._progress[read] = max(offset, self._progress.get(read, 0))

    def _list(self, one: Listed) -> None:
        place, stopped_ms = (one.fingerprint, one.channel), None
        if one.reason is Reason.OPTED_OUT:
            stopped_ms = self._clock_ms() if one.at_ms is None else one.at_ms
        there = self._suppressed.get(place)
        if there is None:
            self._suppressed[place] = _Entry(one.reason, stopped_ms)
            return
        reason = one.reason if there.reason is Reason.OPTED_OUT else there.reason
        stops = [ms for ms in (there.opted_out_ms, stopped_ms) if ms is not None]
        self._suppressed[place] = _Entry(reason, max(stops, default=None))

    def _lift(self, off: Lifted) -> None:
        place = (off.fingerprint, off.channel)
        there = self._suppressed.get(place)
        if off.consent_ms is not None:
            self._suppressed.pop(place, None)
            self._consents[off.fingerprint] = max(off.consent_ms, self._consents.get(off.fingerprint, 0))
        elif there is not None and there.opted_out_ms is not None:
            self._suppressed[place] = replace(there, reason=Reason.OPTED_OUT)
        else:
            self._suppressed.pop(place, None)

    def progress(self) -> dict[Place, int]:
        return dict(self._progress)


def _may_finish(row: Row, state: str, submission_no: int) -> bool:
    if row.state == "unknown":
        return state != "unknown" or submission_no > row.submission_no
    return row.state in ("claimed", "submitting")
