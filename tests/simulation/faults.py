"""What may go wrong, by name, and how likely it is in one world: all of it drawn from the seed.

A fault that is not drawn does not happen at all, so that every seed is another mixture (swarm testing). Each
fault rolls dice of its own: taking one away leaves the others as they were, as far as the world allows. It
must not do anything; the parts of the world ask it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

# name: (lowest, highest chance when drawn, of what)
FAULTS: dict[str, tuple[float, float, str]] = {
    "service.repeat": (0.1, 0.8, "a request is published again"),
    "service.late": (0.1, 0.5, "a request reaches the log late, perhaps after its deadline or expiry"),
    "service.conflict": (0.05, 0.4, "the same id comes again with other content"),
    "service.wrong_partition": (0.05, 0.5, "a record lies in a partition of another partitioner"),
    "service.garbage": (0.1, 0.9, "bytes that are no record, per intent"),
    "service.complete": (0.2, 0.8, "the person does the thing, sooner or later"),
    "service.complete_first": (0.05, 0.4, "a completion comes before its request"),
    "service.cancel": (0.05, 0.3, "the service withdraws the intent"),
    "service.supersede": (0.2, 0.9, "the person asks again: several intents name one subject"),
    "person.shared": (0.1, 0.7, "two intents have the same recipient"),
    "person.no_phone": (0.1, 0.5, "the intent has no phone number"),
    "person.no_consent": (0.1, 0.5, "the person did not agree to SMS"),
    "policy.ages": (0.1, 0.8, "the policy of an intent demands an age of consent and number"),
    "policy.no_sms": (0.05, 0.4, "the policy of an intent forbids SMS"),
    "budget.tight": (0.3, 1.0, "SMS may cost so little that some of them are held or refused"),
    "operator.control": (0.5, 1.0, "controls pause and resume, a few times"),
    "operator.instruct": (0.05, 0.4, "an operator completes, cancels, releases or closes an intent"),
    "crash.worker": (0.001, 0.05, "the worker dies at a fault point"),
    "crash.dispatcher": (0.005, 0.1, "a dispatcher dies at a fault point"),
    "crash.poller": (0.002, 0.05, "the poller dies at a fault point"),
    "crash.auditor": (0.002, 0.1, "the auditor dies at a fault point"),
    "freeze.worker": (0.001, 0.02, "the worker stands still for up to three sessions"),
    "freeze.dispatcher": (0.005, 0.05, "a dispatcher stands still for up to three leases"),
    "freeze.poller": (0.002, 0.03, "the poller stands still"),
    "site.outage": (0.3, 1.0, "all processes die at once, once"),
    "group.moves": (0.5, 1.0, "more processes join and leave"),
    "log.away": (0.3, 1.0, "the broker is away for a while, once or twice"),
    "log.expires": (0.002, 0.05, "the broker gives up on a transaction and fences its producer"),
    "log.commit_lost": (0.02, 0.5, "the broker does not take the offsets of finished work"),
    "log.compact": (0.3, 1.0, "changelogs are compacted every now and then"),
    "lag.read": (0.05, 0.5, "a reader is slow to see what was written"),
    "guard.failed": (0.005, 0.1, "a transaction of the guard fails"),
    "guard.doubtful": (0.005, 0.1, "it commits and the answer is lost"),
    "guard.slow": (0.01, 0.2, "it takes seconds"),
    "guard.away": (0.3, 1.0, "the database is away for a while"),
    "audit.refuses": (0.001, 0.02, "the database refuses the content of an audit row"),
    "net.refused": (0.01, 0.2, "no connection: nothing was sent"),
    "net.request_lost": (0.01, 0.2, "the request never arrives"),
    "net.response_lost": (0.01, 0.3, "the answer never arrives"),
    "net.slow": (0.01, 0.2, "the request arrives after its sender has given up"),
    "provider.outage": (0.3, 1.0, "503 for a while"),
    "provider.rates": (0.5, 1.0, "the provider enforces its rates"),
    "provider.credentials": (0.2, 1.0, "credentials are refused for a while"),
    "clock.skew": (0.5, 1.0, "clocks are apart, within and beyond what is allowed"),
    "clock.jump": (0.1, 0.6, "a process's clock jumps"),
}
DRAWN_OF = 0.5  # how likely a fault is part of a world at all
# What keeps no deadline from being seen in time: every tenth world has nothing else.
GENTLE = frozenset(
    {
        "service.repeat", "service.conflict", "service.wrong_partition", "service.garbage",
        "service.complete", "service.complete_first", "service.cancel", "service.supersede", "person.shared",
        "person.no_phone", "person.no_consent", "policy.ages", "policy.no_sms", "log.compact", "group.moves",
    }
)  # fmt: skip
GENTLE_EVERY = 10
INTENTS, INTENTS_MIN = 20, 1


@dataclass(frozen=True, slots=True)
class Options:
    """One world. `chances`: the faults that are part of it."""

    seed: int
    intents: int = INTENTS
    minutes: int = 8  # how long faults go on
    chances: dict[str, float] = field(default_factory=dict)

    @classmethod
    def drawn(cls, seed: int, *, intents: int = INTENTS, minutes: int = 8) -> Options:
        chances = {}
        for name, (low, high, _) in FAULTS.items():
            dice = random.Random(f"{seed}/options/{name}")  # a new fault leaves the others as they were
            is_part, point = dice.random() < DRAWN_OF, dice.random()
            if is_part and (seed % GENTLE_EVERY or name in GENTLE):
                chances[name] = round(low * (high / low) ** point, 5)
        return cls(seed, intents, minutes, chances)

    def with_chances(self, chances: Mapping[str, float]) -> Options:
        """The same world with these, whatever was drawn for them."""
        return replace(self, chances=self.chances | dict(chances))

    def without(self, fault: str) -> Options:
        return replace(self, chances={n: c for n, c in self.chances.items() if n != fault})


class Dice:
    """Seeded chances by name, and a count of what happened."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._streams: dict[str, random.Random] = {}
        self.happened: Counter[str] = Counter()
        self.is_calm = False  # the second half: no more faults

    def of(self, name: str) -> random.Random:
        """A stream of its own; also for what is no fault, such as latencies."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = random.Random(f"{self._options.seed}/{name}")
        return found

    def falls(self, fault: str) -> bool:
        """Whether it happens now."""
        chance = self._options.chances.get(fault)
        if chance is None or self.is_calm or self.of(fault).random() >= chance:
            return False
        self.happened[fault] += 1
        return True

    def is_marked(self, fault: str, place: str) -> bool:
        """Whether it concerns this place: always the same answer, also once the world is calm."""
        chance = self._options.chances.get(fault, 0.0)
        return random.Random(f"{self._options.seed}/{fault}/{place}").random() < chance

    def has(self, fault: str) -> bool:
        """Whether it is part of this world."""
        return fault in self._options.chances

    def ms(self, name: str, low: int, high: int) -> int:
        return self.of(name).randint(low, high)
