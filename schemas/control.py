"""An operator's order about the system: pause or resume a scope. Broadcast, never deleted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import StringConstraints, model_validator

from schemas.ids import ACCOUNT_PATTERN, COUNTRY_PATTERN, ID_PATTERN, NAME_PATTERN, Channel, Instant
from schemas.instruction import OperatorName, OperatorText
from schemas.record import Record

ControlName = Annotated[str, StringConstraints(pattern=r"^[a-z]+(:[A-Za-z0-9_-]{1,64})?$")]


class ControlScope(StrEnum):
    ALL = "all"
    PURPOSE = "purpose"
    COUNTRY = "country"
    PROVIDER = "provider"  # a provider account
    CHANNEL = "channel"
    TENANT = "tenant"


class ControlAction(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"


class Control(Record):
    """The last record per `name` (`all`, `country:GB`, `provider:simulated-sms`, …) holds.

    Paused: new claims stop, what has no database claim is held, what has one reconciles.
    """

    record: Literal["control"] = "control"
    version: Literal[1] = 1
    name: ControlName
    action: ControlAction
    operator: OperatorName
    why: OperatorText
    at_ms: Instant

    @model_validator(mode="after")
    def _scope_is_known(self) -> Self:
        """A value that no record can hold would be a kill switch that stops nothing (`country:gb`)."""
        scope, _, value = self.name.partition(":")
        fitting = _VALUES.get(scope)
        if fitting is None or not re.fullmatch(fitting, value):
            raise ValueError(
                "name is all, or one of purpose, country (such as GB), provider, channel (email or sms), "
                "tenant with a value as it stands in our records"
            )
        return self


_VALUES: dict[str, str] = {
    ControlScope.ALL: "",
    ControlScope.PURPOSE: NAME_PATTERN,
    ControlScope.COUNTRY: COUNTRY_PATTERN,
    ControlScope.PROVIDER: ACCOUNT_PATTERN,
    ControlScope.CHANNEL: "|".join(Channel),
    ControlScope.TENANT: ID_PATTERN,
}


class Controls:
    """The controls in force, as read up to `offset` of the controls topic. Immutable."""

    __slots__ = ("_paused", "offset")

    def __init__(self, paused: Iterable[str] = (), *, offset: int = -1) -> None:
        self._paused = frozenset(paused)
        self.offset = offset

    @classmethod
    def of(cls, latest: Mapping[str, Control], *, offset: int) -> Controls:
        return cls((n for n, c in latest.items() if c.action is ControlAction.PAUSE), offset=offset)

    def paused_by(
        self, *, purpose: str, tenant: str, channel: Channel, account: str, country: str | None
    ) -> str | None:
        """The name of a control that stops this, the widest first; None when open."""
        if not self._paused:
            return None
        names = (
            "all",
            f"channel:{channel.value}",
            f"purpose:{purpose}",
            f"provider:{account}",
            f"tenant:{tenant}",
        )
        for name in names:
            if name in self._paused:
                return name
        name = f"country:{country}"
        if channel is Channel.SMS and country is not None and name in self._paused:
            return name
        return None
