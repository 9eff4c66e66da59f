"""A checker that cannot fail is none: every planted bug is seen, and every checker sees one."""

from __future__ import annotations

import pytest

from tests.simulation.planting import Plant, until_found
from tests.simulation.plants import every, last_seen, unplanted

pytestmark = pytest.mark.proof


@pytest.mark.parametrize("plant", every(), ids=lambda plant: plant.name)
def test_a_planted_bug_is_seen(plant: Plant) -> None:
    before = last_seen().get(plant.name)
    found = until_found(plant, first=None if before is None else before.seed)
    assert found is not None, "nobody saw it"


def test_every_checker_has_a_bug_it_must_see() -> None:
    assert not unplanted()
