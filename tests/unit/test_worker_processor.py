"""The worker between bytes and the core: every input has one fate, and bad ones harm no neighbour."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pytest

from compose.scenario.log import MemoryView, Stored
from schemas.attempt import AttemptState
from schemas.control import Controls
from schemas.dead_letter import DeadLetter
from schemas.decision import Decision
from schemas.dispatch import Dispatch
from schemas.instruction import InstructionAction
from schemas.metrics import DECISIONS, INPUTS, QUARANTINED, REROUTED
from schemas.partitions import partition_for
from schemas.reasons import Reason
from schemas.record import Record, TopicKind
from schemas.tick import Tick, TickCause
from schemas.topics import TopicNames
from streams.core.state import from_bytes
from streams.engine.processor import Due, Output
from streams.worker.accounting import balance
from streams.worker.parking import Parking
from streams.worker.processor import ORIGIN_HEADER, IntentProcessor
from tests.builders import (
    EMAIL_FP,
    EXPIRY_MS,
    ID,
    SEALED,
    SMS_FP,
    T0,
    attempt,
    cancelled,
    completed,
    context,
    instruction,
    observation,
    request,
)
from tests.counting import CountingMeter

NAMES = TopicNames("t.")
CANARY = "canary-person@example.com"


class Bench:
    """One partition of the real processor over dictionaries."""

    def __init__(self, count: int = 1, partition: int = 0) -> None:
        given = context()
        self.meter = CountingMeter()
        self.processor = IntentProcessor(
            NAMES,
            partitions={NAMES[k]: count for k in TopicKind},
            policies=given.policies,
            accounts=given.accounts,
            template_problem=lambda _t, _v: None,
            letter_key=b"k" * 32,
            meter=self.meter,
        )
        self.partition = partition
        self.tables: dict[str, dict[bytes, bytes]] = {t: {} for t in self.processor.tables}
        self.timers: dict[bytes, Due] = {}
        self.outputs: list[Output] = []
        self.offset = 0

    def give(
        self,
        kind: TopicKind,
        value: bytes | Record | None,
        *,
        key: bytes | None = ID.encode(),
        at: int = 0,
        headers: tuple[tuple[str, bytes], ...] = (),
        ends_chunk: bool = True,
    ) -> list[Output]:
        data = value.to_bytes() if isinstance(value, Record) else value
        record = Stored(NAMES[kind], self.partition, self.offset, T0 + at, key, data, headers)
        self.offset += 1
        view = MemoryView(self.tables, self.timers)
        view.partition = self.partition
        self.processor.process(record, view)  # type: ignore[arg-type]
        if ends_chunk:
            self.processor.end_of_chunk(record.topic, view)  # type: ignore[arg-type]
        self.outputs += view.outputs
        return view.outputs

    def on(self, kind: TopicKind) -> list[Output]:
        return [o for o in self.outputs if o.topic == NAMES[kind]]

    def letters(self) -> list[DeadLetter]:
        return [DeadLetter.model_validate_json(o.value or b"") for o in self.on(TopicKind.DEAD_LETTERS)]

    def decisions(self) -> list[Decision]:
        return [Decision.model_validate_json(o.value or b"") for o in self.on(TopicKind.DECISIONS)]

    def counters(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for row in self.tables["progress"].values():
            counted: dict[str, int] = orjson.loads(row)
            assert balance(counted) == 0
            total.update(counted)
        return dict(total)


BAD: list[tuple[str, bytes | None, bytes | None, Reason]] = [
    ("malformed JSON", ID.encode(), b'{"a": ' + CANARY.encode(), Reason.MALFORMED),
    ("no key", None, request().to_bytes(), Reason.NULL_KEY),
    ("an empty key", b"", request().to_bytes(), Reason.NULL_KEY),
    ("a tombstone", ID.encode(), None, Reason.TOMBSTONE),
    ("a foreign key", CANARY.encode(), request().to_bytes(), Reason.KEY_MISMATCH),
    ("two megabytes", ID.encode(), b'"' + b"x" * 2_000_000 + b'"', Reason.TOO_LARGE),
    ("an unknown record", ID.encode(), b'{"record":"surprise","version":1}', Reason.UNKNOWN_RECORD),
    ("a newer version", ID.encode(), b'{"record":"intent_requested","version":2}', Reason.UNKNOWN_VERSION),
    (
        "a naive time",
        ID.encode(),
        request().to_bytes().replace(str(T0).encode(), b'"2026-09-21T14:13:20"', 1),
        Reason.INVALID_FIELD,
    ),
    (
        "a deadline at its expiry",
        ID.encode(),
        request().to_bytes().replace(str(T0 + 60_000).encode(), str(T0 + 900_000).encode()),
        Reason.INVALID_FIELD,
    ),
]


@pytest.mark.parametrize(("what", "key", "value", "reason"), BAD, ids=[b[0] for b in BAD])
def test_a_record_that_cannot_be_used_becomes_a_dead_letter_without_its_content(
    what: str, key: bytes | None, value: bytes | None, reason: Reason
) -> None:
    bench = Bench()
    bench.give(TopicKind.INTENTS, value, key=key)
    bench.give(TopicKind.INTENTS, request())  # the neighbour
    (letter,) = bench.letters()
    assert letter.reason is reason, what
    assert (letter.source.topic, letter.source.offset) == (NAMES[TopicKind.INTENTS], 0)
    assert letter.size == (0 if value is None else len(value))
    written = b"".join((o.value or b"") + (o.key or b"") for o in bench.on(TopicKind.DEAD_LETTERS))
    assert CANARY.encode() not in written
    assert [d.reason for d in bench.decisions()] == [Reason.INTAKE]
    assert bench.counters() == {"inputs": 2, "decided": 1, "dead_lettered": 1}


def test_the_dispatch_carries_the_payload_and_closing_forgets_it() -> None:
    bench = Bench()
    bench.give(TopicKind.INTENTS, request())
    (out,) = bench.on(TopicKind.DISPATCHES_URGENT)
    assert Dispatch.model_validate_json(out.value or b"").sealed == SEALED
    assert bench.tables["sealed"] == {ID.encode(): SEALED.encode()}
    bench.give(TopicKind.INTENTS, completed(500), at=500)
    assert bench.tables["sealed"] == {}
    assert all(SEALED.encode() not in v for t in bench.tables.values() for v in t.values())


def test_decisions_hold_no_payload() -> None:
    bench = Bench()
    bench.give(TopicKind.INTENTS, request())
    assert all(SEALED.encode() not in (o.value or b"") for o in bench.on(TopicKind.DECISIONS))


def test_inputs_are_counted_by_fate_decisions_by_reason_and_what_waits_is_a_level() -> None:
    bench = Bench()
    bench.give(TopicKind.ATTEMPTS, attempt(100, AttemptState.ACCEPTED), at=100)
    assert (bench.meter.of(INPUTS), bench.processor.parked_in([0])) == (0, 1)
    bench.give(TopicKind.INTENTS, request(), at=200)
    bench.give(TopicKind.INTENTS, b"nonsense", at=300, ends_chunk=False)
    bench.give(TopicKind.INTENTS, b"nonsense", at=300)
    counted = bench.counters()
    assert bench.processor.parked_in([0, 7]) == 0
    assert bench.meter.of(INPUTS) == counted["inputs"] == 4
    assert bench.meter.of(INPUTS, "intents", "dead_lettered") == counted["dead_lettered"] == 2
    assert bench.meter.of(DECISIONS) == len(bench.decisions()) > 0
    assert bench.meter.of(DECISIONS, bench.decisions()[0].reason.value) >= 1


def test_a_record_in_a_wrong_partition_is_sent_home_once_and_only_once() -> None:
    home = partition_for(ID.encode(), 6)
    bench = Bench(count=6, partition=(home + 1) % 6)
    (moved,) = bench.give(TopicKind.INTENTS, request())
    assert (moved.topic, moved.partition, moved.value) == (
        NAMES[TopicKind.INTENTS],
        home,
        request().to_bytes(),
    )
    bench.give(TopicKind.INTENTS, request(), headers=tuple(moved.headers or ()))
    assert dict(moved.headers or ())[ORIGIN_HEADER].endswith(b"/0")
    assert [letter.reason for letter in bench.letters()] == [Reason.WRONG_PARTITION_TWICE]
    assert bench.decisions() == []
    assert bench.counters() == {"inputs": 2, "absorbed": 1, "rerouted": 1, "dead_lettered": 1}
    assert (bench.meter.of(REROUTED), bench.meter.of(INPUTS, "intents", "dead_lettered")) == (1, 1)


def test_a_failure_of_the_core_quarantines_one_intent_and_a_release_brings_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    bench.give(TopicKind.INTENTS, request())

    def failing(*_: Any) -> Any:
        raise ZeroDivisionError(CANARY)

    monkeypatch.setattr("streams.worker.processor.steps", failing)
    bench.give(TopicKind.ATTEMPTS, attempt(100, AttemptState.ACCEPTED), at=100)
    monkeypatch.undo()
    (letter,) = bench.letters()
    assert (letter.reason, letter.detail) == (Reason.CORE_ERROR, "ZeroDivisionError")
    assert CANARY not in letter.to_bytes().decode()
    assert bench.meter.of(QUARANTINED) == 1
    state = from_bytes(bench.tables["intents"][ID.encode()])
    assert state.quarantined
    assert state.due_ms == state.expiry_ms
    bench.give(TopicKind.INSTRUCTIONS, instruction(200, InstructionAction.RELEASE), at=200)
    assert bench.decisions()[-1].reason is Reason.RELEASED
    assert not from_bytes(bench.tables["intents"][ID.encode()]).quarantined


def test_a_completion_before_its_request_is_parked_and_then_nothing_is_ever_sent() -> None:
    bench = Bench()
    bench.give(TopicKind.INTENTS, completed(0))
    assert bench.counters() == {"inputs": 1, "parked": 1}
    bench.give(TopicKind.INTENTS, request(), at=50)
    assert bench.on(TopicKind.DISPATCHES_URGENT) == []
    assert bench.decisions()[-1].closed == "completed"
    counters = bench.counters()
    assert (counters["inputs"], counters["parked"]) == (2, 0)


def test_a_fact_whose_request_never_comes_is_given_up_as_a_dead_letter() -> None:
    bench = Bench()
    bench.give(TopicKind.OBSERVATIONS, observation(0, None))
    due = bench.timers[ID.encode()]
    reminder = bench.processor.tick(
        0, ID.encode(), due, emitted_at_ms=due.at_ms, evidence_until_ms=due.at_ms, generation=1
    )
    bench.give(TopicKind.TICKS, reminder.value, at=due.at_ms - T0)
    assert [letter.reason for letter in bench.letters()] == [Reason.ORPHAN_EXPIRED]
    assert bench.tables["intents"] == {}
    assert bench.counters()["parked"] == 0


def test_parking_is_bounded_and_completions_are_given_up_last() -> None:
    bench = Bench()
    bench.processor._parking[0] = Parking(2)
    names = [f"int-000{n}-test" for n in range(3)]
    bench.give(TopicKind.INTENTS, completed(0, intent_id=names[0]), key=names[0].encode())
    for name in names[1:]:
        bench.give(TopicKind.OBSERVATIONS, observation(0, None, intent_id=name), key=name.encode())
    assert sorted(bench.tables["intents"]) == [names[0].encode(), names[2].encode()]
    assert [letter.reason for letter in bench.letters()] == [Reason.PARKING_FULL]


def test_the_same_request_sealed_again_is_absorbed_and_another_one_is_refused() -> None:
    bench = Bench()
    bench.give(TopicKind.INTENTS, request())
    bench.give(TopicKind.INTENTS, request(sealed="eyJhbGciOiJub25lIn0..AAAA.BBBB.DDDD"))
    bench.give(TopicKind.INTENTS, request(locale="fr"))
    assert [d.reason for d in bench.decisions()] == [Reason.INTAKE, Reason.CONFLICTING_REQUEST]
    assert len(bench.on(TopicKind.DISPATCHES_URGENT)) == 1


def test_a_control_change_asks_for_a_tick_of_what_is_held_and_says_why() -> None:
    bench = Bench()
    bench.processor.use_controls(Controls(["channel:sms"], offset=3))
    bench.give(TopicKind.INTENTS, request())
    bench.give(
        TopicKind.ATTEMPTS,
        attempt(10, AttemptState.FAILED, reason=Reason.INVALID_RECIPIENT),
        at=10,
    )
    assert bench.decisions()[-1].reason is Reason.CONTROL_PAUSED
    bench.processor.use_controls(Controls(offset=4))
    assert bench.processor.held_keys() == {0: {ID.encode()}}
    due = bench.timers[ID.encode()]
    out = bench.processor.tick(
        0, ID.encode(), due, emitted_at_ms=T0 + 20, evidence_until_ms=T0 + 20, generation=1
    )
    assert Tick.model_validate_json(out.value or b"").cause is TickCause.CONTROL
    bench.give(TopicKind.TICKS, out.value, at=20)
    assert bench.decisions()[-1].reason is Reason.CONCLUSIVE_FAILURE


def test_indexes_are_rebuilt_from_the_state() -> None:
    bench = Bench()
    bench.processor.use_controls(Controls(["all"], offset=3))
    bench.give(TopicKind.INTENTS, request())
    bench.give(TopicKind.ATTEMPTS, attempt(10, AttemptState.FAILED, reason=Reason.INVALID_RECIPIENT), at=10)
    bench.give(TopicKind.INTENTS, cancelled(0, intent_id="int-0009-test"), key=b"int-0009-test")
    fresh = Bench()
    fresh.tables = bench.tables
    view = MemoryView(fresh.tables, fresh.timers)
    fresh.processor.restored(view)  # type: ignore[arg-type]
    assert fresh.processor.held_keys() == {0: {ID.encode()}}
    assert len(fresh.processor._parking[0]) == 1


MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"deadline_ms": T0 + EXPIRY_MS}, "/deadline_ms"),
    ({"deadline_ms": "soon"}, "/deadline_ms"),
    ({"country": None}, "/country"),
    ({"email_fingerprint": SMS_FP}, "/email_fingerprint"),
    ({"sms_fingerprint": EMAIL_FP}, "/sms_fingerprint"),
    ({"phone_verified_at_ms": T0 + 1}, "/phone_verified_at_ms"),
    ({"publisher": CANARY}, "/publisher"),
    ({"challenge_ref": CANARY}, "/challenge_ref"),
    ({"challenge_ref": "https://app.example/r?t=1"}, "/challenge_ref"),
    ({"challenge_ref": "+447700900123"}, "/challenge_ref"),
    ({"sms_consent": {"granted_at_ms": T0, "text_ref": CANARY}}, "/sms_consent/text_ref"),
]


@pytest.mark.parametrize(("changes", "pointer"), MISFITS)
def test_a_request_that_cannot_be_read_is_told_to_its_publisher_with_the_field(
    changes: dict[str, Any], pointer: str
) -> None:
    body = orjson.loads(request().to_bytes()) | changes
    value = orjson.dumps({name: held for name, held in body.items() if held is not None})
    bench = Bench()
    bench.give(TopicKind.INTENTS, value, headers=(("ce_source", b"accounts-web"),))
    (letter,) = bench.letters()
    told = (letter.reason, letter.publisher, letter.pointer, letter.intent_id)
    assert told == (Reason.INVALID_FIELD, "accounts-web", pointer, ID)


@pytest.mark.parametrize("source", [CANARY.encode(), b"https://a.example", b"+447700900123", b"\xff", b"A-B"])
def test_a_source_that_is_no_name_is_not_repeated(source: bytes) -> None:
    bench = Bench()
    bench.give(TopicKind.INTENTS, b"{", headers=(("ce_source", source),))
    (letter,) = bench.letters()
    assert letter.publisher is None
