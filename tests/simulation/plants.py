"""Every planted bug, and the table of who sees it: `python -m tests.simulation.plants`.

It must not hold a plant of its own.
"""

from __future__ import annotations

import sys

from tests.simulation import plants_machine, plants_sinks, plants_worker
from tests.simulation.planting import PLANTS, Plant, until_found

PARTS = (plants_sinks, plants_machine, plants_worker)  # registered by being imported


def every() -> tuple[Plant, ...]:
    return tuple(PLANTS)


def main() -> int:
    """The table: bug, checker, worlds until found."""
    missed = 0
    print(f"{'planted bug':45} {'seen by':35} worlds")
    for plant in every():
        found = until_found(plant)
        missed += found is None
        count, name = found or ("never", "nobody")
        print(f"{plant.name:45} {name:35} {count}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
