"""Who publishes: services that repeat, reorder, complete early or late, and operators.

Records are made by the real publisher library; when and where they reach the log is drawn. It must not look
at what the system does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from compose.simulator.plots import EMAIL_PLOTS
from compose.simulator.script import Plot, Status
from schemas.control import Control, ControlAction
from schemas.instruction import Instruction, InstructionAction
from schemas.record import TopicKind
from sinks.kafka.producer import OutgoingRecord, Publisher
from sinks.publisher import IntentPublisher, NewIntent
from tests.simulation.kafka import Away, Write

if TYPE_CHECKING:
    from tests.simulation.world import World

SPREAD_MS = 150_000  # over which the requests come
DEADLINE_MS, EXPIRY_MS = (6_000, 60_000), (110_000, 200_000)
SOON_MS, LATE_MS = (5, 300), (1_000, 90_000)
RETRY_MS = 1_000
CONTROLS = 4
# Beside the simulator's own: what takes longer than the first look-ups.
SLOW_PLOTS = {
    "stuck": Plot(statuses=(Status(500, "deferred"),)),
    "lately": Plot(statuses=(Status(500, "deferred"), Status(25_000, "delivered"))),
    "turned": Plot(statuses=(Status(500, "deferred"), Status(30_000, "bounced", "mailbox_unknown"))),
    "odd": Plot(statuses=(Status(500, "on-its-way-to-somewhere"), Status(40_000, "delivered"))),
}
AGE_MS = 86_400_000
# What a policy demands of an SMS beside the rest: an intent gets such a twin by a fault.
TWINS: dict[str, dict[str, Any]] = {
    "aged": {"consent_age_ms_min": AGE_MS, "phone_age_ms_min": AGE_MS},
    "mute": {"allowed": False},
}
AGES_MS = (0, 60_000, AGE_MS - 1, AGE_MS, AGE_MS, 90 * AGE_MS)
UNVERIFIED = 0.2  # how often a service does not know since when
SHARED = 0  # the person several intents are for
SUBJECTS = 2  # of each tenant: some four of twenty intents are about one of them
SAYS_STOP, STOP_DIGITS = 0.5, 600  # in every second world, where that person answers STOP
# What enters the suppression list, and what does not.
UNWANTED_PLOTS = ("bounce", "invalid", "suppressed", "complaint", "latebounce", "delivered", "never")
LINK = "https://app.example/reset?t=canary-"
HOSTILE_KINDS = (
    TopicKind.INTENTS,
    TopicKind.OBSERVATIONS,
    TopicKind.ATTEMPTS,
    TopicKind.LOOKUPS,
    TopicKind.DISPATCHES_URGENT,
    TopicKind.TICKS,
    TopicKind.SUPPRESSIONS,
)
HOSTILE_VALUES = (
    None,
    b"",
    b"{",
    b"[]",
    b'{"record":"intent_requested","version":9}',
    b'{"record":"observation","version":1}',
    b"\xff\x00" * 40,
    b"9" * 5_000,
)


@dataclass(slots=True)
class Asked:
    """What was published of one intent; instants are the log's clock, None: never."""

    new: NewIntent
    policy: str
    deadline_ms: int
    expiry_ms: int
    instructions: list[InstructionAction] = field(default_factory=list)


