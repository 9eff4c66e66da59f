"""Are views, partitions and settings of the engine what their sentences say?"""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.errors import SettingsRefused
from streams.engine import blockers, selfcheck
from streams.engine.app import EngineApp, _complete_numbers, build_app
from streams.engine.errors import (
    ExitCode,
    Fenced,
    LeaseLost,
    ProcessingFailed,
    RestoreFailed,
    SelfCheckFailed,
    TransactionFailed,
    exit_code,
)
from streams.engine.health import Health
from streams.engine.logs import OncePerInterval
from streams.engine.processor import Due, InputRecord, Output, View
from streams.engine.settings import GUARANTEES, EngineSettings
from streams.engine.store import PartitionedState
from streams.engine.timers import PartitionTimers
from streams.engine.transactions import producer_options


def settings(**more: Any) -> EngineSettings:
    return EngineSettings(app_id="app", bootstrap="127.0.0.1:9", slot="slot-0", now_ms=lambda: 0, **more)


class Silent:
    """A processor that does nothing."""

    inputs: tuple[str, ...] = ("in", "ticks")
    tables: tuple[str, ...] = ("one", "two")
    timer_table = "one"

    def process(self, record: InputRecord, view: View) -> None: ...

    def end_of_chunk(self, topic: str, view: View) -> None: ...

    def due_of(self, key: bytes, value: bytes) -> Due | None:
        return None

    def tick(
        self, partition: int, key: bytes, due: Due, *, emitted_at_ms: int, evidence_until_ms: int,
        generation: int,
    ) -> Output:  # fmt: skip
        return Output("ticks", partition, key, b"", None)

    def restored(self, view: View) -> None: ...


def view() -> View:
    return View(0, {"one": {b"old": b"1"}, "two": {}}, PartitionTimers())


def test_a_change_is_seen_at_once_and_only_the_last_one_is_written() -> None:
    seen = view()
    seen.put("one", b"k", b"1")
    seen.put("one", b"k", b"2")
    assert seen.get("one", b"k") == b"2"
    assert seen.get("two", b"k") is None
    assert seen.take().changes == {"one": {b"k": b"2"}}


def test_removing_a_key_writes_a_tombstone_but_only_when_there_was_one() -> None:
    seen = view()
    seen.put("one", b"old", None)
    seen.put("one", b"never", None)
    assert seen.get("one", b"old") is None
    assert seen.take().changes == {"one": {b"old": None}}


def test_a_key_set_and_removed_in_one_chunk_leaves_a_tombstone() -> None:
    seen = view()
    seen.put("two", b"k", b"1")
    seen.put("two", b"k", None)
    assert seen.take().changes == {"two": {b"k": None}}


def test_a_step_is_taken_once_and_its_content_stays() -> None:
    seen = view()
    seen.put("one", b"k", b"1")
    seen.emit(Output("t", 0, b"k", b"v", None))
    first = seen.take()
    seen.put("one", b"k", b"2")
    assert (first.changes, len(first.outputs)) == ({"one": {b"k": b"1"}}, 1)
    second = seen.take()
    assert (second.changes, second.outputs) == ({"one": {b"k": b"2"}}, [])


def test_a_table_key_cannot_be_none() -> None:
    with pytest.raises(TypeError):
        view().put("one", None, b"x")  # type: ignore[arg-type]


def test_empty_values_are_values() -> None:
    seen = view()
    seen.put("two", b"", b"")
    assert list(seen.items("two")) == [(b"", b"")]


@pytest.mark.parametrize(
    ("owned_in", "generation", "missing"),
    [(5, 6, []), (4, 6, [0]), (6, 6, [0]), (None, 6, [0])],
)
def test_memory_is_kept_only_if_owned_in_the_generation_before(
    owned_in: int | None, generation: int, missing: list[int]
) -> None:
    state = PartitionedState(("t",))
    if owned_in is not None:
        state.install({0: {"t": {b"k": b"v"}}}, {0}, owned_in)
    assert state.keep_only({0}, generation) == missing
    assert (0 in state.partitions) is not bool(missing)


def test_partitions_of_others_are_dropped() -> None:
    state = PartitionedState(("t",))
    state.install({0: {"t": {}}, 1: {"t": {b"k": b"v"}}}, {0, 1}, 1)
    assert state.keep_only({0}, 2) == []
    assert len(state) == 0


def test_inputs_that_are_not_assigned_together_are_refused() -> None:
    both = frozenset({"a", "b"})
    assert _complete_numbers([("a", 0), ("b", 0)], both) == {0}
    assert _complete_numbers([], both) == set()
    with pytest.raises(RestoreFailed, match=r"partitions \[1\]"):
        _complete_numbers([("a", 0), ("b", 0), ("a", 1)], both)


# settings and self-check


def test_settings_that_cannot_work_are_refused_together() -> None:
    with pytest.raises(SettingsRefused) as refused:
        settings(chunk_records_max=0, session_timeout_s=1.0)
    assert len(refused.value.problems) == 2


def test_a_slot_has_the_same_transactional_id_after_a_restart() -> None:
    assert settings().transactional_id == settings().transactional_id == "app-slot-0"
    options = producer_options(settings(transaction_timeout_ms=7_000))
    assert options["transactional.id"] == "app-slot-0"
    assert options["transaction.timeout.ms"] == 7_000
    assert options["partitioner"] == "murmur2_random"


