"""Do timers fire when their evidence or their latest instant says so, and once?"""

from __future__ import annotations

import pytest

from streams.engine.timers import STALE_ENTRIES_MAX, Due, PartitionTimers, Timers, find_due

LIMIT = 100


def armed(**due: tuple[int, int]) -> PartitionTimers:
    timers = PartitionTimers()
    for key, (at_ms, latest_ms) in due.items():
        timers.arm(key.encode(), Due(at_ms, latest_ms))
    return timers


@pytest.mark.parametrize(
    ("now_ms", "evidence_ms", "fires"),
    [
        (99, 99, False),
        (100, 99, False),  # due, but the evidence is not complete
        (100, 100, True),
        (99, 150, False),  # a mark ahead of our clock makes nothing early
        (149, 0, False),
        (150, 0, True),  # the latest instant does not wait for evidence
    ],
)
def test_a_timer_fires_by_evidence_or_at_the_latest(now_ms: int, evidence_ms: int, *, fires: bool) -> None:
    timers = armed(k=(100, 150))
    timers.evidence_until_ms = evidence_ms
    assert timers.pop(now_ms, LIMIT) == ([(b"k", Due(100, 150))] if fires else [])


def test_a_timer_that_fired_stays_silent_until_it_is_armed_again_or_moved() -> None:
    timers = armed(k=(100, 150))
    assert len(timers.pop(200, LIMIT)) == 1
    timers.arm(b"k", Due(100, 150))
    assert timers.pop(200, LIMIT) == []
    timers.arm(b"k", Due(100, 150), again=True)
    assert timers.pop(200, LIMIT) == [(b"k", Due(100, 150))]
    timers.arm(b"k", Due(110, 150))
    assert timers.pop(200, LIMIT) == [(b"k", Due(110, 150))]


def test_a_disarmed_timer_never_fires() -> None:
    timers = armed(k=(100, 150))
    timers.arm(b"k", None)
    assert timers.pop(10_000, LIMIT) == []


def test_a_moved_timer_fires_once_at_its_new_instant() -> None:
    timers = armed(k=(100, 150))
    timers.arm(b"k", Due(300, 400))
    assert timers.pop(299, LIMIT) == []
    assert timers.pop(400, LIMIT) == [(b"k", Due(300, 400))]
    assert timers.pop(10_000, LIMIT) == []


def test_a_round_is_limited_and_the_next_goes_on() -> None:
    timers = armed(a=(1, 1), b=(2, 2), c=(3, 3))
    timers.also(b"d", Due(4, 4))
    rounds = [timers.pop(10, 3), timers.pop(10, 3), timers.pop(10, 3)]
    assert [[key for key, _ in found] for found in rounds] == [[b"a", b"b", b"c"], [b"d"], []]


def test_entries_of_moved_timers_do_not_pile_up() -> None:
    timers = PartitionTimers()
    for n in range(5 * STALE_ENTRIES_MAX):
        timers.arm(b"k", Due(n, n))
    assert len(timers._at) + len(timers._latest) <= STALE_ENTRIES_MAX + 10
    assert timers.pop(10**9, LIMIT) == [(b"k", Due(5 * STALE_ENTRIES_MAX - 1, 5 * STALE_ENTRIES_MAX - 1))]


def test_the_latest_instant_cannot_lie_before_the_wanted_one() -> None:
    with pytest.raises(ValueError, match="latest_ms"):
        Due(2, 1)


def test_reticking_many_keys_is_spread_and_waits_for_evidence() -> None:
    timers = Timers(reticks_per_s_max=100, retick_hold_ms_max=5_000)
    part = timers.install(3, {})
    assert timers.arm_all(3, [b"k%d" % n for n in range(250)], now_ms=1_000) == 250
    assert part.pop(1_000, LIMIT) == []
    timers.note_evidence({3: 1_995, 9: 1})
    assert len(part.pop(10_000 - 5_001, 1_000)) == 100
    assert len(part.pop(10_000, 1_000)) == 150  # held for 5 s at most


def test_reticking_a_partition_of_another_worker_does_nothing() -> None:
    timers = Timers(reticks_per_s_max=100, retick_hold_ms_max=5_000)
    assert timers.arm_all(1, [b"k"], now_ms=0) == 0
    assert len(timers) == 0


def test_evidence_never_moves_back() -> None:
    timers = Timers(100, 100)
    part = timers.install(0, {})
    timers.note_evidence({0: 50})
    timers.note_evidence({0: 40})
    assert part.evidence_until_ms == 50


def test_revocation_forgets_every_timer() -> None:
    timers = Timers(100, 100)
    timers.install(0, {b"k": Due(1, 1)})
    timers.clear()
    assert len(timers) == 0
    assert timers.items() == []


def test_due_instants_are_found_in_the_state() -> None:
    tables = {0: {b"a": b"5", b"b": b""}, 1: {b"c": b"7"}}
    found = find_due(tables, lambda _key, value: Due(int(value), int(value)) if value else None)
    assert found == {0: {b"a": Due(5, 5)}, 1: {b"c": Due(7, 7)}}
