"""Requests to the simulator's model, as its tests ask them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from compose.simulator.behaviour import Model, Reply, Request
from schemas.accounts import Account, Capabilities
from schemas.ids import Channel
from tests.builders import T0

PLAIN = Capabilities(
    lookup_by_reference=True,
    lookup_by_message_id=True,
    lookup_batch_max=3,
    submits_per_s=2,
    lookups_per_s=0.5,
)


KEYED = PLAIN.model_copy(
    update={"idempotent_submit": True, "idempotency_window_ms": 60_000, "visibility_delay_ms": 500}
)


MUTE = Capabilities()


def model(**options: Any) -> Model:
    accounts = {
        name: Account(name=name, provider="simulated", channel=Channel.EMAIL, capabilities=caps)
        for name, caps in (("keyed", KEYED), ("plain", PLAIN), ("mute", MUTE))
    }
    return Model(accounts, seed=7, **options)


def ask(to: str, **changes: Any) -> Request:
    base = Request("plain", "int-0001.email", f"{to}@example.com", b"{}", key="int-0001.email")
    return replace(base, **changes)


def post(one: Model, to: str, at: int = 0, **changes: Any) -> Reply:
    return one.submit(ask(to, **changes), T0 + at)
