"""Bugs planted in the guard, the dispatcher and the audit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg

from schemas.attempt import AttemptState
from schemas.reasons import Reason
from sinks.audit import rows as audit_rows
from sinks.audit import writer as audit_writer
from sinks.dispatcher import claims_memory, facts, handle, ports, rules, work
from sinks.kafka import lanes
from sinks.providers import simulated
from tests.simulation.guard import SimClaims
from tests.simulation.network import Wire
from tests.simulation.planting import patched, sees

# Orders that come again after they were answered, beside dispatchers that die over the next one.
COME_AGAIN = {
    "log.commit_lost": 0.95,
    "crash.dispatcher": 0.1,
    "net.response_lost": 0.2,
    "guard.failed": 0.05,
}

# A hold leaves no row, and what was held is delivered again.
HELD_AND_AGAIN = {
    "log.commit_lost": 0.5, "log.away": 1.0, "crash.dispatcher": 0.03, "freeze.dispatcher": 0.015,
    "group.moves": 1.0, "lag.read": 0.2, "guard.failed": 0.04, "guard.doubtful": 0.02,
    "net.response_lost": 0.06,
}  # fmt: skip

HELD_OFTEN = HELD_AND_AGAIN | {
    "guard.failed": 0.08,
    "net.response_lost": 0.2,
    "freeze.dispatcher": 0.03,
    "operator.control": 1.0,
}

# the guard


@sees("one_message")
def claim_without_compare() -> Iterator[None]:
    """Any order may take any row."""
    with patched(rules, "_by_row", lambda *_: None):
        yield


@sees("one_message", chances=HELD_OFTEN)
def order_that_does_not_know_may_resubmit() -> Iterator[None]:
    """As it was before `after_unknown`."""
    before = rules.answer_of

    def answer(*given: Any, after_unknown: bool, **more: Any) -> Any:
        return before(*given, after_unknown=True, **more)

    with patched(rules, "answer_of", answer), patched(claims_memory, "answer_of", answer):
        yield


@sees("claims_never_go_back", "one_message", chances=COME_AGAIN)
def older_order_takes_the_row_of_a_higher_one() -> Iterator[None]:
    """As it was: an order that was sent and told as unknown, delivered again beside its successor's claim."""
    before = rules.answer_of

    def answer(row: Any, submission_no: int, **more: Any) -> Any:
        return before(row, max(submission_no, row.submission_no), **more)

    with patched(rules, "answer_of", answer), patched(claims_memory, "answer_of", answer):
        yield


@sees("one_message", "every_submission_has_a_claim", "results_come_first")
def claim_row_without_lease() -> Iterator[None]:
    """A row somebody is at looks free."""
    before = rules.answer_of

    def answer(row: Any, *given: Any, **more: Any) -> Any:
        return None if row.state in ("claimed", "submitting") else before(row, *given, **more)

    with patched(rules, "answer_of", answer), patched(claims_memory, "answer_of", answer):
        yield


@sees("begins_within_the_lease")
def first_byte_after_the_lease() -> Iterator[None]:
    before = claims_memory.MemoryClaims.begin

    def begin(self: Any, claim_id: str) -> int | None:
        for place, row in self._rows.items():
            if row.claim_id == claim_id and row.state == "claimed":
                self._rows[place] = replace(row, lease_until_ms=row.lease_until_ms + 10**9)
        return before(self, claim_id)

    def check(self: Any, order: Any, started: float) -> Any:
        return None

    with (
        patched(claims_memory.MemoryClaims, "begin", begin),
        patched(handle.Dispatcher, "_last_check", check),
    ):
        yield


@sees("nothing_after_suppression")
def suppression_checked_before_the_claim() -> Iterator[None]:
    before, seen = SimClaims.claim, dict[int, Any]()

    def ask(self: Any, request: Any) -> Any:
        shared = self._shared
        # Looked up when this process first claimed, and believed ever after.
        known = seen.setdefault(id(self), dict(shared._suppressed))
        present, shared._suppressed = shared._suppressed, known
        try:
            with patched(self._database, "transact", lambda run: run()):
                return before(self, request)
        finally:
            shared._suppressed = present

    with patched(SimClaims, "claim", ask):
        yield


@sees(
    "nothing_after_suppression",
    chances={"person.shared": 0.9, "person.no_phone": 0.0, "person.no_consent": 0.0, "service.complete": 0.0},
)
def any_consent_undoes_a_stop() -> Iterator[None]:
    """Also one that is older than the STOP."""
    before = claims_memory.MemoryClaims._standing

    def standing(self: Any, fingerprints: Any, channel: str) -> Any:
        found = before(self, fingerprints, channel)
        agreed = any(f in self._consents for f in fingerprints)
        return None if found is Reason.OPTED_OUT and agreed else found

    with patched(claims_memory.MemoryClaims, "_standing", standing):
        yield


