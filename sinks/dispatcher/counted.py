"""The counts of SMS in Postgres: read, added to, given back, under the locks of their scopes.

All functions run inside a transaction of the guard, after its other locks. They must not judge; `spend` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sinks.dispatcher.spend import BEST_DAYS, DAY_MS, HOUR_MS, KEPT_MS, Cost, Used
from sinks.postgres.queries import load

SQL = load("sinks.dispatcher")
_FIELDS = tuple(Used.__dataclass_fields__)


def lock(cursor: Any, scopes: Iterable[str]) -> None:
    """Until the end of the transaction."""
    cursor.execute(SQL["spend_lock"], {"scopes": sorted(set(scopes))})


def windows(now_ms: int) -> dict[str, int]:
    """Where the hour, the day (UTC), the last 24 hours and the 14 days before today begin."""
    hour_ms, day_ms = now_ms - now_ms % HOUR_MS, now_ms - now_ms % DAY_MS
    return {
        "hour_ms": hour_ms,
        "day_ms": day_ms,
        "recent_ms": hour_ms - DAY_MS + HOUR_MS,
        "best_ms": day_ms - BEST_DAYS * DAY_MS,
    }


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
        "kept_ms": now_ms - KEPT_MS,
        "country": cost.country,
        "purpose": cost.purpose,
        "segments": cost.segments,
        "amount": cost.amount,
        "currency": cost.currency,
    }
    cursor.execute(SQL["spend_add"], given)
    cursor.execute(SQL["spend_on_claim"], given)


def give_back(cursor: Any, claim_id: str) -> None:
    """What this claim counted, if it still does."""
    row = cursor.execute(SQL["spend_off_claim"], {"claim_id": claim_id}).fetchone()
    if row is not None:
        lock(cursor, row["scopes"])
        cursor.execute(SQL["spend_give_back"], row)


def completed(cursor: Any, intents: list[str]) -> None:
    """These were done by their people: their SMS were of use."""
    rows: list[Mapping[str, Any]] = cursor.execute(SQL["spend_of_completed"], {"intents": intents}).fetchall()
    if rows:
        lock(cursor, (scope for row in rows for scope in row["scopes"]))
    for row in rows:
        cursor.execute(SQL["spend_finished"], row)
