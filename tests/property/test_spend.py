"""No interleaving of claims, results, lost holders and completions passes a cap or counts below nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.budget import Budgets
from schemas.ids import Channel
from schemas.reasons import Reason
from sinks.dispatcher.claims_memory import MemoryClaims
from sinks.dispatcher.rules import Grant
from sinks.dispatcher.spend import DAY_MS, Cost
from tests.budgets import spend, together
from tests.builders import T0
from tests.contract.claims_guard import LEASE_MS, order

PRICE = Decimal("0.05")
TENANTS = ("tenant-0001", "tenant-0002")
# Two caps of different scopes: everything, and one tenant.
CAPS: Budgets = together(spend("0.35"), spend("0.20", name="of_tenant", per=["tenant"]))
NOT_TAKEN = ("refused", "failed", "held", "not_accepted")

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.integers(0, 4), st.integers(1, 3)),
        st.tuples(st.just("lost"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("begin"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("finish"), st.integers(0, 4), st.sampled_from(("accepted", "unknown", *NOT_TAKEN))),
        st.tuples(st.just("done"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.sampled_from((1_000, LEASE_MS + 10_001))),
    ),
    min_size=20,  # short ones are in them
    max_size=60,
)


@dataclass
class Outside:
    """What anyone sees who is told each answer: which intents' SMS may be at the provider, or may still be
    sent by a holder, and at what cost."""

    claims: MemoryClaims
    now: list[int]
    holders: dict[int, str] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    may_cost: dict[int, Cost] = field(default_factory=dict)

    def step(self, what: str, intent: int, how: Any) -> None:
        match what:
            case "claim":
                self.claim(intent, how)
            case "begin" if intent in self.holders:
                self.claims.begin(self.holders[intent])
            case "lost" if intent in self.holders:
                self.claims.begin(self.holders[intent])
                self.finish(intent, "unknown")
            case "finish" if intent in self.holders:
                self.finish(intent, how)
            case "done":
                closed = [(name(intent), Reason.COMPLETED)]
                self.claims.write_facts(closed=closed, suppressed=[], lifted=[], progress={})
            case "wait":
                self.now[0] += how

    def claim(self, intent: int, segments: int) -> None:
        number = self.numbers.get(intent, 0) + 1
        cost = Cost(
            TENANTS[intent % 2], "GB", "password_reset", "k1.r.aa", False, segments, PRICE * segments, "EUR"
        )
        asked = replace(
            order(number, Channel.SMS, intent_id=name(intent), fingerprints=(name(intent),)),
            claim_id=f"{intent}-{number}-{len(self.holders)}-{self.now[0]}",
            tenant=cost.tenant,
            cost=cost,
        )
        found = self.claims.claim(asked)
        if isinstance(found, Grant):
            self.holders[intent], self.numbers[intent] = asked.claim_id, number
            self.may_cost.setdefault(intent, cost)

    def finish(self, intent: int, state: str) -> None:
        ours = self.claims.finish(
            self.holders[intent],
            intent_id=name(intent),
            channel=Channel.SMS,
            submission_no=self.numbers[intent],
            state=state,
            result={"state": state},
        )
        counted = self.claims._rows[name(intent), Channel.SMS]
        if ours and state in NOT_TAKEN and not counted.may_have_left:
            self.may_cost.pop(intent, None)


def name(intent: int) -> str:
    return f"int-{intent:04}-test"


@settings(max_examples=400)
@given(STEPS)
def test_no_interleaving_passes_a_cap_and_the_counts_are_what_may_cost(
    steps: list[tuple[str, int, Any]],
) -> None:
    now = [T0 - T0 % DAY_MS]  # a day of caps is before it
    seen = Outside(MemoryClaims(lambda: now[0], CAPS), now)
    for step in steps:
        seen.step(*step)
        in_all = sum((c.amount for c in seen.may_cost.values()), Decimal(0))
        assert in_all <= Decimal("0.35")
        for tenant in TENANTS:
            assert sum(c.amount for c in seen.may_cost.values() if c.tenant == tenant) <= Decimal("0.20")
        read = seen.claims._counts.read(["all"], "EUR", now[0])["all"]
        assert read.day_amount == in_all
        assert read.day_messages == len(seen.may_cost)
