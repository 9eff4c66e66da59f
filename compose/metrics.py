"""The process's metrics in Prometheus's text format: every series of the closed list from the first second.

A label value that is not listed is counted under `other`, said once in the log, and never shown: whoever sent
it chose it. It must not be imported below `compose`; processes count on a `schemas.metrics.Meter`.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from schemas.metrics import LIMIT, METRICS, VALUES, Metric, MetricKind

log = logging.getLogger("backstop.metrics")

OTHER = "other"

disable_created_metrics()  # type: ignore[no-untyped-call]


class PrometheusMeter:
    """One per process. `limits` are the names in the budgets."""

    def __init__(self, process: str, *, limits: Iterable[str] = ()) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._values = {**VALUES, LIMIT: tuple(limits)}
        self._counters: dict[str, dict[tuple[str, ...], Counter]] = {}
        self._gauges: dict[str, Gauge] = {}
        for metric in METRICS:
            if metric.process != process:
                continue
            if metric.kind is MetricKind.COUNTER:
                self._counters[metric.name] = self._children(metric)
            else:
                self._gauges[metric.name] = Gauge(metric.name, metric.says, registry=self._registry)

    def count(self, metric: Metric, *labels: str, by: int = 1) -> None:
        """Add. From any thread."""
        children = self._counters[metric.name]
        child = children.get(labels)
        if child is None:
            child = self._unlisted(metric, children)
        child.inc(by)

    def read(self, metric: Metric, look: Callable[[], float]) -> None:
        """A gauge is what `look` says when it is asked."""
        self._gauges[metric.name].set_function(look)

    def exposition(self) -> bytes:
        """Everything as text, version 0.0.4."""
        return generate_latest(self._registry)

    def _children(self, metric: Metric) -> dict[tuple[str, ...], Counter]:
        """All there can be, at 0: an alert on an increase must see the first one."""
        counter = Counter(metric.name, metric.says, metric.labels, registry=self._registry)
        if not metric.labels:
            return {(): counter}
        found = itertools.product(*(self._values[label] for label in metric.labels))
        return {labels: counter.labels(*labels) for labels in found} | {
            (OTHER,) * len(metric.labels): counter.labels(*(OTHER,) * len(metric.labels))
        }

    def _unlisted(self, metric: Metric, children: dict[tuple[str, ...], Counter]) -> Counter:
        other = children[(OTHER,) * len(metric.labels)]
        if not other._value.get():  # noqa: SLF001  the library has no other way to ask
            log.error("%s: a label that is not listed; counted as %s", metric.name, OTHER)
        return other
