"""A scenario file means the same on the virtual clock and on real processes: the model is held to reality."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from compose.scenario.play import Played
from compose.scenario.play import play as play_virtually
from compose.scenario.verdict import ending, taken, verdict
from schemas.ids import Channel
from tests.acceptance import reality
from tests.conftest import Servers

FOLDER = Path(__file__).parents[1] / "scenarios"
STORIES = reality.stories(FOLDER)
# Real processes are behind by a tick, a call and a busy machine.
BEHIND_MS = 3_000 * reality.SCALE
pytestmark = [pytest.mark.proof, pytest.mark.timeout(420)]


@pytest.fixture(scope="module")
def played(stack: Servers, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Played]:
    """Every story at once, each told once."""
    dsn = stack.new_database("real")
    return reality.play(STORIES, stack.bootstrap, dsn, tmp_path_factory.mktemp("stories"))


def test_most_stories_without_faults_can_be_told_in_real_time() -> None:
    assert len(STORIES) >= 20


@pytest.mark.parametrize("name", STORIES)
def test_a_story_ends_as_its_file_expects_on_real_processes(played: Mapping[str, Played], name: str) -> None:
    """Instants have a test of their own."""
    lines = [one for one in verdict(played[name]) if one.name not in ("sms_at", "closed_at")]
    assert [one for one in lines if not one.holds] == []
    assert lines


@pytest.mark.parametrize("name", STORIES)
def test_reality_and_the_virtual_clock_give_the_same_ending(played: Mapping[str, Played], name: str) -> None:
    story = STORIES[name]
    over_ms = story.intent.expiry + story.played_policy.late_evidence_ms + reality.ROOM_MS
    real, model = played[name], play_virtually(story.model_copy(update={"until": over_ms}))
    one, other = ending(real), ending(model)
    assert (one.phase, one.closed, one.overlap, one.needless_fallback) == (
        other.phase,
        other.closed,
        other.overlap,
        other.needless_fallback,
    )
    for channel in Channel:
        assert len(taken(real, channel)) == len(taken(model, channel))
    if other.claimed_ms is None:
        assert one.claimed_ms is None
    else:
        assert one.claimed_ms is not None
        assert abs(one.claimed_ms - other.claimed_ms) < BEHIND_MS
        deadline_ms = story.intent.deadline
        assert other.claimed_ms < deadline_ms or one.claimed_ms >= deadline_ms, "early"
