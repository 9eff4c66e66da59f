"""The picture of the machine is the machine: the README's diagram is drawn from the table."""

from __future__ import annotations

import re
from pathlib import Path

from schemas.decision import CloseKind, Phase
from streams.core import table
from streams.core.table import TABLE, Move, mermaid

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"```mermaid\n(stateDiagram-v2\n.*?)\n```", re.DOTALL)


def drawn_in(text: str) -> list[str]:
    return _BLOCK.findall(text)


def test_every_diagram_in_a_readme_is_the_table() -> None:
    for page in (ROOT / "README.md", ROOT / "streams" / "README.md", ROOT / "streams" / "core" / "README.md"):
        if page.exists():
            assert all(found == mermaid() for found in drawn_in(page.read_text("utf-8"))), page.name


def test_the_core_readme_draws_the_table() -> None:
    assert drawn_in((ROOT / "streams" / "core" / "README.md").read_text("utf-8")) == [mermaid()]


def test_a_diagram_that_differs_would_be_seen() -> None:
    assert drawn_in("x\n```mermaid\nstateDiagram-v2\n    [*] --> nowhere\n```\n") != [mermaid()]


def test_the_diagram_names_every_phase_and_every_way_to_end() -> None:
    assert all(place.value in mermaid() for place in Phase)
    assert all(kind.value in mermaid() for kind in CloseKind)
    assert {move for _, move in TABLE} == set(Move)


def test_the_story_above_the_table_names_every_phase() -> None:
    assert all(f"`{place.value}`" in (table.__doc__ or "") for place in Phase)
