"""Worlds that once went wrong, by name; they are run for ever. Lines of `seeds.txt`:

    name seed [intents] [fault=chance ...]      # the sentence that was violated, and the mechanism

Without faults named, those the seed draws. It must not run anything.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.simulation.faults import FAULTS, Options

FILE = Path(__file__).with_name("seeds.txt")


def read(text: str) -> dict[str, Options]:
    """Raises `ValueError` naming the line."""
    found: dict[str, Options] = {}
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        try:
            name, seed, rest = fields[0], int(fields[1]), fields[2:]
            options = Options.drawn(seed)
            if rest and "=" not in rest[0]:
                options, rest = replace(options, intents=int(rest[0])), rest[1:]
            if rest:
                chances = {k: float(v) for k, v in (part.split("=") for part in rest)}
                if unknown := sorted(set(chances) - set(FAULTS)):
                    raise ValueError(f"unknown faults: {', '.join(unknown)}")
                options = replace(options, chances=chances)
        except (ValueError, IndexError) as exc:
            raise ValueError(f"seeds.txt line {number}: {exc}") from None
        if name in found:
            raise ValueError(f"seeds.txt line {number}: {name} is there twice")
        found[name] = options
    return found


def kept() -> dict[str, Options]:
    return read(FILE.read_text("utf-8"))


def line(name: str, options: Options, why: str) -> str:
    """As it is kept."""
    chances = " ".join(f"{fault}={chance}" for fault, chance in options.chances.items())
    return f"{name} {options.seed} {options.intents} {chances}  # {why}"