@sees(
    "nothing_after_the_end",
    chances={"service.complete": 0.8, "service.cancel": 0.3, "lag.read": 0.5, "guard.slow": 0.2},
)
def completions_not_read_to_the_end() -> Iterator[None]:
    with patched(facts.CompletionsRead, "__call__", lambda _self: True):
        yield


@sees("results_come_first", "one_message")
def result_not_written() -> Iterator[None]:
    """The row stays as it was claimed, and looks free once its lease is over."""
    before = rules.answer_of

    def answer(row: Any, *given: Any, **more: Any) -> Any:
        return None if row.state == "submitting" else before(row, *given, **more)

    with (
        patched(claims_memory.MemoryClaims, "finish", lambda *_, **__: True),
        patched(rules, "answer_of", answer),
        patched(claims_memory, "answer_of", answer),
    ):
        yield


# the dispatcher


@sees("same_key_same_bytes", "one_message")
def resubmit_with_a_fresh_key() -> Iterator[None]:
    before, count = Wire.call, iter(range(10**9))

    def call(self: Any, *given: Any, headers: Any = None, **more: Any) -> Any:
        if headers and "Idempotency-Key" in headers:
            headers = {"Idempotency-Key": f"{headers['Idempotency-Key']}-{next(count)}"}
        return before(self, *given, headers=headers, **more)

    with patched(Wire, "call", call):
        yield


@sees("ours_is_held")
def our_refusal_is_the_recipients_failure() -> Iterator[None]:
    before = handle.Dispatcher._attempt

    def attempt(self: Any, order: Any, state: Any, **more: Any) -> Any:
        return before(self, order, AttemptState.REFUSED if state is AttemptState.HELD else state, **more)

    with patched(handle.Dispatcher, "_attempt", attempt):
        yield


@sees("every_order_is_answered", "every_intent_settles", "no_lag")
def offset_committed_before_the_result() -> Iterator[None]:
    before = work.OrderWork.__call__

    def handle_it(self: Any, message: Any) -> Any:
        self._finished(message)
        return before(self, message)

    with patched(work.OrderWork, "__call__", handle_it):
        yield


@sees("every_submission_has_a_claim", "one_message")
def call_repeated_after_no_answer() -> Iterator[None]:
    before = handle.Dispatcher._call

    def call(self: Any, *given: Any) -> Any:
        found = before(self, *given)
        return before(self, *given) if found.state is AttemptState.UNKNOWN else found

    with patched(handle.Dispatcher, "_call", call):
        yield


@sees("every_suppression_is_listed", chances={"crash.dispatcher": 0.03})
def suppression_is_told_once() -> Iterator[None]:
    """As it was: a dispatcher that died between its row and its records never told the list."""

    def again(_self: Any, order: Any, known: Any) -> Any:
        return ports.Handled(attempts=[handle._for(order, known)])

    with patched(handle.Dispatcher, "_again", again):
        yield


@sees("every_order_is_answered", chances=HELD_AND_AGAIN)
def answer_keeps_the_lower_number_of_its_row() -> Iterator[None]:
    """As it was: the machine, which had ordered again after a hold, waited for an answer until the end."""
    with patched(handle, "_for", lambda _order, known: known):
        yield


@sees("nothing_after_expiry")
def limits_not_checked_before_the_first_byte() -> Iterator[None]:
    judged, began = rules.judge, handle.Dispatcher.handle

    def judge_it(request: Any, *given: Any) -> Any:
        return judged(replace(request, expiry_ms=request.expiry_ms + 10**7), *given)

    def handle_it(self: Any, order: Any) -> Any:
        return began(self, order.model_copy(update={"not_after_ms": order.not_after_ms + 10**7}))

    with patched(claims_memory, "judge", judge_it), patched(handle.Dispatcher, "handle", handle_it):
        yield


@sees("no_secret_in_the_log")
def address_as_message_id() -> Iterator[None]:
    before = simulated.SimulatedProvider.submit

    def submit(self: Any, submission: Any, **more: Any) -> Any:
        found = before(self, submission, **more)
        return replace(found, message_id=submission.to.reveal()) if found.message_id else found

    with patched(simulated.SimulatedProvider, "submit", submit):
        yield


@sees("no_lag")
def offsets_never_committed() -> Iterator[None]:
    with patched(lanes.Offsets, "take", lambda _self: {}):
        yield


# the audit


@sees("audit_misses_nothing_it_passed", "every_record_is_audited")
def bad_row_takes_the_rest_of_its_batch() -> Iterator[None]:
    def insert(cursor: Any, found: list[Any]) -> None:
        for row in found:
            try:
                with cursor.connection.transaction():
                    cursor.execute(audit_writer.SQL["insert_rows"], audit_writer._given([row]))
            except psycopg.Error:
                return

    with patched(audit_writer, "_insert", insert):
        yield


@sees("audit_says_what_is")
def audit_row_of_another_record() -> Iterator[None]:
    before = audit_rows.RowWriter.row

    def row(self: Any, message: Any) -> Any:
        return before(self, message) | {"size": 1}

    with patched(audit_rows.RowWriter, "row", row):
        yield