class _Capture:
    """`Publisher` that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[OutgoingRecord] = []

    def publish(self, records: Sequence[OutgoingRecord]) -> None:
        self.records += records

    def take(self) -> list[OutgoingRecord]:
        found, self.records = self.records, []
        return found


def twin_of(policy: str, twin: str) -> str:
    return policy.replace(":", f"_{twin}:")


def _is_twin(policy: str) -> bool:
    return policy.partition(":")[0].rpartition("_")[2] in TWINS


class Services:
    """Plans everything that is published in the first half."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._capture = _Capture()
        self._publisher = IntentPublisher(
            world.names,
            publisher=cast("Publisher", self._capture),
            sealing=world.sealing,
            fingerprints=world.prints,
            policies=world.policies,
        )
        self.asked: dict[str, Asked] = {}

    def plan(self) -> None:
        for number in range(self.world.options.intents):
            self._plan_intent(number)
        self._plan_controls()

    def _plan_intent(self, number: int) -> None:
        world, dice = self.world, self.world.dice
        life = dice.of(f"intent/{number}")
        at_ms = world.agenda.now_ms + life.randint(0, SPREAD_MS)
        new = self._new(number, at_ms)
        asked = Asked(new, new.policy, _ms(new.deadline), _ms(new.expiry))
        self.asked[new.intent_id] = asked
        late = dice.falls("service.late")
        world.agenda.at(at_ms, lambda: self._send(self._request(new), late=late))
        if dice.falls("service.repeat"):
            again = at_ms + life.randint(0, EXPIRY_MS[1] + 90_000)
            world.agenda.at(again, lambda: self._send(self._request(new)))
        if dice.falls("service.conflict"):
            other = replace(
                new, variables={**new.variables, "link": LINK + "other"}, challenge_ref="another-one"
            )
            world.agenda.at(at_ms + life.randint(0, 60_000), lambda: self._send(self._request(other)))
        if dice.falls("service.complete_first"):
            world.agenda.at(at_ms - 1, lambda: self._send(self._completion(new.intent_id)))
        elif dice.falls("service.complete"):
            done_ms = at_ms + life.randint(100, EXPIRY_MS[1])
            world.agenda.at(done_ms, lambda: self._send(self._completion(new.intent_id)))
        if dice.falls("service.cancel"):
            world.agenda.at(
                at_ms + life.randint(100, 90_000), lambda: self._send(self._cancellation(new.intent_id))
            )
        if dice.falls("operator.instruct"):
            action = life.choice(list(InstructionAction))
            asked.instructions.append(action)
            world.agenda.at(
                at_ms + life.randint(100, 120_000), lambda: self._send(self._instruction(new, action))
            )
        if dice.falls("service.garbage"):
            world.agenda.at(at_ms + life.randint(0, 60_000), lambda: self._garbage(new.intent_id))

    def _new(self, number: int, at_ms: int) -> NewIntent:
        dice = self.world.dice
        life = dice.of(f"person/{number}")
        person = SHARED if dice.falls("person.shared") else number
        plots = UNWANTED_PLOTS if person == SHARED else sorted(EMAIL_PLOTS) + sorted(SLOW_PLOTS) * 3
        plot = dice.of(f"plot/{person}").choice(plots)
        digits = dice.of(f"digits/{person}").randint(0, 899)
        if person == SHARED and dice.of("stop").random() < SAYS_STOP:
            digits = STOP_DIGITS + digits % 100
        policy = life.choice([p for p in sorted(self.world.policies) if not _is_twin(p)])
        at = _instant(at_ms)
        consented = at - self._consented_before(number)
        verified = at - timedelta(milliseconds=dice.of(f"ages/{number}").choice(AGES_MS))
        if dice.falls("policy.ages"):
            policy = twin_of(policy, "aged")
            consented = at - timedelta(milliseconds=dice.of(f"ages/{number}").choice(AGES_MS))
        elif dice.falls("policy.no_sms"):
            policy = twin_of(policy, "mute")
        deadline = life.randint(*DEADLINE_MS)
        return NewIntent(
            intent_id=f"intent-{number:04}",
            tenant=f"tenant-{number % 3:04}",
            policy=policy,
            locale="en",
            email=f"{plot}+p{person}@example.com",
            phone=None if dice.falls("person.no_phone") else f"+447700900{digits:03}",
            variables={"name": "Ada", "link": f"{LINK}{number:04}"},
            challenge_ref=f"challenge-{number:04}",
            requested_at=at,
            deadline=at + timedelta(milliseconds=deadline),
            expiry=at + timedelta(milliseconds=life.randint(*EXPIRY_MS)),
            sms_consent_at=None if dice.falls("person.no_consent") else consented,
            phone_verified_at=None if dice.of(f"ages/{number}").random() < UNVERIFIED else verified,
            subject=self._subject(number),
        )

    def _consented_before(self, number: int) -> timedelta:
        """Some agree with each request, some did so long ago: a STOP may lie in between."""
        life = self.world.dice.of(f"consent/{number}")
        return timedelta(milliseconds=life.choice((0, 0, life.randint(1, SPREAD_MS), 10**9)))

    def _subject(self, number: int) -> str | None:
        dice = self.world.dice
        if not dice.falls("service.supersede"):
            return None
        return f"account-{dice.of(f'subject/{number}').randrange(SUBJECTS)}"

    # records

    def _request(self, new: NewIntent) -> list[OutgoingRecord]:
        self._publisher.publish(new)
        return self._capture.take()

    def _completion(self, intent_id: str) -> list[OutgoingRecord]:
        self._publisher.complete(intent_id, at=_instant(self.world.agenda.now_ms), source="sim")
        return self._capture.take()

    def _cancellation(self, intent_id: str) -> list[OutgoingRecord]:
        self._publisher.cancel(intent_id, at=_instant(self.world.agenda.now_ms), source="sim")
        return self._capture.take()

    def _instruction(self, new: NewIntent, action: InstructionAction) -> list[OutgoingRecord]:
        record = Instruction(
            instruction_id=f"{new.intent_id}:{action.value}",
            intent_id=new.intent_id,  # type: ignore[arg-type]
            action=action,
            operator="operator",
            why="as the simulation says",
            at_ms=self.world.agenda.now_ms,
        )
        topic = self.world.names[TopicKind.INSTRUCTIONS]
        return [OutgoingRecord(topic, new.intent_id.encode(), record.to_bytes())]

    def _garbage(self, intent_id: str) -> None:
        dice = self.world.dice.of("garbage")
        kind, value = dice.choice(HOSTILE_KINDS), dice.choice(HOSTILE_VALUES)
        key = dice.choice((intent_id.encode(), None, b"", b"someone@example.com"))
        self._append([Write(self.world.names[kind], key, value)])

    # sending

    def _send(self, records: list[OutgoingRecord], *, late: bool = False) -> None:
        world = self.world
        delay = world.dice.ms("send.late" if late else "send", *(LATE_MS if late else SOON_MS))
        writes = [self._placed(r) for r in records]
        world.agenda.at(world.agenda.now_ms + delay, lambda: self._append(writes))

    def _placed(self, record: OutgoingRecord) -> Write:
        number = None
        if self.world.dice.falls("service.wrong_partition"):
            number = self.world.dice.of("wrong").randrange(self.world.partitions)
        return Write(record.topic, record.key, record.value, tuple(record.headers or ()), number)

    def _append(self, writes: list[Write]) -> None:
        try:
            self.world.log.append(writes)
        except Away:
            agenda = self.world.agenda
            agenda.at(agenda.now_ms + RETRY_MS, lambda: self._append(writes))

    # controls

    def _plan_controls(self) -> None:
        world = self.world
        if not world.dice.falls("operator.control"):
            return
        dice = world.dice.of("controls")
        accounts = sorted(world.accounts)
        names = ("all", "channel:sms", "channel:email", "purpose:password_reset", "country:GB",
                 "tenant:tenant-0001", *(f"provider:{a}" for a in accounts))  # fmt: skip
        for _ in range(CONTROLS):
            name = dice.choice(names)
            since = world.agenda.now_ms + dice.randint(0, 240_000)
            until = since + dice.randint(2_000, 120_000)
            world.agenda.at(since, lambda name=name: self.control(name, ControlAction.PAUSE))  # type: ignore[misc]
            world.agenda.at(until, lambda name=name: self.control(name, ControlAction.RESUME))  # type: ignore[misc]

    def control(self, name: str, action: ControlAction) -> None:
        world = self.world
        record = Control(
            name=name,
            action=action,
            operator="operator",
            why="as the simulation says",
            at_ms=world.agenda.now_ms,
        )
        world.note(f"{action.value} {name}")
        world.paused[name] = action is ControlAction.PAUSE
        self._append([Write(world.names[TopicKind.CONTROLS], name.encode(), record.to_bytes())])


def slow_plot(recipient: str) -> Plot | None:
    """The plot of a recipient the simulator does not know."""
    return SLOW_PLOTS.get(recipient.partition("+")[0])


def _instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)


def _ms(at: datetime) -> int:
    return round((at - datetime.fromtimestamp(0, UTC)) / timedelta(milliseconds=1))
