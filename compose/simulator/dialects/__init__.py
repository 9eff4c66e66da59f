"""The providers whose wire the simulator speaks, each below `/as/{provider}/{account}`.

A new one is a file beside this one and a line in `ALL`.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.routing import BaseRoute, Mount

from compose.simulator.desk import Desk
from compose.simulator.dialects.base import Dialect
from compose.simulator.dialects.postmark import Postmark
from compose.simulator.dialects.twilio import Twilio

ALL: tuple[type[Dialect], ...] = (Postmark, Twilio)
ID_SHAPES: dict[str, Callable[[str], str]] = {one.name: one.message_id for one in ALL}


def place(provider: str, account: str) -> str:
    """The path of an account's base address; empty for the simulator's own wire."""
    return f"/as/{provider}/{account}" if provider in ID_SHAPES else ""


def routes(desk: Desk) -> list[BaseRoute]:
    """Every dialect at its place."""
    return [Mount(place(one.name, "{account}"), routes=one(desk).routes()) for one in ALL]
