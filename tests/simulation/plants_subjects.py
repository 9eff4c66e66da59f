"""Bugs planted in supersession: who is newest, who is told, who obeys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from schemas.reasons import Reason
from sinks.dispatcher import facts
from sinks.dispatcher.claims_memory import MemoryClaims
from streams.core import subjects
from tests.simulation.planting import patched, sees

AGAIN = {"service.supersede": 0.9}
BEHIND = AGAIN | {"freeze.dispatcher": 0.05, "lag.read": 0.5, "guard.slow": 0.2}


@sees("newest_survives", chances=AGAIN | {"service.late": 0.5})
def newest_by_arrival() -> Iterator[None]:
    before = subjects.take

    def take(known: Any, seen: Any, *, at_ms: int) -> Any:
        return before(known, seen.model_copy(update={"requested_at_ms": at_ms}), at_ms=at_ms)

    with patched(subjects, "take", take):
        yield


@sees("older_ones_are_superseded", chances=AGAIN | {"service.late": 0.5})
def older_one_that_comes_late_is_let_go() -> Iterator[None]:
    before = subjects.take

    def take(known: Any, seen: Any, *, at_ms: int) -> Any:
        row, over = before(known, seen, at_ms=at_ms)
        return row, None if row is known else over

    with patched(subjects, "take", take):
        yield


@sees("superseded_by_a_newer_one", chances=AGAIN)
def superseded_by_itself() -> Iterator[None]:
    before = subjects.take

    def take(known: Any, seen: Any, *, at_ms: int) -> Any:
        row, over = before(known, seen, at_ms=at_ms)
        return row, over and replace(over, by_intent_id=over.intent_id)

    with patched(subjects, "take", take):
        yield


@sees("no_sms_with_a_dead_link", chances=BEHIND)
def guard_waits_for_the_worker() -> Iterator[None]:
    """It learns of a newer request only once its worker and the subject's have read it."""
    with patched(facts, "asked", lambda _request, *, log_ms: None):
        yield


@sees("nothing_after_the_guard_knows", chances=BEHIND)
def guard_forgets_who_was_superseded() -> Iterator[None]:
    before = MemoryClaims.write_facts

    def write_facts(self: Any, **given: Any) -> None:
        kept = [(i, r) for i, r in given["closed"] if r is not Reason.SUPERSEDED]
        before(self, **given | {"closed": kept, "asked": ()})

    with patched(MemoryClaims, "write_facts", write_facts):
        yield
