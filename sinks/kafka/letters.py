"""Dead letters of a process outside the worker, ready to be published."""

from __future__ import annotations

import re

from schemas.codec import Undecodable, headers
from schemas.ids import ID_PATTERN
from schemas.letters import LetterWriter
from schemas.record import Coordinates, TopicKind
from schemas.topics import TopicNames
from sinks.kafka.consumer import Message
from sinks.kafka.producer import OutgoingRecord

_IS_ID = re.compile(ID_PATTERN[1:-1].encode()).fullmatch


class Letters:
    """`by` is the process; `key` the deployment's key of dead-letter hashes."""

    def __init__(self, names: TopicNames, *, by: str, key: bytes) -> None:
        self._topic, self._by, self._writer = names[TopicKind.DEAD_LETTERS], by, LetterWriter(key, by=by)

    def record(self, message: Message, why: Undecodable, *, at_ms: int) -> OutgoingRecord:
        """The letter for a record that could not be used."""
        key = message.key
        found = self._writer.letter(
            Coordinates(topic=message.topic, partition=message.partition, offset=message.offset),
            why.reason,
            value=message.value,
            at_ms=at_ms,
            pointer=why.pointer,
            detail=why.detail,
            intent_id=key.decode() if key and _IS_ID(key) else None,
            headers=message.headers,
        )
        shown = found.intent_id or found.letter_id
        made = headers(found, source=f"backstop/{self._by}", record_id=found.letter_id)
        return OutgoingRecord(self._topic, shown.encode(), found.to_bytes(), made)
