"""An envelope with any header and any content, properly encrypted: what a hostile publisher can make.

RFC 7518 §4.6 (ECDH-ES, direct) and §5.3 (A256GCM), written out because a library refuses to make what it
would refuse to read. It must not be used for sealing.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from schemas.sealed import ALGORITHM, CURVE, ENCRYPTION, _bound
from tests.fuzz import records

_EPHEMERAL = X25519PrivateKey.from_private_bytes(sha256(b"the fuzz tests' ephemeral key").digest())
_NONCE = bytes(12)  # one key, many texts: fine for tests, never for secrets
_KEY_BITS = 256


def _b64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


KEY: dict[str, Any] = {"kty": "OKP", "crv": CURVE, "x": _b64(_EPHEMERAL.public_key().public_bytes_raw())}


def header(**changes: Any) -> dict[str, Any]:
    """The protected header the publisher writes, with changes."""
    bound = _bound(records.BINDING)
    fields = {
        "alg": ALGORITHM,
        "enc": ENCRYPTION,
        "kid": records.KEY_ID,
        "crit": ["bs"],
        "bs": bound,
        "epk": KEY,
    }
    return fields | changes


def forged(fields: Any, clear: bytes) -> bytes:
    """The compact JWE of `clear` under these header fields, under the key both sides would agree on."""
    head = _b64(json.dumps(fields).encode())
    shared = _EPHEMERAL.exchange(records.PUBLIC)
    info = b"".join(_sized(part) for part in (ENCRYPTION.encode(), b"", b"")) + _KEY_BITS.to_bytes(4, "big")
    key = sha256((1).to_bytes(4, "big") + shared + info).digest()
    body = AESGCM(key).encrypt(_NONCE, clear, head.encode())
    return ".".join([head, "", _b64(_NONCE), _b64(body[:-16]), _b64(body[-16:])]).encode()


def _sized(part: bytes) -> bytes:
    return len(part).to_bytes(4, "big") + part
