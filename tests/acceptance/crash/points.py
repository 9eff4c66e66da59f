"""The table of durable boundaries: which process, which fault point, what is written at that moment.

It must not start or signal anything; `crew` does, and `process` is what dies.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# Longer than the session (3 s), the transaction timeout (5 s) and the lease with its call (4 + 1.5 s).
FREEZE_S = 6.5
# Shorter than what the last check leaves of a lease: the check refuses with less than a call (1.5 s) left,
# and others wait for lease + call. A longer freeze between the last check and the first byte is the residue
# the README names (SYSTEM.md, section 10), not a fault.
SHORT_FREEZE_S = 1.0


class Signal(StrEnum):
    KILL = "SIGKILL"
    STOP = "SIGSTOP"


@dataclass(frozen=True, slots=True)
class Boundary:
    """`nth`: at which pass of a process's life it happens, so that others are in flight before it; later
    where the first passes only write positions of topics that hold nothing yet."""

    process: str
    point: str
    when: str
    nth: int = 3
    freeze_s: float = FREEZE_S


BOUNDARIES: tuple[Boundary, ...] = (
    Boundary("worker", "before_transaction", "decided, nothing written", 4),
    Boundary("worker", "in_transaction", "records written, offsets not yet in the transaction", 6),
    Boundary("worker", "before_commit", "all in the transaction, not committed", 8),
    Boundary("worker", "after_commit", "committed", 10),
    Boundary("dispatcher", "before_claim", "order read, no claim"),
    Boundary("dispatcher", "in_claim", "claim written, not committed"),
    Boundary("dispatcher", "after_claim", "claim committed"),
    Boundary("dispatcher", "before_call", "last check made, first byte not sent", freeze_s=SHORT_FREEZE_S),
    Boundary("dispatcher", "after_call", "provider has answered, nobody knows"),
    Boundary("dispatcher", "before_result", "result known, not written"),
    Boundary("dispatcher", "in_result", "result written, not committed"),
    Boundary("dispatcher", "after_result", "result committed, attempt not published"),
    Boundary("dispatcher", "before_publish", "directly before the attempt is published"),
    Boundary("dispatcher", "after_publish", "attempt acknowledged, offset not committed"),
    Boundary("dispatcher", "in_facts", "who is done written, not committed", 6),
    Boundary("dispatcher", "after_facts", "who is done committed", 6),
    Boundary("poller", "before_call", "order read, provider not asked"),
    Boundary("poller", "after_call", "provider has answered, nobody knows"),
    Boundary("poller", "before_publish", "observation not published"),
    Boundary("poller", "after_publish", "observation acknowledged, offset not committed"),
    Boundary("auditor", "before_write", "batch read, no transaction", 6),
    Boundary("auditor", "in_write", "rows and positions written, not committed", 6),
    Boundary("auditor", "after_write", "rows and positions committed", 6),
)

POINTS: dict[str, frozenset[str]] = {
    name: frozenset(b.point for b in BOUNDARIES if b.process == name)
    for name in ("worker", "dispatcher", "poller", "auditor")
}
