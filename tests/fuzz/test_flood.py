"""A flood of hostile records changes nothing for anybody else, and each of them has exactly one fate."""

from __future__ import annotations

from pathlib import Path

import pytest

from compose.local.broker import Broker
from tests.fuzz.flood import run

pytestmark = pytest.mark.proof

RECORDS = 20_000


def test_good_intents_in_a_flood_are_decided_as_if_alone(broker: Broker, prefix: str, tmp_path: Path) -> None:
    report = run(broker.bootstrap, prefix, tmp_path, RECORDS)
    print(report.table())
    assert report.wrong == []
    assert report.fates["inputs"] > RECORDS
    assert len(report.published) == 13, "a kind of hostile record that never came"
