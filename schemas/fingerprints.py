"""Fingerprints: keyed hashes of normalised destinations, the only form outside sealed payloads.

`<key id>.<e|s>.<32 hex>` (`ids.FINGERPRINT_PATTERN`): HMAC-SHA-256 cut to 128 bits, the channel inside the
hash, so that a number and an address never share one. It must not be computed without a key: numbers
are few enough to be guessed one by one.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import NoReturn

from schemas.destinations import EmailAddress, PhoneNumber

HEX_CHARS = 32
RANGE_DIGITS = 3  # the last ones, which the numbers of a range differ in
KEY_BYTES_MIN = 32
_KEY_ID = re.compile(r"[a-z0-9]{1,16}")


class FingerprintKeys:
    """The live keys. New fingerprints use `current`; the others are kept to match what exists."""

    __slots__ = ("_keys", "current")

    def __init__(self, current: str, keys: Mapping[str, bytes]) -> None:
        if current not in keys:
            raise ValueError(f"the current fingerprint key {current} is not among the keys")
        for key_id, key in keys.items():
            if not _KEY_ID.fullmatch(key_id) or len(key) < KEY_BYTES_MIN:
                raise ValueError("a fingerprint key has an id of 1 to 16 of a-z 0-9 and at least 32 bytes")
        self.current = current
        self._keys = dict(keys)

    def __repr__(self) -> str:
        return f"FingerprintKeys(current={self.current}, {len(self._keys)} keys, hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("keys are not pickled: they would be written out in clear")

    def of(self, destination: EmailAddress | PhoneNumber) -> str:
        """Under the current key."""
        return self._under(self.current, destination)

    def of_subject(self, tenant: str, subject: str) -> str:
        """Of whatever a service calls a person by, such as an account id; two tenants never share one."""
        return self._hash(self.current, "u", f"{tenant}\x00{subject}")

    def of_range(self, number: PhoneNumber) -> str:
        """Of the thousand numbers around this one, to count them together; it finds nobody."""
        return self._hash(self.current, "r", number.reveal()[:-RANGE_DIGITS])

    def all_of(self, destination: EmailAddress | PhoneNumber) -> tuple[str, ...]:
        """Under every live key, the current one first."""
        others = sorted(k for k in self._keys if k != self.current)
        return tuple(self._under(key_id, destination) for key_id in (self.current, *others))

    def matches(self, destination: EmailAddress | PhoneNumber, fingerprint: str) -> bool:
        """Whether `fingerprint` is this destination's under the key it names."""
        key_id = fingerprint.partition(".")[0]
        if key_id not in self._keys:
            return False
        return hmac.compare_digest(
            self._under(key_id, destination).encode(), fingerprint.encode(errors="replace")
        )

    def _under(self, key_id: str, destination: EmailAddress | PhoneNumber) -> str:
        letter = "e" if isinstance(destination, EmailAddress) else "s"
        return self._hash(key_id, letter, destination.reveal())

    def _hash(self, key_id: str, letter: str, secret: str) -> str:
        text = f"{letter}\x00{secret}".encode()
        return f"{key_id}.{letter}.{hmac.new(self._keys[key_id], text, sha256).hexdigest()[:HEX_CHARS]}"
