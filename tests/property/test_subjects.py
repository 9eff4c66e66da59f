"""The laws of supersession: any order of arrival leaves one survivor, the newest, whatever is repeated."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from schemas.subject import SubjectSeen
from streams.core.subjects import Newest, from_bytes, take, to_bytes
from tests.builders import EXPIRY_MS, T0, subject_seen

NAMES = [f"intent-{letter}-01" for letter in "abcdefgh"]
# Few instants, so that many requests share one and the id decides.
ASKED = st.lists(st.integers(0, 4), min_size=1, max_size=8).map(
    lambda instants: [subject_seen(at, NAMES[n]) for n, at in enumerate(instants)]
)
READ_MS = T0 + 10


def read(arrivals: list[SubjectSeen], *, at_ms: int = READ_MS) -> tuple[str, dict[str, list[str]]]:
    """Who is newest in the end, and by whom each of the others was told to be over; rows go through bytes."""
    row: Newest | None = None
    told: dict[str, list[str]] = {}
    for seen in arrivals:
        before = row
        row, over = take(row, seen, at_ms=at_ms)
        row = row if row is before else from_bytes(to_bytes(row))
        if over is not None:
            told.setdefault(over.intent_id, []).append(over.by_intent_id)
    assert row is not None
    return row.intent_id, told


def rank(seen: SubjectSeen) -> tuple[int, str]:
    return seen.requested_at_ms, seen.intent_id


@given(ASKED.flatmap(st.permutations))
def test_any_order_leaves_the_newest_and_tells_every_other_one_exactly_once(
    arrivals: list[SubjectSeen],
) -> None:
    newest, told = read(arrivals)
    by_rank = sorted(arrivals, key=rank)
    assert newest == by_rank[-1].intent_id
    assert set(told) == {s.intent_id for s in by_rank[:-1]}
    ranks = {str(s.intent_id): rank(s) for s in arrivals}
    for intent_id, (by,) in told.items():
        assert ranks[by] > ranks[intent_id]


@given(ASKED.flatmap(lambda asked: st.lists(st.sampled_from(asked), min_size=1, max_size=16)))
def test_repeats_change_neither_the_survivor_nor_who_is_over(arrivals: list[SubjectSeen]) -> None:
    first = list({s.intent_id: s for s in arrivals}.values())
    newest, told = read(arrivals)
    assert newest == max(first, key=rank).intent_id
    assert set(told) == {s.intent_id for s in first} - {newest}
    assert read(arrivals) == read(arrivals)


@given(ASKED, st.integers(EXPIRY_MS - 5, EXPIRY_MS + 10))
def test_nobody_past_the_expiry_is_told_and_everybody_before_it_is(asked: list[SubjectSeen], at: int) -> None:
    newest, told = read(asked, at_ms=T0 + at)
    alive = {s.intent_id for s in asked if s.expiry_ms > T0 + at}
    assert set(told) == alive - {newest}


def test_all_orders_of_three_give_the_same_survivor() -> None:
    asked = [subject_seen(at, name) for at, name in zip((2, 0, 2), NAMES, strict=False)]
    assert {read(list(order))[0] for order in permutations(asked)} == {NAMES[2]}
