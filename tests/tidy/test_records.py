"""The words keep their own rules: reasons, records, topics and metrics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from schemas.asyncapi import records
from schemas.metrics import LIMIT, METRICS, VALUES, Metric, MetricKind
from schemas.reasons import Reason, ReasonClass
from schemas.record import TopicKind
from schemas.topics import TOPICS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("schemas", "streams", "sinks", "compose")

# Codes that are part of the contract before the code that gives them (content and gates, SYSTEM.md §5, §6).
RESERVED = {
    Reason.RESEALED,
    Reason.EARLY_FACT,
    Reason.QUARANTINED,
    Reason.UNKNOWN_INTENT,
}


def _sources() -> str:
    paths = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")]
    return "\n".join(p.read_text("utf-8") for p in paths if p.name != "reasons.py")


@pytest.mark.parametrize("reason", list(Reason))
def test_a_reason_has_a_sentence_an_operator_can_read(reason: Reason) -> None:
    assert reason.sentence.endswith(".")
    assert reason.sentence[0].isupper()
    assert re.fullmatch(r"[a-z][a-z_]{3,39}", reason.value)
    assert reason.name == reason.value.upper()
    assert isinstance(reason.reason_class, ReasonClass)


def test_every_reason_is_given_somewhere_or_reserved_by_name() -> None:
    text = _sources()
    silent = {r for r in Reason if f"Reason.{r.name}" not in text and f'"{r.value}"' not in text}
    assert silent <= RESERVED, sorted(silent - RESERVED)


def test_sentences_and_codes_are_distinct() -> None:
    assert len({r.sentence for r in Reason}) == len(Reason)


@pytest.mark.parametrize("label", sorted(records()))
def test_a_record_explains_itself_and_is_versioned(label: str) -> None:
    record = records()[label]
    assert record.model_fields["version"].default == 1
    assert label == f"{re.sub(r'(?<!^)(?=[A-Z])', '_', record.__name__).lower()}.v1"


def test_times_and_durations_say_their_unit() -> None:
    wrong = [
        f"{label}/{name}"
        for label, record in records().items()
        for name, field in record.model_fields.items()
        if re.search(r"(_at|_until|deadline|expiry|time|_age|_after)$", name)
    ]
    assert not wrong


@pytest.mark.parametrize("metric", METRICS, ids=[m.name for m in METRICS])
def test_a_metric_says_what_it_means(metric: Metric) -> None:
    assert metric.says.endswith(".")
    assert re.fullmatch(r"backstop_(worker|dispatcher|poller|auditor)_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") is (metric.kind is MetricKind.COUNTER)


def test_the_readme_names_every_metric_and_no_other() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    told = re.findall(r"^\| `(backstop_\w+)` \| ([^|]+) \| ([^|]+) \|$", readme, re.MULTILINE)
    assert told == [(m.name, ", ".join(m.labels) or "–", m.says) for m in METRICS]


def test_metrics_have_distinct_names_and_closed_labels() -> None:
    assert len({m.name for m in METRICS}) == len(METRICS)
    assert {label for m in METRICS for label in m.labels} <= {*VALUES, LIMIT}


@pytest.mark.parametrize("kind", list(TOPICS))
def test_a_topic_has_a_writer_a_reader_and_the_auditor(kind: TopicKind) -> None:
    topic = TOPICS[kind]
    assert topic.writers
    assert "auditor" in topic.readers
    assert topic.retention_ms != 0
    assert not (topic.compacted and topic.retention_ms > 0)
