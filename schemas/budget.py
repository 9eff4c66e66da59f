"""What SMS may cost, and how many may go out: limits per scope and window, read from one TOML file.

A scope is what is counted together: one tenant, one country, one range of numbers. Only the scopes of
`SCOPES` are counted, so only they can be limited; counting goes on whatever the file says, so that a new
limit knows the day so far. It must not count: `sinks.dispatcher.spend` judges, the guard counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Annotated, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from schemas.errors import BudgetsRefused
from schemas.ids import Country, LimitName, Purpose, TenantId
from schemas.policy import Clause
from schemas.price import Currency, Money
from schemas.written import NotToml, shown, toml

LIMITS_MAX = 50
AMOUNT_MAX, COUNT_MAX = Decimal(10**9), 10**9  # above any of a day; text and numbers stay of a size
Messages = Annotated[int, Field(ge=1, le=COUNT_MAX)]
Share = Annotated[float, Field(ge=0, le=1)]


class Dimension(StrEnum):
    """`range`: the thousand numbers around one, as a keyed hash."""

    TENANT = "tenant"
    COUNTRY = "country"
    PURPOSE = "purpose"
    RANGE = "range"


_D = Dimension
# What is counted together; also, apart from that, what went out at once because the e-mail failed.
SCOPES: tuple[frozenset[Dimension], ...] = (
    frozenset(),
    frozenset({_D.TENANT}),
    frozenset({_D.COUNTRY}),
    frozenset({_D.PURPOSE}),
    frozenset({_D.TENANT, _D.COUNTRY}),
    frozenset({_D.TENANT, _D.PURPOSE}),
    frozenset({_D.COUNTRY, _D.PURPOSE}),
    frozenset({_D.RANGE}),
)
INSTANT_SCOPES: tuple[frozenset[Dimension], ...] = (
    frozenset(),
    frozenset({_D.TENANT}),
    frozenset({_D.COUNTRY}),
)


class Window(StrEnum):
    """The clock hour or the day, UTC."""

    HOUR = "hour"
    DAY = "day"


class Action(StrEnum):
    """What a limit that is reached does. `hold`: the order is given back; `refuse`: the SMS ends."""

    RECORD = "record"
    HOLD = "hold"
    REFUSE = "refuse"


class Limit(Clause):
    """What all limits have. Without `tenants`, `countries` or `purposes` it is for every one of them."""

    name: LimitName
    per: tuple[Dimension, ...]
    action: Action
    tenants: tuple[TenantId, ...] = ()
    countries: tuple[Country, ...] = ()
    purposes: tuple[Purpose, ...] = ()

    @property
    def scope(self) -> frozenset[Dimension]:
        return frozenset(self.per)

    @model_validator(mode="after")
    def _is_counted(self) -> Self:
        if len(self.scope) < len(self.per):
            raise ValueError("per names a dimension twice")
        if self.scope not in SCOPES:
            raise ValueError(
                f"per = {_written(self.scope)} is not counted; counted are {_all_written(SCOPES)}"
            )
        for dimension, values in (
            (_D.TENANT, self.tenants),
            (_D.COUNTRY, self.countries),
            (_D.PURPOSE, self.purposes),
        ):
            if values and dimension not in self.scope:
                raise ValueError(f"a limit for some of them has {dimension.value} in per")
        return self


class SpendCap(Limit):
    """Money per window: the estimate (segments times price) counts when the SMS is claimed."""

    window: Window
    amount_max: Annotated[Money, Field(le=AMOUNT_MAX)]


class VelocityCap(Limit):
    """Messages per window. `instant_only`: those before the deadline, because the e-mail failed."""

    window: Window
    count_max: Messages
    instant_only: bool = False

    @model_validator(mode="after")
    def _instant_is_counted(self) -> Self:
        if self.instant_only and self.scope not in INSTANT_SCOPES:
            raise ValueError(f"instant_only is counted per {_all_written(INSTANT_SCOPES)}")
        return self


class CompletionBreaker(Limit):
    """Against SMS pumping: how many may be without a completion at once.

    In the last 24 hours fewer than the largest of `floor_day`, `share_day` of the best of the last 14 days
    and `share_day` of what was completed; in the present hour than the largest of `floor_hour`, `share_hour`
    of a sixth of that best day, and `share_hour` of what was completed in it.
    """

    floor_day: Messages
    share_day: Share = 0.3
    floor_hour: Messages
    share_hour: Share = 0.2


class Budgets(Clause):
    """All limits of a deployment, in one currency."""

    currency: Currency
    spend: tuple[SpendCap, ...] = ()
    velocity: tuple[VelocityCap, ...] = ()
    completion: tuple[CompletionBreaker, ...] = ()

    @field_validator("completion")
    @classmethod
    def _has_completions(cls, found: tuple[CompletionBreaker, ...]) -> tuple[CompletionBreaker, ...]:
        for breaker in found:
            if not breaker.purposes:
                raise ValueError("name the purposes that people complete")
        return found

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        names = [limit.name for limit in self.all()]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"two limits are called {', '.join(twice)}")
        if len(names) > LIMITS_MAX:
            raise ValueError(f"at most {LIMITS_MAX} limits")
        return self

    def all(self) -> Iterator[Limit]:
        yield from self.spend
        yield from self.velocity
        yield from self.completion


UNLIMITED = Budgets(currency="XXX")  # ISO 4217: no currency


def parse(text: str, *, name: str) -> Budgets:
    """The budgets of a file; amounts are text. Raises `BudgetsRefused` naming every wrong field."""
    try:
        given = toml(text)
    except NotToml as exc:
        raise BudgetsRefused(f"{name} is not TOML: {exc}", code="malformed") from None
    caps = given.get("spend")
    if isinstance(caps, list) and any(
        isinstance(c, dict) and isinstance(c.get("amount_max"), int | float) for c in caps
    ):
        raise BudgetsRefused(f'{name}: write amount_max as text ("25.00")', code="not_text")
    try:
        return Budgets.model_validate(given, strict=False)
    except ValidationError as exc:
        wrong = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'budgets'}: {e['msg'].removeprefix('Value error, ')}"
            for e in exc.errors(include_input=False)
        )
        raise BudgetsRefused(shown(f"{name}: {wrong}"), code="invalid_field") from None


@cache
def shipped() -> Budgets:
    """Those of a deployment that names none."""
    path = files("schemas.budgets").joinpath("default.toml")
    return parse(path.read_text("utf-8"), name="the shipped budgets")


def money(amount: Decimal, currency: str) -> str:
    """For texts: two decimals at least, no exponent."""
    exact = amount.normalize()
    places = max(2, -int(exact.as_tuple().exponent))
    return f"{exact:.{places}f} {currency}"


def _written(scope: frozenset[Dimension]) -> str:
    return str(sorted(d.value for d in scope))


def _all_written(scopes: tuple[frozenset[Dimension], ...]) -> str:
    return ", ".join(map(_written, scopes))
