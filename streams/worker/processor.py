"""From a record to the core and back: decode, account, apply, never decide.

One instance serves all partitions of a worker. It must not raise for what the world sends: a record
that cannot be used becomes a dead letter, and a fault of the core quarantines one intent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from schemas.accounts import Account
from schemas.codec import Undecodable, decode, headers
from schemas.control import Controls
from schemas.decision import InputKind
from schemas.errors import InvariantBroken
from schemas.ids import ID_PATTERN
from schemas.letters import LetterWriter
from schemas.metrics import DECISIONS, INPUTS, NO_METER, QUARANTINED, REROUTED, VALUES, Meter
from schemas.partitions import partition_for
from schemas.policy import Policy
from schemas.reasons import Reason
from schemas.record import Coordinates, Record, TopicKind
from schemas.subject import SubjectSeen
from schemas.tick import Tick, TickCause
from schemas.topics import WORKER_INPUTS, WORKER_TABLES, TopicNames
from streams.core import due
from streams.core.draft import Context, Input, where
from streams.core.effects import Fate, GivenUp, Step
from streams.core.machine import steps
from streams.core.state import IntentState, from_bytes, glance, holds, to_bytes
from streams.engine.processor import Due, Output, View
from streams.worker import accounting
from streams.worker.accounting import Tally
from streams.worker.outbox import SOURCE, Outbox
from streams.worker.parking import Parking
from streams.worker.subjects import SubjectKeeper

INTENTS, SEALED, PROGRESS, SUBJECTS = WORKER_TABLES
ORIGIN_HEADER = "bs_origin"  # topic/partition/offset of a record that was found in a wrong partition
_IS_ID = re.compile(ID_PATTERN[1:-1].encode()).fullmatch

KINDS = {
    "intent_requested": InputKind.REQUEST,
    "intent_completed": InputKind.COMPLETION,
    "intent_cancelled": InputKind.CANCELLATION,
    "intent_superseded": InputKind.SUPERSESSION,
    "attempt": InputKind.ATTEMPT,
    "observation": InputKind.OBSERVATION,
    "tick": InputKind.TICK,
    "instruction": InputKind.INSTRUCTION,
}


class IntentProcessor:
    """The worker's meaning, as `streams.engine.processor.Processor` wants it."""

    tables: tuple[str, ...] = WORKER_TABLES
    timer_table = INTENTS

    def __init__(
        self,
        names: TopicNames,
        *,
        partitions: Mapping[str, int],
        policies: Mapping[str, Policy],
        accounts: Mapping[str, Account],
        template_problem: Callable[[str, tuple[str, ...]], Reason | None],
        letter_key: bytes,
        meter: Meter = NO_METER,
    ) -> None:
        self.inputs = names.of(WORKER_INPUTS)
        self._meter = meter
        self._names = names
        self._kinds = {names[kind]: kind for kind in WORKER_INPUTS}
        self._ticks = names[WORKER_INPUTS[3]]
        self._count = partitions[self.inputs[0]]
        self._policies, self._accounts, self._template_problem = policies, accounts, template_problem
        self._outbox = Outbox(names, partitions)
        self._letters = LetterWriter(letter_key, by="worker")
        self._parking: dict[int, Parking] = {}
        self._subjects = SubjectKeeper()
        self._log_ms = 0  # of the record read last
        self._held: dict[int, set[bytes]] = {}
        self._control_ticks: set[bytes] = set()
        self._tally = Tally()
        self._context = Context(policies, accounts, Controls(), template_problem)

    # controls

    def use_controls(self, controls: Controls) -> None:
        """From the next record on these controls hold; what is held wants a tick (`held_keys`)."""
        self._context = Context(self._policies, self._accounts, controls, self._template_problem)

    def held_keys(self) -> dict[int, set[bytes]]:
        """Per partition, the intents something of which is held; their next tick says why it came."""
        found = {p: set(keys) for p, keys in self._held.items() if keys}
        for keys in found.values():
            self._control_ticks |= keys
        return found

    def parked_in(self, partitions: Iterable[int]) -> int:
        """Intents of which facts came before the request. From any thread."""
        return sum(len(self._parking[p]) for p in partitions if p in self._parking)

    # the engine's calls

    def process(self, record: Any, view: View) -> None:
        """One input: exactly one fate, everything that follows from it in the same transaction."""
        key, value, kind = record.key, record.value, self._kinds[record.topic]
        self._log_ms = record.timestamp
        if not key:
            self._dead(record, view, Undecodable(Reason.NULL_KEY))
            return
        stored = view.get(SUBJECTS if kind is TopicKind.SUBJECTS else INTENTS, key)
        if stored is None and not self._is_at_home(record, view):
            return
        decoded = decode(kind, key, value)
        if isinstance(decoded, Undecodable):
            self._dead(record, view, decoded)
            return
        if isinstance(decoded, SubjectSeen):
            self._subject_seen(decoded, record, view)
            return
        state = None if stored is None else from_bytes(stored)
        given = Input(
            decoded,
            KINDS[decoded.record],  # type: ignore[attr-defined]
            where(record.topic, record.partition, record.offset),
            record.timestamp,
        )
        try:
            found = steps(state, given, self._context)
        except InvariantBroken as exc:
            if exc.scope != "intent":
                raise
            self._quarantine(record, view, state, exc)
        except Exception as exc:  # noqa: BLE001  the core is pure: nothing has changed, one intent is held
            self._quarantine(record, view, state, exc)
        else:
            if given.kind is not InputKind.TICK and _says_nothing(found, state):
                # Nothing was learnt: the row, its place in the indexes and its timer stand as they are.
                self._tally.add(record.topic, found[0].fate)
            else:
                self._apply(found, view, key, decoded)

    def end_of_chunk(self, _topic: str, view: View) -> None:
        """Forget whose time is over, and count what this chunk touched by topic, in the same transaction."""
        self._subjects.forget(view, now_ms=self._log_ms)
        for topic, added in self._tally.drain().items():
            key = topic.encode()
            view.put(PROGRESS, key, accounting.merged(view.get(PROGRESS, key), added))
            self._count_fates(topic, added)

    def _count_fates(self, topic: str, added: Mapping[str, int]) -> None:
        for fate in VALUES["fate"]:
            if added.get(fate):
                self._meter.count(INPUTS, self._kinds[topic].value, fate, by=added[fate])

    def due_of(self, _key: bytes, value: bytes) -> Due | None:
        row = glance(value)
        return Due(row.due_ms, row.due_latest_ms) if row.due_ms else None

    def tick(
        self,
        partition: int,
        key: bytes,
        due: Due,
        *,
        emitted_at_ms: int,
        evidence_until_ms: int,
        generation: int,
    ) -> Output:
        """A reminder on the intent's own partition."""
        by_control = key in self._control_ticks
        self._control_ticks.discard(key)
        record = Tick(
            intent_id=key.decode(),  # type: ignore[arg-type]
            cause=TickCause.CONTROL if by_control else TickCause.DUE,
            due_ms=due.at_ms,
            emitted_at_ms=emitted_at_ms,
            evidence_until_ms=evidence_until_ms,
            generation=generation,
        )
        made = f"{record.intent_id}:{due.at_ms}:{generation}"
        return Output(
            self._ticks, partition, key, record.to_bytes(), headers(record, source=SOURCE, record_id=made)
        )

    def restored(self, view: View) -> None:
        """Rebuild the indexes of a partition from its state."""
        parking, held = Parking(), set()
        for key, value in view.items(INTENTS):
            row = glance(value)
            if not row.request_digest:
                parking.keep(key, has_end=_has_end(from_bytes(value)))
            elif holds(row):
                held.add(key)
        self._parking[view.partition], self._held[view.partition] = parking, held
        self._subjects.restored(view)

    # subjects

    def _subject_seen(self, seen: SubjectSeen, record: Any, view: View) -> None:
        """A request about a subject kept here; whoever is over by it is told in its own partition."""
        over = self._subjects.take(seen, record.key, view, at_ms=record.timestamp)
        if over is not None:
            view.emit(self._outbox.superseded(over, at_ms=record.timestamp))
            self._tally.note(record.topic, "superseded")
        self._tally.add(record.topic, Fate.ABSORBED)

    # applying

    def _apply(self, found: list[Step], view: View, key: bytes, record: Record) -> None:
        last = found[-1]
        for step in found:
            self._tally.add(step.trigger.topic, step.fate, was_parked=step.was_parked)
            if step.keep_sealed:
                view.put(SEALED, key, record.sealed.encode())  # type: ignore[attr-defined]
            if step.subject is not None:
                view.emit(self._outbox.subject(step.subject))
            if step.decision is not None:
                view.emit(self._outbox.decision(step, key, view.partition))
                self._meter.count(DECISIONS, step.decision.reason.value)
            self._emit_orders(step, view, key)
            if step.drop_sealed and view.get(SEALED, key) is not None:
                view.put(SEALED, key, None)
        state = last.state
        view.put(INTENTS, key, None if state is None else to_bytes(state))
        self._index(view, key, state)
        wanted = Due(state.due_ms, state.due_latest_ms) if state is not None and state.due_ms else None
        view.arm(key, wanted, again=isinstance(record, Tick))

    def _emit_orders(self, step: Step, view: View, key: bytes) -> None:
        state, trigger = step.state, step.trigger
        for order in step.dispatches:
            sealed = view.get(SEALED, key)
            if state is None or sealed is None:
                raise InvariantBroken("a dispatch without a payload to dispatch", scope="partition")
            policy = self._policies[state.policy]
            view.emit(
                self._outbox.dispatch(
                    order, state, policy, sealed=sealed.decode(), step=step, partition=view.partition
                )
            )
        for asked in step.lookups:
            if state is not None:
                view.emit(self._outbox.lookup(asked, state, state.last_now_ms))
        cause = f"{trigger.topic}/{trigger.partition}/{trigger.offset}"
        for wanted in step.suppressions:
            at_ms = state.last_now_ms if state is not None else 0
            view.emit(self._outbox.suppression(wanted, intent_id=key.decode(), cause=cause, at_ms=at_ms))
        for lost in step.given_up:
            self._give_up(view, key, lost, at_ms=lost.fact.at_ms)

    def _index(self, view: View, key: bytes, state: IntentState | None) -> None:
        parking = self._parking.setdefault(view.partition, Parking())
        held = self._held.setdefault(view.partition, set())
        if state is not None and holds(state):
            held.add(key)
        else:
            held.discard(key)
        if state is None or state.request_digest:
            parking.drop(key)
            return
        evicted = parking.keep(key, has_end=_has_end(state))
        if evicted is not None:
            self._evict(view, evicted)

    def _evict(self, view: View, key: bytes) -> None:
        """Too many facts without an intent in this partition: the oldest are given up, completions last."""
        stored = view.get(INTENTS, key)
        self._parking[view.partition].drop(key)
        if stored is None:
            return
        state = from_bytes(stored)
        for fact in state.early:
            self._give_up(view, key, GivenUp(fact, Reason.PARKING_FULL), at_ms=fact.at_ms)
        view.put(INTENTS, key, None)
        view.arm(key, None)

    def _give_up(self, view: View, key: bytes, lost: GivenUp, *, at_ms: int) -> None:
        fact = lost.fact
        source = Coordinates(topic=fact.topic, partition=fact.partition, offset=fact.offset)
        letter = self._letters.letter(
            source, lost.reason, value=fact.value, at_ms=at_ms, intent_id=key.decode()
        )
        view.emit(self._outbox.dead_letter(letter))
        self._tally.add(fact.topic, Fate.DEAD_LETTERED, was_parked=True)

    # what cannot be used

    def _dead(self, record: Any, view: View, why: Undecodable) -> None:
        source = Coordinates(topic=record.topic, partition=record.partition, offset=record.offset)
        key = record.key
        letter = self._letters.letter(
            source,
            why.reason,
            value=record.value,
            at_ms=record.timestamp,
            pointer=why.pointer,
            detail=why.detail,
            intent_id=key.decode() if key and _IS_ID(key) else None,
            headers=record.headers,
        )
        view.emit(self._outbox.dead_letter(letter))
        self._tally.add(record.topic, Fate.DEAD_LETTERED)

    def _quarantine(self, record: Any, view: View, state: IntentState | None, exc: Exception) -> None:
        """The core failed on this record: dead-letter it, hold its intent until an operator releases it."""
        self._meter.count(QUARANTINED)
        self._dead(record, view, Undecodable(Reason.CORE_ERROR, detail=type(exc).__name__))
        if state is None:
            return
        if state.quarantined:  # even its end failed: nothing is due any more until it is released
            state.due_ms = state.due_latest_ms = 0
        else:
            due.quarantine(state, self._policies.get(state.policy))
        view.put(INTENTS, record.key, to_bytes(state))
        view.arm(record.key, Due(state.due_ms, state.due_latest_ms) if state.due_ms else None)

    def _is_at_home(self, record: Any, view: View) -> bool:
        """Whether an unknown key belongs to this partition; if not, it is sent home once."""
        if partition_for(record.key, self._count) == view.partition:
            return True
        found = list(record.headers or ())
        if any(name == ORIGIN_HEADER for name, _ in found):
            self._dead(record, view, Undecodable(Reason.WRONG_PARTITION_TWICE))
            return False
        origin = f"{record.topic}/{record.partition}/{record.offset}".encode()
        view.emit(
            self._outbox.rerouted(record.topic, record.key, record.value, [*found, (ORIGIN_HEADER, origin)])
        )
        self._meter.count(REROUTED, self._kinds[record.topic].value)
        self._tally.add(record.topic, Fate.ABSORBED)
        self._tally.note(record.topic, "rerouted")
        return False


def _says_nothing(found: list[Step], state: IntentState | None) -> bool:
    """The machine gave back the very row it was given, and nothing to do."""
    return state is not None and found[0].state is state and not found[0].suppressions


def _has_end(state: IntentState) -> bool:
    return any(fact.ends is not None for fact in state.early)
