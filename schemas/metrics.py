"""The closed list of metrics: name, kind, labels from closed sets, what it says; and how a process counts.

It must not have a label whose values are not listed in advance (case F26: a number as a label). The values of
`limit` are the names in the deployment's budgets; a process knows them before it counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from schemas.attempt import AttemptState
from schemas.ids import Channel
from schemas.observation import LookupAnswer
from schemas.reasons import Reason
from schemas.record import TopicKind

LIMIT = "limit"


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    says: str

    @property
    def process(self) -> str:
        """Who counts it: `worker`, `dispatcher`, `poller` or `auditor`."""
        return self.name.split("_")[1]


# What a label may say; a limit's names come from the budgets.
VALUES: Mapping[str, tuple[str, ...]] = {
    "topic": tuple(kind.value for kind in TopicKind),
    "fate": ("decided", "absorbed", "dead_lettered"),
    "reason": tuple(reason.value for reason in Reason),
    "channel": tuple(channel.value for channel in Channel),
    "state": tuple(state.value for state in AttemptState),
    "answer": tuple(answer.value for answer in LookupAnswer),
    "share": ("50", "80", "90"),
}

_C, _G = MetricKind.COUNTER, MetricKind.GAUGE

INPUTS = Metric("backstop_worker_inputs_total", _C, ("topic", "fate"), "Inputs that have their fate.")
DECISIONS = Metric("backstop_worker_decisions_total", _C, ("reason",), "Decisions by reason.")
REROUTED = Metric(
    "backstop_worker_rerouted_total", _C, ("topic",), "Records found in a wrong partition and sent home."
)
QUARANTINED = Metric(
    "backstop_worker_quarantined_total", _C, (), "Intents held because the machine failed on a record."
)
PARKED = Metric("backstop_worker_parked", _G, (), "Intents of which facts came before the request.")
PENDING_S = Metric(
    "backstop_worker_pending_seconds", _G, (), "How long work has waited without a commit; 0 when none waits."
)
ATTEMPTS = Metric(
    "backstop_dispatcher_attempts_total", _C, ("channel", "state"), "Answers to orders by state."
)
NOT_SENT = Metric(
    "backstop_dispatcher_not_sent_total", _C, ("channel", "reason"), "Orders refused or held before sending."
)
STORED_REPLIES = Metric(
    "backstop_dispatcher_stored_replies_total",
    _C,
    ("channel",),
    "Orders answered from the claim row; nothing was sent.",
)
LIMIT_MET = Metric(
    "backstop_dispatcher_limit_met_total", _C, (LIMIT,), "SMS that met a limit which had no room for them."
)
LIMIT_PASSED = Metric(
    "backstop_dispatcher_limit_passed_total",
    _C,
    (LIMIT, "share"),
    "Times that 50, 80 or 90 percent of a spend cap were passed.",
)
LOOKUPS = Metric("backstop_poller_lookups_total", _C, ("answer",), "Look-ups by answer.")
MALFORMED_RETRY_AFTER = Metric(
    "backstop_poller_malformed_retry_after_total", _C, (), "Retry-After values that were ignored."
)
ROWS = Metric(
    "backstop_auditor_rows_total", _C, ("topic",), "Records audited; one that comes again counts again."
)

METRICS: tuple[Metric, ...] = (
    INPUTS,
    DECISIONS,
    REROUTED,
    QUARANTINED,
    PARKED,
    PENDING_S,
    ATTEMPTS,
    NOT_SENT,
    STORED_REPLIES,
    LIMIT_MET,
    LIMIT_PASSED,
    LOOKUPS,
    MALFORMED_RETRY_AFTER,
    ROWS,
)


class Meter(Protocol):
    """Where a process counts; from any thread."""

    def count(self, metric: Metric, *labels: str, by: int = 1) -> None:
        """`labels` in the order of `metric.labels`."""


class NoMeter:
    """Counts nothing."""

    def count(self, metric: Metric, *labels: str, by: int = 1) -> None: ...


NO_METER = NoMeter()
