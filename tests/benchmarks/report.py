"""What was measured, as a table for people and as JSON for programs.

It must not measure or judge: a slow machine is no failure.
"""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict
from typing import Any

from tests.benchmarks.contest import PARTITIONS, Comeback, Race
from tests.benchmarks.measure import Recovery, Throughput

GUARANTEES = {
    "worker": "exactly once; timers, dispatches, counters",
    "stock": "at least once; state and decision only",
    "plain": "none; state and decision only",
    "engine": "exactly once; a step of a few µs instead of the machine",
}


def machine() -> dict[str, Any]:
    """Commit, Python, cores."""
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True, check=False
    )
    return {
        "commit": asked.stdout.strip() or "unknown",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def as_json(about: dict[str, Any], race: Race | None, comeback: Comeback | None) -> dict[str, Any]:
    found: dict[str, Any] = {"about": about}
    if race is not None:
        found["race"] = {name: asdict(getattr(race, name)) for name in GUARANTEES}
        found["race"]["ratios"] = ratios(race)
        found["books"] = asdict(race.books) | {"balanced": race.books.balanced}
    if comeback is not None:
        found["recovery"] = {name: asdict(getattr(comeback, name)) for name in ("worker", "stock")}
        found["recovery"]["ratio"] = recovery_ratio(comeback)
    return found


def ratios(race: Race) -> dict[str, float | None]:
    """The worker's rate over the others'; the others' CPU per record over the worker's."""
    return {
        f"{what}_{name}": _over(mine, theirs)
        for name, other in (("stock", race.stock), ("plain", race.plain), ("engine", race.engine))
        for what, mine, theirs in (
            ("rate_to", race.worker.records_per_s, other.records_per_s),
            ("cpu_saved_to", other.cpu_us_per_record, race.worker.cpu_us_per_record),
        )
    }


def recovery_ratio(comeback: Comeback) -> float | None:
    """Stock's time per state over the worker's."""
    worker, stock = comeback.worker, comeback.stock
    if worker.ready_s is None or stock.ready_s is None:
        return None
    return _over(stock.ready_s / max(1, stock.states), worker.ready_s / max(1, worker.states))


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def lines(about: dict[str, Any], race: Race | None, comeback: Comeback | None) -> list[str]:
    found = [
        f"commit {about['commit']}, Python {about['python']}, {about['cores']} cores",
        f"load {about['load_before']} before; {PARTITIONS} partitions, one process at a time",
    ]
    if race is not None:
        found += _race_lines(race)
    if comeback is not None:
        found += _recovery_lines(comeback)
    return found


def _race_lines(race: Race) -> list[str]:
    found = [
        "",
        f"{'':<12}{'records':>9}{'records/s':>11}{'CPU µs/rec':>12}{'MiB':>6}{'worker is':>11}  promises",
    ]
    for name, promises in GUARANTEES.items():
        one: Throughput = getattr(race, name)
        ratio = (
            "" if name == "worker" else f"{_text(_over(race.worker.records_per_s, one.records_per_s), 2)} ×"
        )
        end = "" if one.finished else "  (not finished)"
        found.append(
            f"{name:<12}{one.records:>9}{_text(one.records_per_s):>11}"
            f"{_text(one.cpu_us_per_record, 1):>12}{one.resident_mib:>6.0f}{ratio:>11}  {promises}{end}"
        )
    books = race.books
    if race.stock.records < race.worker.records:
        found.append("stock Faust was given a smaller load of the same shape, so that the run ends in time")
    fates = ", ".join(f"{count} {fate}" for fate, count in sorted(books.fates.items()) if count)
    found.append(
        f"the worker's books {'balance' if books.balanced else 'DO NOT BALANCE'}: {books.counted} of "
        f"{books.inputs} inputs counted, {books.ticks} ticks of its own; {fates}; "
        f"{books.decisions_read} decisions read"
    )
    return found


def _recovery_lines(comeback: Comeback) -> list[str]:
    found = ["", f"{'recovery':<12}{'states':>9}{'start to ready':>16}{'CPU s':>8}{'MiB':>6}"]
    for name in ("worker", "stock"):
        one: Recovery = getattr(comeback, name)
        ready = "not in time" if one.ready_s is None else f"{one.ready_s:.1f} s"
        found.append(f"{name:<12}{one.states:>9}{ready:>16}{one.cpu_s:>8.1f}{one.resident_mib:>6.0f}")
    ratio = recovery_ratio(comeback)
    if ratio is not None:
        found.append(f"per state the worker is {ratio:.1f} × faster than stock Faust, its start included")
    if comeback.stock.states < comeback.worker.states:
        found.append("stock Faust was given fewer states, so that the run ends in time")
    return found


def _text(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:,.{digits}f}".replace(",", " ")
