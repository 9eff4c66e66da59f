"""What a service keeps of the links it has sent: a hash of each token, whose intent it is, and if it is used.

Two names per challenge: the token, which only the link carries, and the reference, which Backstop and its
audit see. It must not keep a token, speak HTTP or decide who may complete (`compose.sample.page`).
"""

from __future__ import annotations

import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256

from compose.clock import Clock, entropy, random_id

TOKEN_BYTES = 32
TOKEN_CHARS = 43  # of TOKEN_BYTES in base64
CHALLENGES_MAX = 10_000  # 2 MB; the oldest are forgotten first, and their links are unknown then


class Found(StrEnum):
    """What is known of a token."""

    OPEN = "open"
    DONE = "done"
    EXPIRED = "expired"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Made:
    """A new challenge. The token goes into the link and nowhere else."""

    token: str = field(repr=False)
    ref: str


@dataclass(slots=True)
class _Challenge:
    intent_id: str
    expiry_ms: int
    is_done: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Challenges:
    """In memory; a service has a table. Safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_hash: dict[bytes, _Challenge] = {}

    def make(self, intent_id: str, *, expiry_ms: int) -> Made:
        """A token for the link of this intent, and the reference by which the audit knows it."""
        token = urlsafe_b64encode(entropy(TOKEN_BYTES)).rstrip(b"=").decode()
        while len(self._by_hash) >= CHALLENGES_MAX:
            del self._by_hash[next(iter(self._by_hash))]
        self._by_hash[_hash(token)] = _Challenge(intent_id, expiry_ms)
        return Made(token, random_id())

    def look(self, token: str) -> Found:
        """Changes nothing, however often and by whomever it is asked."""
        one = self._of(token)
        return Found.UNKNOWN if one is None else self._state(one)

    def use(self, token: str, tell: Callable[[str], object]) -> Found:
        """The person has done it: `tell` the intent id, once. `OPEN` when this call was the one.

        What `tell` raises leaves the challenge open: the person may try again, and a completion that was
        told twice is absorbed.
        """
        one = self._of(token)
        if one is None:
            return Found.UNKNOWN
        with one.lock:
            state = self._state(one)
            if state is Found.OPEN:
                tell(one.intent_id)
                one.is_done = True
            return state

    def _of(self, token: str) -> _Challenge | None:
        return self._by_hash.get(_hash(token)) if len(token) == TOKEN_CHARS else None

    def _state(self, one: _Challenge) -> Found:
        if one.is_done:
            return Found.DONE
        return Found.EXPIRED if self._clock.now_ms() >= one.expiry_ms else Found.OPEN


def _hash(token: str) -> bytes:
    return sha256(token.encode(errors="replace")).digest()
