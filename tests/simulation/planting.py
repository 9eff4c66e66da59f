"""How a bug is planted, and how many worlds it takes until its checker sees it.

A plant changes real code for as long as its `with` block lasts. It must not be used outside of tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streams.core import invariants
from tests.simulation.faults import GENTLE_EVERY, Options
from tests.simulation.run import judge

SEEDS_MAX = 25


@dataclass(frozen=True, slots=True)
class Plant:
    """`checkers`: those of which at least one must see it. `gentle`: in a world with few faults only."""

    name: str
    checkers: tuple[str, ...]
    plant: Callable[[], Any]
    gentle: bool = False


PLANTS: list[Plant] = []


def sees(*checkers: str, gentle: bool = False) -> Callable[[Callable[[], Iterator[None]]], Any]:
    def add(function: Callable[[], Iterator[None]]) -> Any:
        made = contextmanager(function)
        PLANTS.append(Plant(function.__name__, checkers, made, gentle))
        return made

    return add


@contextmanager
def patched(where: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(where, name)
    setattr(where, name, value)
    try:
        yield
    finally:
        setattr(where, name, before)


@contextmanager
def unchecked() -> Iterator[None]:
    """Without the invariants, which would quarantine most of these at once."""
    with patched(invariants, "check", lambda *_: None):
        yield


def until_found(plant: Plant, seeds_max: int = SEEDS_MAX) -> tuple[int, str] | None:
    """How many worlds it took and which of its checkers saw it; None: nobody did."""
    for count in range(1, seeds_max + 1):
        seed = count * GENTLE_EVERY if plant.gentle else count + count // GENTLE_EVERY
        with plant.plant():
            verdict = judge(Options.drawn(seed))
        for name, _, _ in verdict.broken:
            if name in plant.checkers:
                return count, name
    return None
