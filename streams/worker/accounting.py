"""Every input has exactly one fate, counted per topic-partition in the transaction that decides it.

`inputs = decided + absorbed + parked + dead_lettered`; parked goes down again when the intent comes.
It must not be reset: the counters live in the changelog table `progress`.
"""

from __future__ import annotations

import orjson

from streams.core.effects import Fate

TABLE = "progress"
FATES = tuple(f.value for f in Fate)


class Tally:
    """What one chunk adds to the counters of the topics it touched."""

    __slots__ = ("_added",)

    def __init__(self) -> None:
        self._added: dict[str, dict[str, int]] = {}

    def add(self, topic: str, fate: Fate, *, was_parked: bool = False) -> None:
        """One input and its fate; a fact that was parked is counted as input only once."""
        added = self._added.get(topic)
        if added is None:
            added = self._added[topic] = {}
        if was_parked:
            added["parked"] = added.get("parked", 0) - 1
        else:
            added["inputs"] = added.get("inputs", 0) + 1
        added[fate.value] = added.get(fate.value, 0) + 1

    def note(self, topic: str, name: str) -> None:
        """A count beside the equation, such as rerouted."""
        added = self._added.setdefault(topic, {})
        added[name] = added.get(name, 0) + 1

    def drain(self) -> dict[str, dict[str, int]]:
        added, self._added = self._added, {}
        return added


def merged(stored: bytes | None, added: dict[str, int]) -> bytes:
    """The counters of one topic-partition with what was added, as its row."""
    counters: dict[str, int] = {} if stored is None else orjson.loads(stored)
    for name, count in added.items():
        counters[name] = counters.get(name, 0) + count
    return orjson.dumps(counters, option=orjson.OPT_SORT_KEYS)


def balance(counters: dict[str, int]) -> int:
    """Inputs that have no fate, or more than one: 0 when every input is accounted for."""
    return counters.get("inputs", 0) - sum(counters.get(f, 0) for f in FATES)
