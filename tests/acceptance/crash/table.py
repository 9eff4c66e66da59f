"""What is printed: one line per boundary and signal, one per outage, then the four proofs.

It must not measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from compose.demo.proofs import Proof
from compose.output import show


@dataclass(slots=True)
class Line:
    """One thing that happens; figures in seconds, one per run that has it."""

    boundary: str
    process: str
    signal: str
    runs: int = 0
    held: int = 0
    next_decision_s: list[float] = field(default_factory=list)
    lag_zero_s: list[float] = field(default_factory=list)
    not_reached: int = 0


def spread(figures: Sequence[float]) -> str:
    """`median (worst)`, or a dash."""
    if not figures:
        return "–"
    ordered = sorted(figures)
    return f"{ordered[len(ordered) // 2]:.1f} ({ordered[-1]:.1f})"


def show_table(lines: Sequence[Line], proofs: Sequence[Proof], *, intents: int, seconds: float) -> None:
    """On standard output."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("boundary", "process", "signal"):
        table.add_column(name)
    for name in ("runs", "proofs hold", "next decision, s", "lag zero, s"):
        table.add_column(name, justify="right")
    for line in lines:
        held = f"{line.held}" + (f" ({line.not_reached} not reached)" if line.not_reached else "")
        table.add_row(
            line.boundary,
            line.process,
            line.signal,
            str(line.runs),
            held,
            spread(line.next_decision_s),
            spread(line.lag_zero_s),
        )
    Console(highlight=False, width=140).print(table)
    for number, proof in enumerate(proofs, 1):
        counted = ", ".join(f"{n} {name}" for name, n in proof.counted.items())
        show(f"proof {number} {'holds' if proof.holds else 'FAILS'}: {proof.sentence} ({counted})")
        for one in proof.against:
            show(f"    {one}")
    show(f"{intents} intents on one kept stack, {seconds:.0f} s; figures are median (worst)")


def as_dict(
    lines: Sequence[Line], proofs: Sequence[Proof], *, intents: int, seconds: float
) -> dict[str, Any]:
    return {
        "holds": all(line.held == line.runs for line in lines),
        "intents": intents,
        "seconds": round(seconds, 1),
        "lines": [asdict(line) for line in lines],
        "proofs": [asdict(proof) for proof in proofs],
    }
