"""All checkers over one world. It must not hold a checker of its own."""

from __future__ import annotations

from tests.simulation import (
    check_liveness,
    check_machine,
    check_once,
    check_sinks,
    check_spend,
    check_subjects,
)
from tests.simulation.evidence import Seen
from tests.simulation.sentences import LIVENESS, SAFETY, SHOWN_MAX, Checker

PARTS = (
    check_once,
    check_machine,
    check_sinks,
    check_subjects,
    check_spend,
    check_liveness,
)  # registered by being imported


def every() -> tuple[Checker, ...]:
    return (*SAFETY, *LIVENESS)


def violations(seen: Seen) -> list[tuple[Checker, str]]:
    """All that do not hold, a few examples of each."""
    found = []
    for checker in every():
        for count, text in enumerate(checker.find(seen)):
            if count >= SHOWN_MAX:
                break
            found.append((checker, text))
    return found
