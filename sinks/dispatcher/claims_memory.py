"""The guard in memory, for scenarios: the same contract, one process, nothing survives.

It must not be used where a crash matters.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from schemas.ids import Channel
from schemas.reasons import Reason
from sinks.dispatcher.rules import ClaimRequest, Facts, Grant, Row, RowAnswer, Verdict, answer_of, judge

Place = tuple[str, int]


class MemoryClaims:
    """`clock_ms` is the guard's clock."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms, self._lock = clock_ms, threading.RLock()
        self._rows: dict[tuple[str, Channel], Row] = {}
        self._expiries: dict[str, int] = {}
        self._closed: dict[str, Reason] = {}
        self._suppressed: dict[tuple[str, str], Reason] = {}
        self._withdrawn: set[str] = set()
        self._progress: dict[Place, int] = {}
        self.late: dict[str, Mapping[str, Any]] = {}

    def now_ms(self) -> int:
        return self._clock_ms()

    def claim(self, request: ClaimRequest) -> Verdict:
        with self._lock:
            now_ms = self._clock_ms()
            place = (request.intent_id, request.channel)
            row = self._rows.get(place)
            listed = [self._suppressed.get((f, request.channel.value)) for f in request.fingerprints]
            facts = Facts(
                self._closed.get(request.intent_id),
                next((r for r in listed if r is not None), None),
                any(f in self._withdrawn for f in request.fingerprints),
                (request.intent_id, Channel.SMS) in self._rows,
                self._expiries.get(request.intent_id, request.expiry_ms) != request.expiry_ms,
            )
            verdict = judge(request, row, facts, now_ms)
            if isinstance(verdict, Grant):
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
                )
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
                self._suppressed.setdefault((suppress[0], channel.value), suppress[1])
            row = self._rows.get((intent_id, channel))
            if row is None or row.claim_id != claim_id or not _may_finish(row.state, state):
                if self.late.get(claim_id, {}).get("state", "unknown") == "unknown":
                    self.late[claim_id] = result
                return False
            number = max(row.submission_no, submission_no)
            self._rows[intent_id, channel] = replace(row, state=state, result=result, submission_no=number)
            return True

    def write_facts(
        self,
        *,
        closed: list[tuple[str, Reason]],
        suppressed: list[tuple[str, str, Reason, str]],
        lifted: list[tuple[str, str]],
        progress: Mapping[Place, int],
    ) -> None:
        with self._lock:
            for intent_id, reason in closed:
                self._closed.setdefault(intent_id, reason)
            for fingerprint, channel, reason, _cause in suppressed:
                self._suppressed.setdefault((fingerprint, channel), reason)
            for place in lifted:
                self._suppressed.pop(place, None)
            for read, offset in progress.items():
                self._progress[read] = max(offset, self._progress.get(read, 0))

    def progress(self) -> dict[Place, int]:
        return dict(self._progress)


def _may_finish(there: str, state: str) -> bool:
    return there in ("claimed", "submitting") or (there == "unknown" and state != "unknown")
