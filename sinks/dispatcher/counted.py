"""The counts of SMS in Postgres: read, added to, given back, under the locks of their scopes.

All functions run inside a transaction of the guard, after its other locks. They must not judge; `spend` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sinks.dispatcher.spend import KEPT_MS, Cost, Used, windows
from sinks.postgres.queries import load

SQL = load("sinks.dispatcher")
_FIELDS = tuple(Used.__dataclass_fields__)


def lock(cursor: Any, scopes: Iterable[str]) -> None:
    """Until the end of the transaction."""
    cursor.execute(SQL["spend_lock"], {"scopes": sorted(set(scopes))})


def read(cursor: Any, scopes: Iterable[str], currency: str, now_ms: int) -> dict[str, Used]:
    """What was counted, by scope; what is missing was never used."""
    asked = {"scopes": list(scopes), "currency": currency} | windows(now_ms)
    rows = cursor.execute(SQL["spend_read"], asked).fetchall()
    return {row["scope"]: Used(**{name: row[name] for name in _FIELDS}) for row in rows}


def add(cursor: Any, intent_id: str, cost: Cost, now_ms: int) -> None:
    """Count this claim, and note on its row where."""
    given: dict[str, Any] = {
        "intent_id": intent_id,
        "scopes": list(cost.scopes),
        "hour_ms": windows(now_ms)["hour_ms"],
        "country": cost.country,
        "purpose": cost.purpose,
        "segments": cost.segments,
        "amount": cost.amount,
        "currency": cost.currency,
    }
    cursor.execute(SQL["spend_forget"], {"kept_ms": now_ms - KEPT_MS})  # under the lock of `all`
    cursor.execute(SQL["spend_add"], given)
    cursor.execute(SQL["spend_on_claim"], given)


def give_back(cursor: Any, claim_id: str) -> None:
    """What this claim counted, if it still does."""
    row = cursor.execute(SQL["spend_off_claim"], {"claim_id": claim_id}).fetchone()
    if row is not None:
        lock(cursor, row["scopes"])
        cursor.execute(SQL["spend_give_back"], row)


def completed(cursor: Any, intents: Sequence[str]) -> None:
    """These were done by their people: their SMS were of use."""
    rows = cursor.execute(SQL["spend_of_completed"], {"intents": list(intents)}).fetchall()
    if rows:
        scopes = sorted({scope for row in rows for scope in row["scopes"]})
        lock(cursor, scopes)
        found = {"intents": sorted(row["intent_id"] for row in rows), "scopes": scopes}
        cursor.execute(SQL["spend_finished"], found)
