"""Is it said until when a forgotten intent can be named again, and until when its envelope lies in Kafka."""

from __future__ import annotations

from schemas.topics import DAY_MS, INTENT_RETENTION_MS
from sinks.operator.forgetting import LATE_MS, About, again_after_ms, claims_kept, sealed_until_ms

NOW_MS = 1_796_000_000_000


def ended(*expiries: int) -> list[About]:
    return [About(f"int-{n:04d}-test", at - 1, at, True, False) for n, at in enumerate(expiries)]


def test_the_latest_expiry_decides_until_when_it_can_be_named_again() -> None:
    found = ended(NOW_MS - DAY_MS, NOW_MS - 1, NOW_MS - 2)
    assert again_after_ms(found, NOW_MS) == NOW_MS - 1 + LATE_MS
    assert sealed_until_ms(found, NOW_MS) == NOW_MS - 1 + INTENT_RETENTION_MS


def test_nothing_is_said_of_what_is_over() -> None:
    found = ended(NOW_MS - LATE_MS, NOW_MS - 30 * DAY_MS)
    assert (again_after_ms(found, NOW_MS), sealed_until_ms(found, NOW_MS)) == (None, None)


def test_claims_are_kept_of_what_could_still_be_sent() -> None:
    assert claims_kept(ended(NOW_MS - 1, NOW_MS, NOW_MS + 1), NOW_MS) == 2
