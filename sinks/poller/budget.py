"""A token bucket per account, kept so that no window holds more calls than the provider documents.

It must not read a clock: instants come in, in seconds of a clock that never jumps.

    rate R per second, burst B = ⌈R / 10⌉, refill F = R − B (R when B is 1), interval = 1 / F

In any half-open window of one second there are at most B + F = R calls (rounded up); of k intervals, when R
is below one per second, at most k. The burst is what may be spent at once after a pause, so that a loop that
looks every 20 ms still gets four fifths of the rate. A new owner starts empty (SYSTEM.md §7): the old one may
just have spent everything, and its last call may still be running.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

BURST_SHARE = 10  # a tenth of a second's calls may be spent at once
_US_PER_S = 1_000_000


class Budget:
    """`take` spends one call when one is left. Counts in whole microseconds: no rounding adds up."""

    def __init__(self, per_s: float, *, owned_since_s: float, call_timeout_s: float) -> None:
        rate = Fraction(per_s).limit_denominator(_US_PER_S)
        self.burst = ceil(rate / BURST_SHARE)
        refill = rate if self.burst == 1 else rate - self.burst
        self.interval_us = ceil(_US_PER_S / refill)
        # The instant of a call that would be exactly on time; earlier calls eat into the burst.
        first_us = _us(owned_since_s + call_timeout_s) + self.interval_us
        self._next_us = first_us + self._slack_us

    @property
    def _slack_us(self) -> int:
        return (self.burst - 1) * self.interval_us

    def take(self, now_s: float) -> bool:
        """Whether a call may be made now; then it is spent."""
        now_us = _us(now_s)
        if now_us < self._next_us - self._slack_us:
            return False
        self._next_us = max(self._next_us, now_us) + self.interval_us
        return True


def _us(seconds: float) -> int:
    return int(seconds * _US_PER_S)
