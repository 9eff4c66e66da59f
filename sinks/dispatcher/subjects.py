"""Which intents are over because a newer request of their subject was read: the worker's rule, for the guard.

Pure. It must not judge by itself who is newer (`streams.core.subjects` does), nor keep anything.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from schemas.intent import IntentRequested
from schemas.subject import SubjectSeen, seen_of
from schemas.topics import DAY_MS, LONGEST_EXPIRY_MS
from streams.core.subjects import Newest, take

KEPT_MS = LONGEST_EXPIRY_MS + DAY_MS  # a day beyond the longest life: nobody reads this far behind and sends


def asked(request: IntentRequested, *, log_ms: int) -> SubjectSeen | None:
    """What a request read at `log_ms` says about its subject; None when it names none."""
    return seen_of(request, log_ms=log_ms, forget_at_ms=log_ms + KEPT_MS)


def weigh(
    known: Mapping[str, Newest], seen: Iterable[SubjectSeen], *, gone: Container[str]
) -> tuple[dict[str, Newest], list[str]]:
    """The rows that change, by subject, and the intents that are over.

    `gone`: intents superseded before. A request of one of these, or of the newest itself, is the same one
    again or a conflict: the first stands.
    """
    changed: dict[str, Newest] = {}
    over: list[str] = []
    for one in seen:
        row = changed.get(one.key) or known.get(one.key)
        if one.intent_id in gone or one.intent_id in over or (row and row.intent_id == one.intent_id):
            continue
        # Whether the older one is past its expiry is nothing to the guard: closed twice is closed.
        newest, ended = take(row, one, at_ms=0)
        if newest is not row:
            changed[one.key] = newest
        if ended is not None:
            over.append(ended.intent_id)
    return changed, over
