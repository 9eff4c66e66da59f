"""Bugs planted in the counts of what SMS cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from sinks.dispatcher import claims_memory, rules
from sinks.dispatcher.counted_memory import Counts
from tests.simulation.guard import SimClaims
from tests.simulation.planting import patched, sees

# Nearly everybody gets an SMS, the database takes its time, and there is little money.
TIGHT = {
    "budget.tight": 1.0, "person.no_phone": 0.0, "person.no_consent": 0.0, "policy.no_sms": 0.0,
    "policy.ages": 0.0, "service.complete": 0.0, "service.cancel": 0.0,
}  # fmt: skip


@sees("no_cap_is_passed", chances=TIGHT)
def claims_are_not_counted() -> Iterator[None]:
    with patched(Counts, "add", lambda *_: None):
        yield


class _Stale:
    """The database, for one transaction that believes what was read before it had its locks."""

    def __init__(self, database: Any, known: Any) -> None:
        self._database, self._known = database, known

    def transact(self, work: Callable[[], Any]) -> Any:
        def with_known() -> Any:
            with patched(Counts, "read", lambda *_: self._known):
                return work()

        return self._database.transact(with_known)


@sees("no_cap_is_passed", chances=TIGHT | {"guard.slow": 1.0, "log.away": 1.0})
def counts_read_before_the_lock() -> Iterator[None]:
    before = SimClaims.claim

    def claim(self: Any, request: Any) -> Any:
        cost, shared = request.cost, self._shared
        if cost is None:
            return before(self, request)
        known = shared._counts.read(cost.scopes, cost.currency, shared.now_ms())
        return before(SimClaims(shared, _Stale(self._database, known), self._history), request)  # type: ignore[arg-type]

    with patched(SimClaims, "claim", claim):
        yield


@sees("no_cap_is_passed", chances=TIGHT | {"net.response_lost": 0.3})
def what_may_have_left_is_given_back() -> Iterator[None]:
    before = rules.gives_back

    def gives_back(state: str, *, may_have_left: bool) -> bool:
        return state == "unknown" or before(state, may_have_left=False)

    with patched(claims_memory, "gives_back", gives_back):
        yield


@sees("limits_stop_only_what_they_must", chances=TIGHT | {"net.refused": 0.2, "net.response_lost": 0.2})
def every_submission_counts_anew() -> Iterator[None]:
    with patched(claims_memory, "is_to_count", lambda request, _row: request.cost is not None):
        yield


@sees("limits_stop_only_what_they_must", chances=TIGHT)
def limit_of_all_counts_every_segment_twice() -> Iterator[None]:
    before = rules.afford

    def afford(grant: Any, budgets: Any, cost: Any, used: Any) -> Any:
        doubled = {s: replace(u, day_amount=2 * u.day_amount) for s, u in used.items()}
        return before(grant, budgets, cost, doubled)

    with patched(claims_memory, "afford", afford):
        yield
