"""How many live intents still need a policy, and with it a template version: from the worker's own state.

It must not decide whether something may be retired.
"""

from __future__ import annotations

from collections import Counter

from schemas.topics import TopicNames
from sinks.kafka.consumer import read_all
from streams.core.state import from_bytes


def live_intents(bootstrap: str, prefix: str) -> Counter[str]:
    """Intents that are not closed, by policy; all that the changelog says now. Raises `KafkaAway`."""
    last: dict[bytes, bytes | None] = {}
    for message in read_all(bootstrap, TopicNames(prefix).changelog("intents")):
        if message.key is not None:
            last[message.key] = message.value
    states = (from_bytes(value) for value in last.values() if value)
    return Counter(state.policy for state in states if state.request_digest and state.closed is None)
