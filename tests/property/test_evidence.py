"""The evidence lattice: any order, any grouping and any repetition of observations gives one state."""

from __future__ import annotations

from functools import reduce
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas.attempt import AttemptState
from schemas.ids import Channel
from schemas.observation import LookupAnswer, Observation, ProviderState
from schemas.reasons import Reason
from streams.core.evidence import SUPPRESSING, join, stronger
from streams.core.state import Facts, IntentState
from tests.builders import Play, attempt, context, observation, policy, started

_STATES = st.sampled_from(list(ProviderState))
_REASONS = st.sampled_from([None, *sorted(SUPPRESSING), Reason.BLOCKED])


def _seen(at: int, state: ProviderState, reason: Reason | None, token: str) -> Observation:
    return observation(at, state, reason=reason, raw_token=token, poll_no=99)


OBSERVATIONS = st.builds(
    _seen, st.integers(2_000, 50_000), _STATES, _REASONS, st.sampled_from(["", "deferred", "sent", "queued"])
)


def _shuffled(items: st.SearchStrategy[Any], count_max: int) -> st.SearchStrategy[Any]:
    """A list and the same list in another order."""
    lists = st.lists(items, max_size=count_max)
    return lists.flatmap(lambda one: st.tuples(st.just(one), st.permutations(one)))


def _facts(observations: list[Observation]) -> Facts:
    return reduce(join, observations, Facts())


@given(_shuffled(OBSERVATIONS, 8))
def test_any_order_gives_the_same_facts(both: tuple[list[Observation], list[Observation]]) -> None:
    assert _facts(both[0]) == _facts(both[1])


@given(st.lists(OBSERVATIONS, max_size=8))
def test_repetition_changes_nothing(seen: list[Observation]) -> None:
    assert _facts(seen) == _facts(seen + seen) == _facts([o for one in seen for o in (one, one)])


@given(st.lists(OBSERVATIONS, max_size=8), OBSERVATIONS)
def test_a_join_only_ever_adds(seen: list[Observation], more: Observation) -> None:
    before, after = _facts(seen), join(_facts(seen), more)
    for name in ("accepted_ms", "delivered_ms", "failed_ms", "temporary_ms", "unknown_ms"):
        old, new = getattr(before, name), getattr(after, name)
        assert (not old) or 0 < new <= old
    assert before.failed_reason is None or after.failed_reason is not None
    assert before.failed_reason is not Reason.COMPLAINT or after.failed_reason is Reason.COMPLAINT


@given(_shuffled(st.sampled_from([*sorted(SUPPRESSING), Reason.BLOCKED]), 5))
def test_the_stronger_reason_does_not_depend_on_order(both: tuple[list[Reason], list[Reason]]) -> None:
    one, other = (reduce(stronger, reasons, Reason.BLOCKED) for reasons in both)
    assert one is other


@given(OBSERVATIONS, st.sampled_from([a for a in LookupAnswer if a is not LookupAnswer.ANSWERED]))
def test_an_answer_that_is_not_one_is_no_evidence(seen: Observation, answer: LookupAnswer) -> None:
    assert join(Facts(), seen.model_copy(update={"answer": answer})) == Facts()


def _both(order: list[Observation], channel_claimed: bool) -> IntentState:
    game: Play = started(ctx=context(policy(bounce_after_delivered="keep")))
    game.give(1000, attempt(1000, AttemptState.ACCEPTED))
    if channel_claimed:
        game.until(63_000)
    for seen in order:
        game.give(64_000, seen)
    return game.live


@given(
    _shuffled(OBSERVATIONS, 6),
    st.booleans(),
)
def test_any_order_between_two_ticks_gives_one_evidence_state(
    both: tuple[list[Observation], list[Observation]], claimed: bool
) -> None:
    one, other = (_both(order, claimed) for order in both)
    assert one.email is not None
    assert other.email is not None
    assert one.email.facts == other.email.facts
    assert one.email.state is other.email.state
    assert one.email.submitted_ms == other.email.submitted_ms


@given(
    _shuffled(OBSERVATIONS.filter(lambda o: o.provider_state is not ProviderState.FAILED_PERMANENT), 6),
    st.booleans(),
)
def test_any_order_without_a_conflict_gives_one_whole_state(
    both: tuple[list[Observation], list[Observation]], claimed: bool
) -> None:
    one, other = (_both(order, claimed) for order in both)
    for state in (one, other):
        state.seq, state.prev_digest = 0, ""  # the chain tells the order; everything else must not
    assert one == other


def test_channels_do_not_share_facts() -> None:
    game = started()
    game.give(1000, observation(1000, ProviderState.FAILED_PERMANENT, reason=Reason.PERMANENT_BOUNCE))
    game.give(2000, observation(2000, ProviderState.DELIVERED, Channel.SMS))
    assert game.live.email is not None
    assert game.live.sms is not None
    assert not game.live.email.facts.delivered_ms
    assert not game.live.sms.facts.failed_ms
