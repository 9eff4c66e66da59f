"""How a bug is planted, and how many worlds it takes until its checker sees it.

A plant changes real code for as long as its `with` block lasts. It must not be used outside of tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from streams.core import invariants
from tests.simulation.faults import GENTLE_EVERY, Options
from tests.simulation.run import judge

WORLDS_MAX = 120


@dataclass(frozen=True, slots=True)
class Plant:
    """`checkers`: those of which at least one must see it. `gentle`: in a world with few faults only.
    `chances`: of the faults without which it does no harm; its worlds have them."""

    name: str
    checkers: tuple[str, ...]
    plant: Callable[[], Any]
    gentle: bool = False
    chances: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """Who saw a plant, in which world, after how many."""

    checker: str
    seed: int
    worlds: int


PLANTS: list[Plant] = []


def sees(
    *checkers: str, gentle: bool = False, chances: Mapping[str, float] | None = None
) -> Callable[[Callable[[], Iterator[None]]], Any]:
    def add(function: Callable[[], Iterator[None]]) -> Any:
        made = contextmanager(function)
        PLANTS.append(Plant(function.__name__, checkers, made, gentle, chances or {}))
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


def until_found(plant: Plant, *, first: int | None = None, worlds_max: int = WORLDS_MAX) -> Found | None:
    """The seed in which one of its checkers sees it, and after how many worlds; None: nobody does.

    `first` is tried before all others: where it was seen the last time.
    """
    for count, seed in enumerate(_seeds(plant, first, worlds_max), 1):
        with plant.plant():
            verdict = judge(Options.drawn(seed).with_chances(plant.chances))
        for name, _, _ in verdict.broken:
            if name in plant.checkers:
                return Found(name, seed, count)
    return None


def _seeds(plant: Plant, first: int | None, worlds_max: int) -> Iterator[int]:
    if first is not None:
        yield first
    for count in range(1, worlds_max + 1):
        # Every tenth world is a gentle one.
        yield count * GENTLE_EVERY if plant.gentle else count + count // GENTLE_EVERY
