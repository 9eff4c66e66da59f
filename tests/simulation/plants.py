"""Every planted bug, and the table of who sees it: `python -m tests.simulation.plants [NAME …]`.

Without names it writes `plants.txt`: bug, checker, seed, worlds until found. Exit code 1 when nobody saw one.
It must not hold a plant of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.simulation import plants_machine, plants_sinks, plants_spend, plants_subjects, plants_worker
from tests.simulation.checkers import every as every_checker
from tests.simulation.planting import PLANTS, Found, Plant, until_found

PARTS = (
    plants_sinks,
    plants_machine,
    plants_worker,
    plants_subjects,
    plants_spend,
)  # registered by being imported
FILE = Path(__file__).with_name("plants.txt")


def every() -> tuple[Plant, ...]:
    return tuple(PLANTS)


def last_seen() -> dict[str, Found]:
    """Where each was seen the last time the table was written."""
    found = {}
    for line in FILE.read_text("utf-8").splitlines():
        fields = line.split()
        if fields and not line.startswith("#"):
            found[fields[0]] = Found(fields[1], int(fields[2]), int(fields[3]))
    return found


def unplanted() -> set[str]:
    """Checkers no plant is for: each must be shown to fail once."""
    return {c.name for c in every_checker()} - {name for plant in every() for name in plant.checkers}


def main(names: list[str]) -> int:
    lines, missed = [f"# {'planted bug':44} {'seen by':42} seed worlds"], 0
    print(lines[0])
    for plant in every():
        if names and plant.name not in names:
            continue
        found = until_found(plant)
        if found is None:
            missed += 1
            print(f"{plant.name:46} nobody", flush=True)
            continue
        lines.append(f"{plant.name:46} {found.checker:42} {found.seed:4} {found.worlds:6}")
        print(lines[-1], flush=True)
    if not names:
        FILE.write_text("\n".join(lines) + "\n", "utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
