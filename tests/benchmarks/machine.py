"""The same work per record for the two competitors that are not the worker: decode, state, machine, bytes.

It must not know how records are read or kept; the callers do.
"""

from __future__ import annotations

from compose import settings as configuration
from compose import wiring
from schemas.codec import Undecodable, decode
from schemas.control import Controls
from schemas.record import TopicKind
from schemas.topics import TopicNames
from streams.core.draft import Context, Input
from streams.core.draft import where as where_of
from streams.core.machine import steps
from streams.core.state import from_bytes, to_bytes
from streams.worker.app import template_problems
from streams.worker.processor import KINDS

# What the benchmark preloads; ticks and instructions stay empty for these two.
LOADED = (TopicKind.INTENTS, TopicKind.ATTEMPTS, TopicKind.OBSERVATIONS)


class Machine:
    """`streams.core.machine.steps` between bytes, with the deployment's own policies and accounts."""

    def __init__(self, settings: configuration.Settings) -> None:
        names = TopicNames(settings.prefix)
        self._kinds = {names[kind]: kind for kind in LOADED}
        self._context = Context(
            configuration.policies(settings),
            wiring.provider_accounts(settings),
            Controls(),
            template_problems(configuration.templates(settings)),
        )

    def advance(
        self, stored: bytes | None, where: tuple[str, int, int], at_ms: int, record: tuple[bytes, bytes]
    ) -> tuple[bytes | None, list[bytes]]:
        """New state (None: forgotten) and decisions, as bytes. `where`: topic, partition, offset."""
        topic, partition, offset = where
        decoded = decode(self._kinds[topic], *record)
        if isinstance(decoded, Undecodable):
            raise TypeError(f"the benchmark loads valid records only: {decoded.reason.value}")
        given = Input(
            decoded,
            KINDS[decoded.record],  # type: ignore[attr-defined]
            where_of(topic, partition, offset),
            at_ms,
        )
        before = None if stored is None else from_bytes(stored)
        found = steps(before, given, self._context)
        state = found[-1].state
        if state is before:  # as the worker: nothing was learnt, so the row stands
            return stored, []
        decisions = [step.decision_bytes for step in found if step.decision is not None]
        return None if state is None else to_bytes(state), decisions
