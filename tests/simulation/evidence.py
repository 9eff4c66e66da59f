"""What anyone outside can see of a world that has run: topics, the provider's ledger, audit rows, changelogs.

Checkers read this and nothing else. It must not judge.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from typing import Any

import orjson

from compose.scenario.log import MemoryView, Stored
from compose.simulator.ledger import Entry, Route, is_new
from schemas.attempt import Attempt
from schemas.codec import Undecodable, decode
from schemas.decision import Decision
from schemas.dispatch import Dispatch
from schemas.ids import Channel, dispatch_key
from schemas.intent import IntentCancelled, IntentCompleted, IntentRequested, IntentSuperseded
from schemas.lookup import Lookup, LookupPurpose
from schemas.observation import Observation, ProviderState
from schemas.policy import Policy
from schemas.reasons import Reason
from schemas.record import Record, TopicKind
from schemas.suppression import Suppression
from schemas.topics import TOPICS, WORKER_INPUTS
from sinks.kafka.consumer import Message
from sinks.providers.simulated import normalise
from streams.core.state import IntentState, from_bytes
from streams.worker.accounting import FATES
from tests.simulation.faults import GENTLE
from tests.simulation.guard import Granted
from tests.simulation.world import World


class Seen:
    """Everything by intent, in the order of the log."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.end_ms = world.agenda.now_ms

    def messages(self, kind: TopicKind) -> list[Message]:
        return self.world.log.all_of(self.world.names[kind])

    def records(self, kind: TopicKind) -> list[tuple[Message, Record]]:
        found = []
        for message in self.messages(kind):
            record = decode(kind, message.key, message.value)
            if not isinstance(record, Undecodable):
                found.append((message, record))
        return found

    @cached_property
    def decisions(self) -> dict[str, list[tuple[Message, Decision]]]:
        found: dict[str, list[tuple[Message, Decision]]] = defaultdict(list)
        for message, record in self.records(TopicKind.DECISIONS):
            if isinstance(record, Decision):
                found[record.intent_id].append((message, record))
        return found

    @cached_property
    def requests(self) -> dict[str, list[tuple[Message, IntentRequested]]]:
        found: dict[str, list[tuple[Message, IntentRequested]]] = defaultdict(list)
        for message, record in self.records(TopicKind.INTENTS):
            if isinstance(record, IntentRequested):
                found[record.intent_id].append((message, record))
        return found

    @cached_property
    def ends(self) -> dict[str, list[tuple[int, Reason]]]:
        """Completions, cancellations and supersessions by intent, with the log's time."""
        found: dict[str, list[tuple[int, Reason]]] = defaultdict(list)
        for message, record in self.records(TopicKind.INTENTS):
            if isinstance(record, IntentCompleted):
                found[record.intent_id].append((message.timestamp_ms, Reason.COMPLETED))
            elif isinstance(record, IntentCancelled):
                found[record.intent_id].append((message.timestamp_ms, Reason.CANCELLED))
            elif isinstance(record, IntentSuperseded):
                found[record.intent_id].append((message.timestamp_ms, Reason.SUPERSEDED))
        return found

    @cached_property
    def dispatches(self) -> list[tuple[Message, Dispatch]]:
        kinds = (TopicKind.DISPATCHES_URGENT, TopicKind.DISPATCHES_BULK)
        return [(m, r) for kind in kinds for m, r in self.records(kind) if isinstance(r, Dispatch)]

    @cached_property
    def attempts(self) -> list[tuple[Message, Attempt]]:
        return [(m, r) for m, r in self.records(TopicKind.ATTEMPTS) if isinstance(r, Attempt)]

    @cached_property
    def observations(self) -> list[tuple[Message, Observation]]:
        return [(m, r) for m, r in self.records(TopicKind.OBSERVATIONS) if isinstance(r, Observation)]

    @cached_property
    def lookups(self) -> list[tuple[Message, Lookup]]:
        return [(m, r) for m, r in self.records(TopicKind.LOOKUPS) if isinstance(r, Lookup)]

    @cached_property
    def suppressions(self) -> list[tuple[Message, Suppression]]:
        return [(m, r) for m, r in self.records(TopicKind.SUPPRESSIONS) if isinstance(r, Suppression)]

    @cached_property
    def submissions(self) -> list[Entry]:
        """Requests to submit that reached a provider, whatever came of them."""
        return [e for e in self.world.model.ledger if e.route == Route.SUBMIT]

    @cached_property
    def new_messages(self) -> list[Entry]:
        """Those by which a message came into being."""
        return [e for e in self.submissions if is_new(e)]

    def place_of(self, entry: Entry) -> tuple[str, Channel]:
        """Intent and channel of a reference."""
        return self._places[entry.reference]

    @cached_property
    def _places(self) -> dict[str, tuple[str, Channel]]:
        return {dispatch_key(i, c): (i, c) for i in self.world.asked for c in Channel}

    @cached_property
    def claims(self) -> list[Granted]:
        return [g for g in self.world.granted if g.what == "claim"]

    @cached_property
    def begins(self) -> list[Granted]:
        """First bytes allowed, with the intent and channel of their claim."""
        by_id = {g.claim_id: g for g in self.claims}
        return [
            Granted(g.at_ms, g.what, g.claim_id, c.intent_id, c.channel, c.submission_no, c.fingerprints)
            for g in self.world.granted
            if g.what == "begin" and (c := by_id.get(g.claim_id)) is not None
        ]

    def policy(self, intent_id: str) -> Policy:
        return self.world.policies[self.world.asked[intent_id].policy]

    def begun_ms(self, intent_id: str) -> int:
        """When the first request lay in the log."""
        return min(m.timestamp_ms for m, _ in self.requests[intent_id])

    def truth(self, intent_id: str, channel: Channel, state: ProviderState, by_ms: int) -> bool:
        """Whether the provider's own history of the message says so by then."""
        return any(
            at_ms <= by_ms and normalise(token, reason)[0] is state
            for at_ms, token, reason in self._histories.get(dispatch_key(intent_id, channel), ())
        )

    @cached_property
    def _histories(self) -> dict[str, list[tuple[int, Any, Any]]]:
        found: dict[str, list[tuple[int, Any, Any]]] = defaultdict(list)
        for message in self.world.model.transitions(self.end_ms):
            found[message["reference"]] += [
                (t["at_ms"], t["status"], t["reason"]) for t in message["transitions"]
            ]
        return found

    def is_last_look(self, intent_id: str, channel: Channel, poll_no: int) -> bool:
        return (intent_id, channel, poll_no) in self._last_looks

    @cached_property
    def _last_looks(self) -> set[tuple[str, Channel, int]]:
        return {
            (q.intent_id, q.channel, q.poll_no)
            for _, q in self.lookups
            if q.purpose is LookupPurpose.LAST_LOOK
        }

    @property
    def is_undisturbed(self) -> bool:
        """Whether nothing in this world keeps a deadline or an SMS from being in time."""
        return not set(self.world.options.chances) - GENTLE

    @cached_property
    def replayed(self) -> dict[str, list[bytes]]:
        """Decisions by intent of a new worker that is given the committed inputs in their order."""
        found: dict[str, list[bytes]] = defaultdict(list)
        processor = self.world.make_processor()
        tables: dict[int, dict[str, dict[bytes, bytes]]] = {}
        decisions = self.world.names[TopicKind.DECISIONS]
        for message, controls in self.world.processed:
            processor.use_controls(controls)
            part = tables.setdefault(message.partition, {name: {} for name in processor.tables})
            view = MemoryView(part, {})
            view.partition = message.partition
            record = Stored(
                message.topic, message.partition, message.offset, message.timestamp_ms, message.key,
                message.value, message.headers,
            )  # fmt: skip
            processor.process(record, view)  # type: ignore[arg-type]
            for output in view.outputs:
                if output.topic == decisions and output.key is not None and output.value is not None:
                    found[output.key.decode()].append(output.value)
        return found

    # state

    def rows(self, table: str) -> dict[tuple[int, bytes], bytes]:
        """The last value of every key in a changelog."""
        found: dict[tuple[int, bytes], bytes] = {}
        for message in self.world.log.all_of(self.world.names.changelog(table)):
            if message.key is None:
                continue
            if message.value is None:
                found.pop((message.partition, message.key), None)
            else:
                found[message.partition, message.key] = message.value
        return found

    @cached_property
    def states(self) -> dict[str, IntentState]:
        return {key.decode(): from_bytes(value) for (_, key), value in self.rows("intents").items()}

    @cached_property
    def counters(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for value in self.rows("progress").values():
            found.update(orjson.loads(value))
        return found

    def inputs(self) -> int:
        """Records on the worker's input topics."""
        return sum(len(self.messages(kind)) for kind in WORKER_INPUTS)

    def fates(self) -> int:
        return sum(self.counters[name] for name in FATES)

    def lag(self) -> dict[str, int]:
        """Groups that have not read to the end."""
        world, found = self.world, dict[str, int]()
        groups = {
            "sim.worker": WORKER_INPUTS,
            "sim.dispatcher": (TopicKind.DISPATCHES_URGENT, TopicKind.DISPATCHES_BULK),
            "sim.poller": (TopicKind.LOOKUPS,),
        }
        for group, kinds in groups.items():
            known = world.log.committed.get(group, {})
            for kind in kinds:
                for place, part in world.log.places.items():
                    if place[0] == world.names[kind]:
                        left = part.read(known.get(place, 0), 10**6, committed=True)[0]
                        if left:
                            found[f"{group} {place}"] = len(left)
        return found

    def all_records(self) -> dict[tuple[str, int, int], Message]:
        found = {}
        for kind in TOPICS:
            for message in self.messages(kind):
                found[message.topic, message.partition, message.offset] = message
        return found

    @property
    def audit_rows(self) -> dict[tuple[str, int, int], dict[str, Any]]:
        return self.world.audit.rows
