"""Every durable boundary once, killed or frozen on purpose, on one kept stack; the four proofs afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from compose.clock import random_id
from compose.local.stack import Stack
from compose.output import say
from tests.acceptance.crash.points import BOUNDARIES, POINTS, Boundary, Signal
from tests.acceptance.crash.process import Fate
from tests.acceptance.crash.stage import Outcome, staged

PER_S = 8.0
# 100 s on two idle cores; whoever comes first waits for all of it.
pytestmark = [pytest.mark.proof, pytest.mark.timeout(420)]


def alternating() -> list[tuple[Boundary, Signal]]:
    """Each boundary once, kills and freezes in turn; `python -m tests.acceptance.crash` does both."""
    return [(boundary, list(Signal)[number % 2]) for number, boundary in enumerate(BOUNDARIES)]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """One round, shared by the tests of this module."""
    folder: Path = tmp_path_factory.mktemp("crash")
    run_id = f"crash{random_id()[:8]}"
    with Stack(folder) as stack, staged(stack, folder / run_id, run_id=run_id, per_s=PER_S, say=say) as stage:
        yield stage.play(alternating())


def test_every_boundary_is_reached_on_purpose(outcome: Outcome) -> None:
    assert outcome.unreached == []
    reached = {(strike.boundary.process, strike.boundary.point) for strike in outcome.strikes}
    assert reached == {(boundary.process, boundary.point) for boundary in BOUNDARIES}


def test_the_four_proofs_hold_after_all_of_them(outcome: Outcome) -> None:
    assert [(proof.sentence, proof.against) for proof in outcome.proofs if not proof.holds] == []
    assert len(outcome.proofs) == 4
    assert outcome.open_intents == []


def test_many_intents_were_under_way_at_each_crash(outcome: Outcome) -> None:
    assert outcome.intents >= 5 * len(outcome.strikes)


def test_every_frozen_process_was_thawed_and_the_long_freezes_outlived_its_lease(outcome: Outcome) -> None:
    frozen = [strike for strike in outcome.strikes if strike.signal is Signal.STOP]
    assert frozen
    for strike in frozen:
        assert strike.frozen_ms is not None
        assert strike.frozen_ms >= strike.boundary.freeze_s * 1000 - 100


def test_no_setting_reaches_a_fault_point() -> None:
    """The product's own commands pass none, and no setting is named after one."""
    from compose.settings import Settings

    assert not [name for name in Settings.model_fields if name.startswith(("fault", "crash"))]
    for file in (Path(__file__).parents[2] / "compose" / "commands").glob("*.py"):
        assert not re.search(r"\bfault\b", file.read_text("utf-8").replace("a fault of ours", "")), file


def test_the_hook_counts_the_passes_of_its_point_and_ignores_the_others(tmp_path: Path) -> None:
    mark = tmp_path / "marks"
    fate = Fate(["after_call:2:SIGCONT"], mark)  # a signal that does nothing to a running process
    for point in ("after_call", "before_call", "before_call"):
        fate(point)
    assert not mark.exists()
    fate("after_call")
    fate("after_call")
    assert mark.read_text("utf-8").count('"what": "at"') == 1


def test_every_point_of_the_table_stands_in_the_code_of_its_process() -> None:
    root = Path(__file__).parents[2]
    code = {
        "worker": ("streams/engine",),
        "dispatcher": ("sinks/dispatcher",),
        "poller": ("sinks/poller",),
        "auditor": ("sinks/audit",),
    }
    for process, folders in code.items():
        text = "".join(f.read_text("utf-8") for folder in folders for f in (root / folder).glob("*.py"))
        for point in POINTS[process]:
            assert f'ault("{point}")' in text, f"{process} {point}"
