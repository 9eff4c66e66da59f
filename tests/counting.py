"""A meter that remembers, and fails a test that counts what is not listed.

It must not hold an expectation.
"""

from __future__ import annotations

from collections import Counter

from schemas.metrics import LIMIT, VALUES, Metric, MetricKind


class CountingMeter:
    """`meter.of(ATTEMPTS, "sms", "accepted")`."""

    def __init__(self) -> None:
        self._counted: Counter[tuple[str, ...]] = Counter()

    def count(self, metric: Metric, *labels: str, by: int = 1) -> None:
        assert metric.kind is MetricKind.COUNTER
        for name, value in zip(metric.labels, labels, strict=True):
            assert name == LIMIT or value in VALUES[name], f"{metric.name}: {name}={value} is not listed"
        self._counted[metric.name, *labels] += by

    def of(self, metric: Metric, *labels: str) -> int:
        """With the first labels only: all of them together."""
        wanted = (metric.name, *labels)
        return sum(n for key, n in self._counted.items() if key[: len(wanted)] == wanted)
