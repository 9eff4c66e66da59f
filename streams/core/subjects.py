"""Which request about a subject is the newest, and which are over because of it. Pure.

    nothing is known      the one that was seen is the newest
    the same once more    nothing new
    an older one seen     it is superseded by the newest, however late it came
    a newer one seen      it is the newest, and supersedes the one before

Newer is requested later, and of two at the same instant the one with the greater id: any order of arrival
leaves the same survivor. One that is past its expiry has ended by itself and is told nothing. It must not
know whether an intent is still open: its own partition does (`streams.core.machine`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from schemas.subject import SubjectSeen

ROW_VERSION: Final = 1


class Newest(msgspec.Struct, omit_defaults=True):
    """The newest request of one subject, remembered until no older one can be alive."""

    intent_id: str
    requested_ms: int
    expiry_ms: int
    forget_ms: int
    v: Literal[1] = ROW_VERSION

    @property
    def rank(self) -> tuple[int, str]:
        return self.requested_ms, self.intent_id


@dataclass(frozen=True, slots=True)
class Superseded:
    """This intent is over, because of that one."""

    intent_id: str
    by_intent_id: str


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Newest)


def to_bytes(row: Newest) -> bytes:
    """Deterministic: declared order, defaults left out."""
    return _encoder.encode(row)


def from_bytes(value: bytes) -> Newest:
    """Raises `msgspec.ValidationError` for a row this version cannot read."""
    return _decoder.decode(value)


def take(known: Newest | None, seen: SubjectSeen, *, at_ms: int) -> tuple[Newest, Superseded | None]:
    """The row after this record, the very one that was given when nothing changed; and who is over by it.

    `at_ms` is the record's log-append time.
    """
    new = Newest(seen.intent_id, seen.requested_at_ms, seen.expiry_ms, seen.forget_at_ms)
    if known is None:
        return new, None
    row, older = (new, known) if new.rank > known.rank else (known, new)
    if older.intent_id == row.intent_id or older.expiry_ms <= at_ms:
        return row, None
    return row, Superseded(older.intent_id, row.intent_id)