def test_no_environment_variable_changes_an_effective_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = build_app(Silent(), settings())
    wanted = {name: getattr(calm.conf, name) for name in GUARANTEES}
    for name, param in calm.conf.SETTINGS.items():
        for prefix in ("", "F_", "BACKSTOP_NOT_FROM_THE_ENVIRONMENT_"):
            hostile = "true" if name.endswith("enabled") else "exactly_once" if "guarantee" in name else "7"
            if param.env_name:
                monkeypatch.setenv(prefix + param.env_name, hostile)
    monkeypatch.setenv("APP_ENV_PREFIX", "F_")
    app = build_app(Silent(), settings())
    assert {name: getattr(app.conf, name) for name in GUARANTEES} == wanted
    selfcheck.check_settings(app.conf, app.settings.faust_options())


def test_an_effective_setting_that_differs_is_named() -> None:
    app = build_app(Silent(), settings())
    wanted = app.settings.faust_options()
    effective = {name: getattr(app.conf, name) for name in wanted if not name.startswith("env")}
    selfcheck.check_settings(SimpleNamespace(**effective), wanted)
    with pytest.raises(SelfCheckFailed, match="table_standby_replicas is 1 and must be 0"):
        selfcheck.check_settings(SimpleNamespace(**{**effective, "table_standby_replicas": 1}), wanted)


def test_two_apps_in_one_process_share_nothing() -> None:
    one, two = build_app(Silent(), settings()), build_app(Silent(), settings())
    assert isinstance(one, EngineApp)
    assert one.timers is not two.timers
    assert one.partitions is not two.partitions
    names = [table.changelog_topic.get_topic_name() for table in one.state_tables]
    assert names == ["app-one-changelog", "app-two-changelog"] == list(one.processing.changelogs.values())


def test_the_self_check_names_every_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(selfcheck.VERSIONS, "aiokafka", "9.9")
    monkeypatch.setitem(selfcheck.NAMES, "mode.worker:Worker._gone", None)
    monkeypatch.setitem(selfcheck.NAMES, "mode.services:Service.crash", ("self",))
    monkeypatch.setitem(selfcheck.ASSIGNED, "aiokafka.consumer.consumer:AIOKafkaConsumer", ("_gone",))
    monkeypatch.setattr(selfcheck, "ACCELERATORS", ("faust.streams:_Gone",))
    with pytest.raises(SelfCheckFailed) as failed:
        selfcheck.check_libraries()
    assert len(failed.value.differences) == 5


# ends


def test_every_failure_has_its_exit_code() -> None:
    assert exit_code(None) == ExitCode.STOPPED
    assert exit_code(RuntimeError()) == ExitCode.FAILED
    assert exit_code(Fenced("s", "t")) == ExitCode.FENCED
    assert exit_code(LeaseLost("x")) == ExitCode.LEASE_LOST
    assert exit_code(TransactionFailed("x")) == ExitCode.FAILED
    assert exit_code(SelfCheckFailed([])) == ExitCode.REFUSED


def test_a_processor_failure_tells_where_and_not_what() -> None:
    failed = ProcessingFailed("in/0 offset 7", ValueError("+447700900123"))
    assert "in/0 offset 7" in str(failed)
    assert "447700" not in str(failed)


# health


def healthy() -> Health:
    health = Health(stuck_after_s=60.0)
    health.finish_restore((0, 1))
    return health


def test_a_restored_worker_is_ready_and_live() -> None:
    found = healthy().snapshot()
    assert (found.ready, found.live, found.partitions, found.reasons) == (True, True, (0, 1), ())


def test_a_rebalancing_worker_is_live_but_not_ready() -> None:
    health = healthy()
    health.begin_rebalance()
    found = health.snapshot(health.progressed_at + 1_000)
    assert (found.ready, found.live) == (False, True)


def test_pending_work_without_a_commit_is_not_live_after_the_limit() -> None:
    health = healthy()
    health.submitted()
    assert health.pending_since is not None
    assert health.pending_s(health.pending_since + 59) == 59.0
    assert health.snapshot(health.pending_since + 59).live
    assert not health.snapshot(health.pending_since + 61).live
    health.committed(is_idle=True)
    assert health.snapshot(health.progressed_at + 59).live


def test_unread_records_without_a_commit_are_not_live_after_the_limit() -> None:
    health = healthy()
    assert health.snapshot(health.progressed_at + 59).live
    assert not health.snapshot(health.progressed_at + 61).live


def test_a_worker_without_partitions_has_nothing_to_be_late_with() -> None:
    health = Health(stuck_after_s=60.0)
    health.finish_restore(())
    found = health.snapshot(health.progressed_at + 1_000)
    assert (found.ready, found.live) == (True, True)


def test_a_failed_engine_is_neither_live_nor_ready() -> None:
    health = healthy()
    health.failure = "Fenced"
    assert (health.snapshot().live, health.snapshot().ready) == (False, False)


# logs and blockers


def line(sentence: str, at: float) -> logging.LogRecord:
    record = logging.LogRecord("aiokafka.conn", logging.ERROR, "", 0, sentence, None, None)
    record.created = at
    return record


def test_repeated_lines_are_left_out_and_counted() -> None:
    once = OncePerInterval(10.0)
    assert once.filter(line("broker away", 0.0))
    assert not once.filter(line("broker away", 1.0))
    assert not once.filter(line("broker away", 9.0))
    assert once.filter(line("something else", 9.0))
    last = line("broker away", 10.5)
    assert once.filter(last)
    assert last.msg == "broker away (2 more like this were left out)"


def test_a_group_is_found_where_the_broker_puts_it() -> None:
    assert blockers.java_hash("hello") == 99162322  # "hello".hashCode()
    assert blockers.java_hash("Hello World!") == 969099747  # hashCode is -969099747
    assert blockers.java_hash("polygenelubricants") == 0  # hashCode is the smallest int


def test_a_diagnosis_without_a_broker_says_so() -> None:
    sentence = blockers.describe("127.0.0.1:9", [("topic", 3)])
    assert sentence.startswith("topic/3: the broker could not be asked")
