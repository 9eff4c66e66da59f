"""Kafka as its clients may rely on it: partitions, transactions, stable offsets, compaction.

Held to the real broker by `tests/contract/test_log_model.py`. Time stamps are the log's own (log-append).
Offsets count transaction markers and aborted records, as on the real one. It must not know what a record
means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.partitions import partition_for
from sinks.kafka.consumer import Message, Place

Header = tuple[str, bytes]


class Away(Exception):
    """The broker does not answer."""


class Fenced(Exception):
    """Somebody with the same transactional id has begun after us, or the group went on without us."""


class Write(NamedTuple):
    """A record to append; `partition` None: by the key."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    partition: int | None = None


@dataclass(slots=True)
class _Entry:
    message: Message
    transaction: int  # 0: none
    is_marker: bool = False


@dataclass(slots=True)
class Partition:
    """One partition; `entries` are ordered by offset, with gaps after compaction."""

    entries: list[_Entry] = field(default_factory=list)
    high: int = 0
    open: dict[int, int] = field(default_factory=dict)  # transaction -> its first offset
    aborted: set[int] = field(default_factory=set)

    @property
    def stable(self) -> int:
        """The last stable offset: nothing at or after it is shown to readers of committed records."""
        return min(self.open.values(), default=self.high)

    def _index(self, offset: int) -> int:
        low, up = 0, len(self.entries)
        while low < up:
            middle = (low + up) // 2
            if self.entries[middle].message.offset < offset:
                low = middle + 1
            else:
                up = middle
        return low

    def read(self, offset: int, count_max: int, *, committed: bool) -> tuple[list[Message], int]:
        """Records from `offset` on, and the position after them: markers and aborted ones are passed over."""
        end = self.stable if committed else self.high
        found: list[Message] = []
        for entry in self.entries[self._index(offset) :]:
            if entry.message.offset >= end:
                break
            if len(found) >= count_max:
                return found, entry.message.offset
            if not entry.is_marker and not (committed and entry.transaction in self.aborted):
                found.append(entry.message)
        return found, max(offset, end)


@dataclass(slots=True)
class _Producer:
    epoch: int = 0
    transaction: int = 0
    touched: set[Place] = field(default_factory=set)
    offsets: dict[str, dict[Place, int]] = field(default_factory=dict)  # group -> accepted, undecided


