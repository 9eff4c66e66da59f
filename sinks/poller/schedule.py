"""Orders that wait, per account: a bounded heap, the earliest `answer_by_ms` first.

It must not drop an order: what does not fit or comes too late is handed back to be answered.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from schemas.lookup import Lookup

# Per account. At 10 calls a second of 20 look-ups each, 10 000 are worked off in 50 s, which is longer than
# any `answer_within_ms` of a policy (15 to 30 s): a longer queue would only hold orders that go stale.
WAITING_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Order:
    """A look-up as it arrived. `ticket` names the arrival and is unique; nobody here looks into it."""

    lookup: Lookup
    ticket: int


class Waiting:
    """The orders of one account."""

    def __init__(self, orders_max: int = WAITING_MAX) -> None:
        self._heap: list[tuple[int, int, Order]] = []
        self.orders_max = orders_max

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, order: Order) -> Order | None:
        """Add it; the one that has most time left is handed back when that is one too many."""
        entry = (order.lookup.answer_by_ms, order.ticket, order)
        if len(self._heap) < self.orders_max:
            heapq.heappush(self._heap, entry)
            return None
        last = max(self._heap)
        if entry >= last:
            return order
        self._heap[self._heap.index(last)] = entry
        heapq.heapify(self._heap)
        return last[2]

    def pop_until(self, answer_by_ms: int) -> list[Order]:
        """Everything whose time is over at this instant."""
        found = []
        while self._heap and self._heap[0][0] <= answer_by_ms:
            found.append(heapq.heappop(self._heap)[2])
        return found

    def pop_batch(self, count_max: int) -> tuple[Order, ...]:
        """What one call can ask: the first order, and those that follow it while they go by message id.

        Nothing overtakes: an order that goes by reference is a call of its own, in its turn.
        """
        found: list[Order] = []
        while self._heap and len(found) < count_max:
            by_id = self._heap[0][2].lookup.message_id is not None
            if found and not by_id:
                break
            found.append(heapq.heappop(self._heap)[2])
            if not by_id:
                break
        return tuple(found)
