"""The ledger as a file of JSON lines, so that a simulator started again after a kill knows what it took.

It must not decide what a line says. Lines are not synced: the file outlives the process, not the machine.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from compose.simulator.ledger import Entry, stored


class LedgerFile:
    """Lines read once at the start and appended from then on. One simulator per file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def read(self) -> list[dict[str, Any]]:
        """What is there. A last line without an end was being written at the kill: it is cut off, for its
        request was never answered. Raises `ValueError` when another line is not JSON."""
        written = self._path.read_bytes()
        whole = written[: written.rfind(b"\n") + 1]
        os.ftruncate(self._file, len(whole))
        return [json.loads(one) for one in whole.splitlines()]

    def append(self, entry: Entry) -> None:
        """One line in one write, before the request is answered."""
        os.write(self._file, json.dumps(stored(entry), separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> LedgerFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
