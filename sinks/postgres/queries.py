"""SQL is written, not built: named statements in one file, each with a sentence above it.

-- name: claim_read
-- The row of one intent and channel, locked.
SELECT …
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)


def load(package: str, name: str = "queries.sql") -> Mapping[str, bytes]:
    """Name → statement (bytes, as psycopg wants a static query). `ValueError` on a repeated name."""
    text = files(package).joinpath(name).read_text("utf-8")
    parts = _NAME.split(text)[1:]
    found = dict(zip(parts[::2], (p.strip().encode() for p in parts[1::2]), strict=True))
    if len(found) * 2 != len(parts):
        raise ValueError(f"{package}/{name}: a statement is named twice")
    return MappingProxyType(found)
