"""The corpus: inputs worth keeping, each named for what it is, with the outcome it must have.

    corpus/<target>/<what it is>.bin      the bytes, whatever the suffix says
    corpus/<target>/<what it is>.parts    a JSON list of [text, times], for bytes too many to keep
    corpus/<target>/outcomes.json         name → outcome class

`python -m tests.fuzz.corpus` writes today's outcome beside every entry that has none; read it before you
commit it: it is the claim. It must not change an outcome that is written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import answers, records, texts

ROOT = Path(__file__).parent / "corpus"
SHARED = {"audit": "codec"}  # one set of records for both
OUTCOMES, PARTS = "outcomes.json", ".parts"

Target = Callable[[bytes], str]
TARGETS: dict[str, Target] = {
    "codec": records.codec,
    "audit": records.audit,
    "control": records.control,
    "sealed": records.sealed,
    "scenario": texts.scenario,
    "settings": texts.environment,
    "template": texts.template,
    "destination": texts.destination,
    "retry_after": texts.wait,
    "http": answers.http,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One input of one target; `name` is the file's, without the folder."""

    target: str
    name: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.target}/{self.name}"


def entries() -> Iterator[Entry]:
    """Every entry of every target, by name."""
    for target in TARGETS:
        for path in sorted((ROOT / SHARED.get(target, target)).iterdir()):
            if path.name != OUTCOMES:
                yield Entry(target, path.name, _data(path))


def _data(path: Path) -> bytes:
    if path.suffix != PARTS:
        return path.read_bytes()
    return b"".join(text.encode("utf-8") * times for text, times in json.loads(path.read_text("utf-8")))


def outcomes(target: str) -> dict[str, str]:
    """What is written beside the entries of a target."""
    path = ROOT / target / OUTCOMES
    found: dict[str, str] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found


def add_missing() -> list[str]:
    """Write the outcomes that are not yet there; returns what was added."""
    added = []
    for target, read in TARGETS.items():
        written = outcomes(target)
        for entry in entries():
            if entry.target == target and entry.name not in written:
                written[entry.name] = read(entry.data)
                added.append(f"{entry}: {written[entry.name]}")
        text = json.dumps(written, indent=1, sort_keys=True, ensure_ascii=False)
        (ROOT / target / OUTCOMES).write_text(text + "\n", "utf-8")
    return added


if __name__ == "__main__":
    sys.stdout.write("\n".join([*add_missing(), "read what is new before you commit it\n"]))
