"""Writes `schemas/released` and the publisher contract: `python -m tests.contract.regenerate`.

It adds what is new. It must not change what was released; before the first release, and only then,
`--unreleased` allows it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from schemas.asyncapi import documents
from schemas.manifest import MANIFEST
from schemas.publishers.page import page
from schemas.publishers.vectors import document

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
GROWS = (MANIFEST, "asyncapi.json")  # a new record or topic adds to these


def main(arguments: list[str]) -> int:
    """0 when all is as the code says, or was written; 1 when a released file would change."""
    wanted = {SCHEMAS / "released" / name: text for name, text in documents().items()}
    for path, text in wanted.items():
        old = path.read_text("utf-8") if path.exists() else None
        if old == text:
            continue
        if old is not None and path.name not in GROWS and "--unreleased" not in arguments:
            print(f"{path.name} was released and would change: give the record a new version instead.")
            return 1
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        print(f"wrote {path.relative_to(SCHEMAS.parent)}")
    for path, text in publishing().items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
            print(f"wrote {path.relative_to(SCHEMAS.parent)}")
    return 0


def publishing() -> dict[Path, str]:
    """The page and the vectors of the publisher contract, as they should be."""
    vectors = SCHEMAS / "publishers" / "vectors.json"
    kept = vectors.read_text("utf-8") if vectors.exists() else None
    return {SCHEMAS / "publishers" / "CONTRACT.md": page(), vectors: document(kept)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
