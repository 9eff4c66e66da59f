"""One world from its seed to a verdict, and the smallest world in which it still goes wrong.

It must not print; `__main__` and the tests do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.checkers import violations
from tests.simulation.evidence import Seen
from tests.simulation.faults import Options
from tests.simulation.world import SETTLE_MS, World

SHRINK_RUNS_MAX = 120


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one world. `broken`: name of the checker, its sentence, an example."""

    options: Options
    broken: tuple[tuple[str, str, str], ...]
    decisions: int
    faults: dict[str, int]
    points: dict[str, int]
    digest: str
    notes: list[tuple[int, str]] = field(default_factory=list)

    @property
    def hours(self) -> float:
        """Simulated hours."""
        return (self.options.minutes * 60_000 + SETTLE_MS) / 3_600_000


@contextmanager
def quiet() -> Iterator[None]:
    """What the processes of a broken world log is of no use to anybody."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def judge(options: Options, *, trace: bool = False, world: Callable[..., World] = World) -> Verdict:
    """Run the world and all checkers. A crash of the code under test is a violation too."""
    with quiet():
        made = world(options, trace=trace)
        try:
            made.run()
        except Exception as exc:
            broken = [("crash", "no input makes a process fail", f"{type(exc).__name__}: {exc}"[:300])]
        else:
            broken = [(c.name, c.sentence, text) for c, text in violations(Seen(made))]
    summary: dict[str, Any] = made.summary()
    return Verdict(
        options,
        tuple(broken),
        summary["decisions"],
        summary["faults"],
        dict(made.points),
        made.trace_digest(),
        made.notes,
    )


def shrink(options: Options, checker: str) -> Options:
    """Fewer faults and fewer intents, as long as the same sentence is violated."""
    runs = 0

    def still(candidate: Options) -> bool:
        nonlocal runs
        runs += 1
        return runs <= SHRINK_RUNS_MAX and checker in {name for name, _, _ in judge(candidate).broken}

    best = options
    for intents in (1, 2, 5, 10):
        if intents < best.intents and still(replace(best, intents=intents)):
            best = replace(best, intents=intents)
            break
    again = True
    while again:
        again = False
        for fault in list(best.chances):
            if still(best.without(fault)):
                best, again = best.without(fault), True
    for minutes in (3, 5):
        if minutes < best.minutes and still(replace(best, minutes=minutes)):
            return replace(best, minutes=minutes)
    return best
