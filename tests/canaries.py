"""Canaries: planted secrets and every form in which they could leak. It must not hold an expectation."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator
from urllib.parse import quote


def forms(secret: str) -> Iterator[bytes]:
    """Plain, URL-encoded, JSON-escaped, and base64 at each of the three alignments."""
    raw = secret.encode()
    yield raw
    yield quote(secret, safe="").encode()
    yield json.dumps(secret)[1:-1].encode()
    yield secret.encode("unicode_escape")
    for shift in range(3):
        padded = b"\x00" * shift + raw
        body = b64encode(padded)
        # Cut what depends on the neighbours: the characters that mix in padding bytes on either side.
        start, end = (0, 2, 3)[shift], len(body) - 4
        if end - start >= 6:
            yield body[start:end]
            yield body[start:end].replace(b"+", b"-").replace(b"/", b"_")


def found_in(text: bytes, secrets: Iterable[str]) -> list[str]:
    """The secrets that occur in `text` in any form."""
    return [s for s in secrets if any(form in text for form in forms(s))]