class Log:
    """The broker's log. `now_ms` is its clock; `appended` is told the place of every new record."""

    def __init__(self, now_ms: Callable[[], int], partitions: Mapping[str, int]) -> None:
        self._now_ms = now_ms
        self._counts = dict(partitions)
        self.places: dict[Place, Partition] = {
            (topic, number): Partition() for topic, count in partitions.items() for number in range(count)
        }
        self.committed: dict[str, dict[Place, int]] = {}  # group -> next offsets
        self.is_up = True
        self.appended: list[Callable[[Place], None]] = []
        self._producers: dict[str, _Producer] = {}
        self._transactions = self._keyless = 0

    # plain producers

    def append(self, writes: Iterable[Write]) -> None:
        """Acknowledged once this returns. Raises `Away`."""
        self._check()
        for write in writes:
            self._append(write, 0)

    def _append(self, write: Write, transaction: int) -> Place:
        number = write.partition
        if number is None and write.key:
            number = partition_for(write.key, self._counts[write.topic])
        elif number is None:  # murmur2_random: without a key, anywhere
            self._keyless += 1
            number = self._keyless % self._counts[write.topic]
        place = (write.topic, number)
        part = self.places[place]
        message = Message(
            write.topic, number, part.high, self._now_ms(), write.key, write.value, tuple(write.headers)
        )
        part.entries.append(_Entry(message, transaction))
        part.high += 1
        for told in self.appended:
            told(place)
        return place

    # transactions

    def init(self, transactional_id: str) -> int:
        """A new epoch; what a predecessor left open is aborted. Raises `Away`."""
        self._check()
        producer = self._producers.setdefault(transactional_id, _Producer())
        if producer.transaction:
            self._end(producer, commit=False)
        producer.epoch += 1
        return producer.epoch

    def produce(self, transactional_id: str, epoch: int, writes: Iterable[Write]) -> int:
        """Into the open transaction, or a new one; its number. Raises `Fenced`, `Away`."""
        producer = self._producer(transactional_id, epoch)
        if not producer.transaction:
            self._transactions += 1
            producer.transaction = self._transactions
        for write in writes:
            place = self._append(write, producer.transaction)
            part = self.places[place]
            part.open.setdefault(producer.transaction, part.high - 1)
            producer.touched.add(place)
        return producer.transaction

    def send_offsets(
        self, transactional_id: str, epoch: int, group: str, offsets: Mapping[Place, int]
    ) -> None:
        """Accepted, and pending until the transaction ends. The caller checks the generation first."""
        producer = self._producer(transactional_id, epoch)
        if not producer.transaction:
            self._transactions += 1
            producer.transaction = self._transactions
        producer.offsets.setdefault(group, {}).update(offsets)

    def end(self, transactional_id: str, epoch: int, *, commit: bool) -> None:
        """Markers on every partition it touched. Not checked against a group's generation."""
        producer = self._producer(transactional_id, epoch)
        if producer.transaction:
            self._end(producer, commit=commit)

    def expire(self, transactional_id: str, transaction: int) -> None:
        """The broker gives up on a transaction whose time is over, and fences its producer."""
        producer = self._producers.get(transactional_id)
        if producer is not None and producer.transaction == transaction:
            self._end(producer, commit=False)
            producer.epoch += 1

    def _end(self, producer: _Producer, *, commit: bool) -> None:
        for place in sorted(producer.touched):
            part = self.places[place]
            part.open.pop(producer.transaction, None)
            if not commit:
                part.aborted.add(producer.transaction)
            marker = Message(*place, part.high, self._now_ms(), None, None)
            part.entries.append(_Entry(marker, producer.transaction, is_marker=True))
            part.high += 1
        if commit:
            for group, offsets in producer.offsets.items():
                self.committed.setdefault(group, {}).update(offsets)
        touched = producer.touched
        producer.transaction, producer.touched, producer.offsets = 0, set(), {}
        for place in sorted(touched):
            for told in self.appended:
                told(place)

    def _producer(self, transactional_id: str, epoch: int) -> _Producer:
        self._check()
        producer = self._producers[transactional_id]
        if producer.epoch != epoch:
            raise Fenced(transactional_id)
        return producer

    # readers

    def read(
        self, place: Place, offset: int, count_max: int, *, committed: bool = True
    ) -> tuple[list[Message], int]:
        """Records and the position after them. Raises `Away`."""
        self._check()
        return self.places[place].read(offset, count_max, committed=committed)

    def high(self, place: Place) -> int:
        self._check()
        return self.places[place].high

    def stable_offsets(self, group: str, places: Iterable[Place]) -> dict[Place, int] | None:
        """Committed offsets; None while a transaction is pending on one of them (require_stable)."""
        self._check()
        wanted = set(places)
        for producer in self._producers.values():
            if wanted & set(producer.offsets.get(group, {})):
                return None
        known = self.committed.get(group, {})
        return {place: known.get(place, 0) for place in sorted(wanted)}

    def commit(self, group: str, offsets: Mapping[Place, int]) -> None:
        """A plain commit of next offsets."""
        self._check()
        self.committed.setdefault(group, {}).update(offsets)

    def compact(self, topic: str) -> None:
        """Keep the last committed record of each key below the stable offset; offsets stay as they are."""
        for place, part in self.places.items():
            if place[0] != topic:
                continue
            end, seen = part.stable, set[bytes | None]()
            kept: list[_Entry] = []
            for entry in reversed(part.entries):
                message = entry.message
                if message.offset >= end:
                    kept.append(entry)
                elif not entry.is_marker and entry.transaction not in part.aborted:
                    if message.key not in seen:
                        kept.append(entry)
                    seen.add(message.key)
            part.entries = kept[::-1]

    def all_of(self, topic: str, *, committed: bool = True) -> list[Message]:
        """Everything readable now, partition by partition; for checkers."""
        found: list[Message] = []
        for (name, _), part in sorted(self.places.items()):
            if name == topic:
                found += part.read(0, len(part.entries) + 1, committed=committed)[0]
        return found

    def _check(self) -> None:
        if not self.is_up:
            raise Away
