"""The group coordinator: members, generations, who owns what, and who was gone for too long.

Eager: every member gives everything back before a new generation is formed. Members learn of a rebalance by
their heartbeats; one that is not heard for a session is put out, and what it says afterwards is refused. It
must not read or commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from compose.scenario.log import Agenda
from sinks.kafka.consumer import Place

SESSION_MS = 6_000
HEARTBEAT_MS = 500
JOIN_MS = 40  # from the last member's word to the assignment


class Answer(Enum):
    """What a heartbeat is told."""

    FINE = "fine"
    GIVE_BACK = "give back"  # a rebalance has begun
    UNKNOWN = "unknown"  # put out: the group went on


class Member(Protocol):
    """A process as its group sees it. `life`: another one after every restart, as member ids are."""

    name: str

    @property
    def life(self) -> int: ...

    def assigned(self, generation: int, places: list[Place]) -> None: ...


@dataclass(slots=True)
class _Seat:
    member: Member
    heard_ms: int
    has_rejoined: bool = False


class Group:
    """One consumer group over co-partitioned or independent topics."""

    def __init__(self, agenda: Agenda, name: str, topics: dict[str, int]) -> None:
        self._agenda, self.name, self._topics = agenda, name, topics
        self._seats: dict[tuple[str, int], _Seat] = {}
        self.generation = 0
        self._is_balancing = False
        self._round = 0
        self._watch()

    def is_current(self, member: Member, generation: int) -> bool:
        """Whether a commit of this member under this generation is taken."""
        return (member.name, member.life) in self._seats and generation == self.generation

    def join(self, member: Member) -> None:
        """Also again, after everything was given back."""
        seat = self._seats.get((member.name, member.life))
        if seat is None:
            self._seats[member.name, member.life] = _Seat(member, self._agenda.now_ms, has_rejoined=True)
            self._rebalance()
            return
        seat.has_rejoined, seat.heard_ms = True, self._agenda.now_ms
        self._form_when_ready()

    def heartbeat(self, member: Member) -> Answer:
        seat = self._seats.get((member.name, member.life))
        if seat is None:
            return Answer.UNKNOWN
        seat.heard_ms = self._agenda.now_ms
        return Answer.GIVE_BACK if self._is_balancing and not seat.has_rejoined else Answer.FINE

    def _watch(self) -> None:
        now_ms = self._agenda.now_ms
        gone = [key for key, seat in self._seats.items() if now_ms - seat.heard_ms > SESSION_MS]
        for key in gone:
            del self._seats[key]
        if gone:
            self._rebalance()
        self._agenda.at(now_ms + HEARTBEAT_MS, self._watch)

    def _rebalance(self) -> None:
        self._is_balancing = True
        self._round += 1
        current = self._round
        self._agenda.at(self._agenda.now_ms + SESSION_MS, lambda: self._form(current))
        self._form_when_ready()

    def _form_when_ready(self) -> None:
        if self._is_balancing and all(s.has_rejoined for s in self._seats.values()):
            current = self._round
            self._agenda.at(self._agenda.now_ms + JOIN_MS, lambda: self._form(current))

    def _form(self, current: int) -> None:
        """The next generation, of those that came; the others are put out."""
        if current != self._round or not self._is_balancing:
            return
        self._is_balancing = False
        self.generation += 1
        self._seats = {key: seat for key, seat in self._seats.items() if seat.has_rejoined}
        for seat in self._seats.values():
            seat.has_rejoined = False
        shares = share(self._topics, len(self._seats))
        for (name, life), places in zip(sorted(self._seats), shares, strict=True):
            member = self._seats[name, life].member
            if (
                member.life == life
            ):  # else it died after it had joined: its share waits for the session to end
                member.assigned(self.generation, places)


def share(topics: dict[str, int], members: int) -> Sequence[list[Place]]:
    """Partition n of every topic goes to the same member."""
    found: list[list[Place]] = [[] for _ in range(members)]
    if members:
        for topic in sorted(topics):
            for number in range(topics[topic]):
                found[number % members].append((topic, number))
    return found
