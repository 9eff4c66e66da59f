"""Dead letters as every process writes them: where a record lies and why it is unusable, never its bytes."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from hashlib import sha256

from schemas.dead_letter import DeadLetter
from schemas.ids import INSTANT_MS_MAX, INSTANT_MS_MIN, PUBLISHER_PATTERN
from schemas.reasons import Reason
from schemas.record import Coordinates

HMAC_CHARS = 32  # 128 bits are plenty to confirm a suspicion
_PUBLISHER = re.compile(PUBLISHER_PATTERN[1:-1].encode())


class LetterWriter:
    """Builds dead letters under one secret key, so that a hash cannot be looked up in a table of guesses."""

    __slots__ = ("_by", "_key")

    def __init__(self, key: bytes, *, by: str) -> None:
        self._key, self._by = key, by

    def letter(
        self,
        source: Coordinates,
        reason: Reason,
        *,
        value: bytes | None,
        at_ms: int,
        pointer: str = "",
        detail: str = "",
        intent_id: str | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
    ) -> DeadLetter:
        """`value` is hashed and measured, not kept; of `headers` only the name of a publisher is."""
        return DeadLetter(
            letter_id=f"{source.topic}/{source.partition}/{source.offset}",
            source=source,
            by=self._by,
            reason=reason,
            reason_class=reason.reason_class,
            pointer=pointer,
            detail=detail,
            size=0 if value is None else len(value),
            value_hmac=None if value is None else self._hmac(value),
            intent_id=intent_id,  # type: ignore[arg-type]
            publisher=publisher_in(headers or ()),
            at_ms=min(
                max(at_ms, INSTANT_MS_MIN), INSTANT_MS_MAX - 1
            ),  # a writer's own clock may say anything
        )

    def _hmac(self, value: bytes) -> str:
        return hmac.new(self._key, value, sha256).hexdigest()[:HMAC_CHARS]


def publisher_in(headers: Iterable[tuple[str, bytes | None]]) -> str | None:
    """Who published a record, by its `ce_source`; anything that is no name could be anybody's text."""
    for name, value in headers:
        if name == "ce_source" and isinstance(value, bytes) and _PUBLISHER.fullmatch(value):
            return value.decode()
    return None
