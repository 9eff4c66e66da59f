"""What a scraper gets: every series of the closed list at 0, counts under listed labels, nothing else."""

from __future__ import annotations

import logging

import pytest
from prometheus_client.parser import text_string_to_metric_families as families

from compose.metrics import PrometheusMeter
from schemas.metrics import (
    ATTEMPTS,
    DECISIONS,
    LIMIT_MET,
    LIMIT_PASSED,
    METRICS,
    PARKED,
    QUARANTINED,
    VALUES,
    MetricKind,
)
from schemas.reasons import Reason
from sinks.dispatcher.spend import WARN_AT

Series = dict[tuple[str, tuple[str, ...]], float]


def series(meter: PrometheusMeter) -> Series:
    """By name and label values in the order of the metric's labels."""
    order = {m.name: m.labels for m in METRICS}
    return {
        (s.name, tuple(s.labels[label] for label in order[s.name])): s.value
        for family in families(meter.exposition().decode())
        for s in family.samples
        if s.name in order
    }


@pytest.mark.parametrize("process", ["worker", "dispatcher", "poller", "auditor"])
def test_every_counter_of_a_process_is_there_at_0_before_anything_happens(process: str) -> None:
    found = series(PrometheusMeter(process, limits=["cap"]))
    assert set(found.values()) == {0.0}
    assert {name for name, _ in found} == {m.name for m in METRICS if m.process == process}


def test_a_count_is_seen_under_its_labels_and_nowhere_else() -> None:
    meter = PrometheusMeter("dispatcher", limits=["cap", "other_cap"])
    meter.count(ATTEMPTS, "sms", "accepted")
    meter.count(ATTEMPTS, "sms", "accepted", by=2)
    meter.count(LIMIT_MET, "cap")
    assert {k: v for k, v in series(meter).items() if v} == {
        (ATTEMPTS.name, ("sms", "accepted")): 3.0,
        (LIMIT_MET.name, ("cap",)): 1.0,
    }


def test_a_label_that_is_not_listed_is_counted_as_other_and_never_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    meter = PrometheusMeter("worker")
    with caplog.at_level(logging.ERROR, "backstop.metrics"):
        for _ in range(3):
            meter.count(DECISIONS, "ada@example.com")
    assert series(meter)[DECISIONS.name, ("other",)] == 3.0
    assert b"example.com" not in meter.exposition()
    assert [r.getMessage() for r in caplog.records] == [
        "backstop_worker_decisions_total: a label that is not listed; counted as other"
    ]


def test_a_counter_without_labels_and_a_gauge_that_is_looked_up() -> None:
    meter, parked = PrometheusMeter("worker"), [3]
    meter.read(PARKED, lambda: parked[0])
    meter.count(QUARANTINED)
    assert (series(meter)[QUARANTINED.name, ()], series(meter)[PARKED.name, ()]) == (1.0, 3.0)
    parked[0] = 0
    assert series(meter)[PARKED.name, ()] == 0.0


def test_the_lists_of_label_values_are_those_of_the_records() -> None:
    assert set(VALUES["reason"]) == {reason.value for reason in Reason}
    assert VALUES["share"] == tuple(f"{share * 100:.0f}" for share in WARN_AT)
    labels = {label for metric in METRICS for label in metric.labels}
    assert labels - set(VALUES) == {LIMIT_PASSED.labels[0]}
    assert all(m.kind is MetricKind.COUNTER for m in METRICS if m.labels)
