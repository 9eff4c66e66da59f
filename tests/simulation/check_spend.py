"""Checkers of what SMS may cost (issue 5, item 6), from the bill and the prices.

They must not repeat the code they check: what an SMS costs is read from what the provider took, and what may
have been counted from the claims that were granted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from functools import cache

from schemas.attempt import AttemptState
from schemas.budget import Action, Budgets, Dimension, Limit, SpendCap, VelocityCap
from schemas.destinations import PhoneNumber
from schemas.ids import Channel
from schemas.templates.registry import shipped
from schemas.templates.render import RenderInput, render_sms
from tests.simulation.evidence import Seen
from tests.simulation.sentences import Found, safety
from tests.simulation.services import Asked

DAY_MS = 86_400_000
SKEW_MS = 60_000  # the clocks of dispatcher and guard are never further apart


@safety("issue 5: what the provider took never passes a cap that holds or refuses")
def no_cap_is_passed(seen: Seen) -> Found:
    """A message a policy risked twice is on the bill twice and was counted once: that is said openly."""
    taken: dict[tuple[str, str, int], set[str]] = defaultdict(set)
    for entry in seen.new_messages:
        intent_id, channel = seen.place_of(entry)
        if channel is Channel.SMS:
            for limit in _strict(seen.world.budgets):
                taken[limit.name, _scope(seen, limit, intent_id), entry.at_ms // DAY_MS].add(intent_id)
    for limit in _strict(seen.world.budgets):
        for (name, scope, _), intents in taken.items():
            if name == limit.name and _used(seen, limit, intents) > _at_most(limit):
                yield f"{name} of {scope or 'all'}: {len(intents)} SMS, {_at_most(limit)} at most"


@safety("issue 5: a limit stops an SMS only when it is reached, and its name is told")
def limits_stop_only_what_they_must(seen: Seen) -> Found:
    """All that ever had a claim before is more than what counts: some of it was given back."""
    granted = [g for g in seen.claims if g.channel is Channel.SMS]
    by_name = {limit.name: limit for limit in seen.world.budgets.all()}
    for _, attempt in seen.attempts:
        if not attempt.limits:
            continue
        if attempt.state not in (AttemptState.HELD, AttemptState.REFUSED):
            yield f"{attempt.attempt_id}: {attempt.limits}, and nothing was stopped"
        limit = by_name[attempt.limits[0]]
        scope = _scope(seen, limit, attempt.intent_id)
        before = {
            g.intent_id
            for g in granted
            if g.at_ms <= attempt.at_ms + SKEW_MS and _scope(seen, limit, g.intent_id) == scope
        }
        if _used(seen, limit, before | {attempt.intent_id}) <= _at_most(limit):
            yield f"{attempt.attempt_id}: {limit.name} was not reached by {len(before)} SMS"


def _strict(budgets: Budgets) -> Iterator[Limit]:
    """All limits of these worlds are per day."""
    for limit in (*budgets.spend, *budgets.velocity):
        if limit.action is not Action.RECORD:
            yield limit


def _scope(seen: Seen, limit: Limit, intent_id: str) -> str:
    return seen.world.asked[intent_id].new.tenant if Dimension.TENANT in limit.per else ""


def _used(seen: Seen, limit: Limit, intents: set[str]) -> Decimal:
    if isinstance(limit, VelocityCap):
        return Decimal(len(intents))
    return sum((_price(seen, seen.world.asked[i]) for i in intents), Decimal(0))


def _at_most(limit: Limit) -> Decimal:
    return limit.amount_max if isinstance(limit, SpendCap) else Decimal(getattr(limit, "count_max"))  # noqa: B009


def _price(seen: Seen, asked: Asked) -> Decimal:
    """Of the text this person would read."""
    phone = asked.new.phone
    if phone is None:
        return Decimal(0)
    segment = seen.world.prices.per_segment(_country(phone), seen.end_ms)
    given = RenderInput(asked.new.intent_id, asked.new.locale, asked.expiry_ms, asked.new.variables)
    template = shipped()[seen.world.policies[asked.policy].template]
    return (segment or Decimal(0)) * render_sms(template, given).segments


@cache
def _country(phone: str) -> str:
    return PhoneNumber.parse(phone).country
