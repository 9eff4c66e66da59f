"""When to ask, to order again, to try a hold again: bounded, jittered, from the state alone.

It must not read a clock or roll dice: jitter is a hash of the intent id and the number.
"""

from __future__ import annotations

from zlib import crc32

from schemas.policy import PollSchedule

JITTER_SHARE = 0.2  # ± 20 %: spreads a fleet that recovered together over 40 % of the interval
HOLD_MS_FIRST = 5_000
HOLD_MS_MAX = 60_000
RESUBMIT_MS_MAX = 60_000


def jittered(ms: float, *, seed: str) -> int:
    """`ms` times a factor in [0.8, 1.2) that depends on `seed` only."""
    unit = crc32(seed.encode()) / 4_294_967_296
    return max(1, int(ms * (1 - JITTER_SHARE + 2 * JITTER_SHARE * unit)))


def poll_delay_ms(schedule: PollSchedule, number: int, *, seed: str) -> int:
    """Delay before look-up `number` (1, 2, …) of a stage: initial · factor^(n−1), capped, jittered."""
    exponent = min(number - 1, 32)  # 4^32 · 20 ms is already beyond any cap
    return jittered(min(schedule.interval_ms_max, schedule.initial_ms * schedule.factor**exponent), seed=seed)


def hold_delay_ms(count: int) -> int:
    """5, 10, 20, 40, 60, 60 … seconds (SYSTEM.md §4, holds)."""
    return int(min(HOLD_MS_MAX, HOLD_MS_FIRST * 2 ** min(count, 8)))


def resubmit_delay_ms(first_ms: int, number: int, *, seed: str) -> int:
    """Delay before submission `number + 1` when the provider named no time."""
    return jittered(min(RESUBMIT_MS_MAX, first_ms * 2 ** min(number - 1, 12)), seed=seed)
