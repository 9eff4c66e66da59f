"""The closed list of metrics: name, kind, labels from closed sets, what it says.

It must not have a label whose values are not listed in advance (case F26: a number as a label).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    says: str


_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
METRICS: tuple[Metric, ...] = (
    Metric(
        "backstop_worker_inputs_total",
        _C,
        ("topic", "fate"),
        "Inputs by fate: decided, absorbed, parked, dead_lettered.",
    ),
    Metric("backstop_worker_decisions_total", _C, ("reason",), "Decisions by reason."),
    Metric(
        "backstop_worker_rerouted_total",
        _C,
        ("topic",),
        "Records found in a wrong partition and re-published.",
    ),
    Metric("backstop_worker_parked", _G, (), "Facts that wait for their intent; 0 at rest."),
    Metric(
        "backstop_worker_quarantined_total", _C, (), "Intents quarantined after a failure of the machine."
    ),
    Metric(
        "backstop_worker_commit_age_ms", _G, (), "Since the last committed transaction with work pending."
    ),
    Metric("backstop_dispatcher_attempts_total", _C, ("channel", "state"), "Attempts by state."),
    Metric(
        "backstop_dispatcher_stored_replies_total",
        _C,
        ("channel",),
        "Orders answered from the claim row; nothing was sent.",
    ),
    Metric("backstop_poller_lookups_total", _C, ("answer",), "Look-ups by answer."),
    Metric("backstop_poller_malformed_retry_after_total", _C, (), "Retry-After values that were ignored."),
    Metric("backstop_auditor_rows_total", _C, ("topic",), "Audit rows written."),
)
