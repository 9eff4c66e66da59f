"""Checkers of supersession (SYSTEM.md §3, §5.6): of the intents of one subject the newest stays.

They must not repeat the code they check: who is newest is read from the requests alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.codec import decode
from schemas.decision import CloseKind
from schemas.ids import Channel
from schemas.intent import IntentRequested, IntentSuperseded
from schemas.partitions import partition_for
from schemas.reasons import Reason
from schemas.subject import SubjectSeen
from tests.simulation.evidence import Seen
from tests.simulation.sentences import Found, liveness, safety
from tests.simulation.world import PARTITIONS

Rank = tuple[int, str]
Subject = tuple[str, str, str]  # tenant, purpose, subject key


@dataclass(slots=True)
class Subjects:
    """What workers have read, in their order: who asked when about whom, who was announced, who was told."""

    ranks: dict[Subject, dict[str, Rank]] = field(default_factory=lambda: defaultdict(dict))
    expiries: dict[str, int] = field(default_factory=dict)
    announced: dict[str, int] = field(default_factory=dict)  # intent -> log time
    told: dict[str, tuple[int, str]] = field(default_factory=dict)  # intent -> place in the order, by whom
    order: dict[tuple[str, int, int], int] = field(default_factory=dict)  # coordinates -> place in the order


def _read(seen: Seen) -> Subjects:
    found, asked = Subjects(), set[str]()
    for place, (message, _) in enumerate(seen.world.processed):
        found.order[message.topic, message.partition, message.offset] = place
        if not message.key or message.partition != partition_for(message.key, PARTITIONS):
            continue  # it is sent home first
        record = decode(seen.world.names.kind_of(message.topic), message.key, message.value)
        if isinstance(record, IntentRequested) and record.intent_id not in asked:
            asked.add(record.intent_id)
            if record.subject_key is not None:
                subject = (record.tenant, record.purpose, record.subject_key)
                at_ms = min(record.requested_at_ms, message.timestamp_ms)
                found.ranks[subject][record.intent_id] = (at_ms, record.intent_id)
                found.expiries[record.intent_id] = record.expiry_ms
        elif isinstance(record, SubjectSeen):
            found.announced.setdefault(record.intent_id, message.timestamp_ms)
        elif isinstance(record, IntentSuperseded):
            found.told.setdefault(record.intent_id, (place, record.by_intent_id))
    return found


@safety("§5.6: the newest request of a subject is never superseded, and nobody is who has no subject")
def newest_survives(seen: Seen) -> Found:
    subjects = _read(seen)
    newest = {max(ranks.values())[1] for ranks in subjects.ranks.values()}
    older = {intent_id for ranks in subjects.ranks.values() for intent_id in ranks} - newest
    for intent_id, (_, by) in subjects.told.items():
        if intent_id not in older:
            yield f"{intent_id} was superseded by {by}"
    for intent_id, chain in seen.decisions.items():
        over = [d for _, d in chain if d.closed is CloseKind.SUPERSEDED or d.reason is Reason.SUPERSEDED]
        if over and intent_id not in older:
            yield f"{intent_id}: {over[0].decision_id}"


@safety("§5.6: no SMS is begun whose subject had a newer request in the log when its order was taken up")
def no_sms_with_a_dead_link(seen: Seen) -> Found:
    newer: dict[Subject, list[tuple[Rank, int]]] = defaultdict(list)  # rank and log time
    mine: dict[str, tuple[Subject, Rank]] = {}
    for intent_id, requests in seen.requests.items():
        for message, asked in requests:
            if asked.subject_key is not None:
                subject = (asked.tenant, asked.purpose, asked.subject_key)
                rank = (min(asked.requested_at_ms, message.timestamp_ms), intent_id)
                newer[subject].append((rank, message.timestamp_ms))
                mine.setdefault(intent_id, (subject, rank))
    for begin in seen.begins:
        if begin.channel is not Channel.SMS or begin.intent_id not in mine:
            continue
        subject, rank = mine[begin.intent_id]
        since = seen.world.handling.get(begin.claim_id, 0)
        for other, at_ms in newer[subject]:
            if other > rank and at_ms < since:
                yield f"{begin.intent_id}: {other[1]} was in the log at {at_ms}, order taken up at {since}"


@safety("§5.6: an intent is superseded by a newer one of its own subject")
def superseded_by_a_newer_one(seen: Seen) -> Found:
    subjects = _read(seen)
    for ranks in subjects.ranks.values():
        for intent_id, rank in ranks.items():
            told = subjects.told.get(intent_id)
            if told is not None and ranks.get(told[1], (0, "")) <= rank:
                yield f"{intent_id} was superseded by {told[1]}"


@liveness("§5.6: every older intent of a subject ends as superseded, or had ended before it was told")
def older_ones_are_superseded(seen: Seen) -> Found:
    subjects = _read(seen)
    for ranks in subjects.ranks.values():
        newest = max(ranks.values())
        for intent_id, rank in ranks.items():
            if rank == newest:
                continue
            told = subjects.told.get(intent_id)
            if told is None:
                since_ms = _known_ms(subjects.announced, intent_id, ranks)
                if subjects.expiries[intent_id] > since_ms:
                    yield f"{intent_id} was never told, and {newest[1]} is newer"
            elif not _ended(seen, subjects, intent_id, told[0]):
                yield f"{intent_id} was told of {told[1]} and did not end"


def _known_ms(announced: Mapping[str, int], intent_id: str, ranks: Mapping[str, Rank]) -> int:
    """When its keeper first knew of it and of a newer one; the end of time when never."""
    never_ms = 1 << 62
    newer = [announced.get(i, never_ms) for i, rank in ranks.items() if rank > ranks[intent_id]]
    return max(announced.get(intent_id, never_ms), min(newer)) if newer else never_ms


def _ended(seen: Seen, subjects: Subjects, intent_id: str, told: int) -> bool:
    """As superseded; or by a decision whose input was read before it was told."""
    chain = sorted(seen.decisions.get(intent_id, ()), key=lambda pair: pair[0].offset)
    first = next((d for _, d in chain if d.closed is not None), None)
    if first is None:
        return False
    at = first.trigger
    return first.closed is CloseKind.SUPERSEDED or subjects.order[at.topic, at.partition, at.offset] < told
