"""What is promised, sentence by sentence, and how a checker is registered for one.

A checker reads what a world shows (`evidence.Seen`) and yields what violates its sentence. Those of
`LIVENESS` hold once faults have stopped and `SETTLE_MS` have passed. Each is shown to fail on a planted bug
(`plants`). It must not know a checker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.simulation.evidence import Seen

Found = Iterator[str]


@dataclass(frozen=True, slots=True)
class Checker:
    """A sentence and how to see that it does not hold."""

    name: str
    sentence: str
    find: Callable[[Seen], Found]


SAFETY: list[Checker] = []
LIVENESS: list[Checker] = []
SHOWN_MAX = 5  # violations of one sentence that are told


def safety(sentence: str) -> Callable[[Callable[[Seen], Found]], Callable[[Seen], Found]]:
    return _into(SAFETY, sentence)


def liveness(sentence: str) -> Callable[[Callable[[Seen], Found]], Callable[[Seen], Found]]:
    return _into(LIVENESS, sentence)


def _into(
    checkers: list[Checker], sentence: str
) -> Callable[[Callable[[Seen], Found]], Callable[[Seen], Found]]:
    def add(find: Callable[[Seen], Found]) -> Callable[[Seen], Found]:
        checkers.append(Checker(find.__name__, sentence, find))
        return find

    return add
