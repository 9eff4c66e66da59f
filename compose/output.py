"""How commands speak: results on standard output, the rest on standard error, colour on a terminal only.

Exit codes mean something:

    0  done, and everything asked for holds
    1  done, but what was asked for does not hold (a proof failed, a check found differences)
    2  refused: wrong usage, settings or record; nothing was done
    3  a system we need (Kafka, Postgres, a provider) is away; try again
    4  a fault of ours; the log has the trace
    130  stopped by Ctrl-C
"""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn

from rich.console import Console

from schemas.errors import BackstopError

OK, DOES_NOT_HOLD, REFUSED, AWAY, FAULT, STOPPED = 0, 1, 2, 3, 4, 130

_err = Console(stderr=True, highlight=False, soft_wrap=True)
_out = Console(highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """Progress and remarks, on standard error."""
    _err.print(text)


def show(text: str) -> None:
    """A result for people, on standard output."""
    _out.print(text)


def show_json(value: Any) -> None:
    """A result for machines: one JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=False) + "\n")


def fail(exc: BackstopError, *, code: int = REFUSED) -> NoReturn:
    """Say what is wrong and what to do about it, then end with the code."""
    _err.print(f"[bold]error:[/bold] {_plain(exc)}", markup=True)
    _err.print(f"  what to do: {exc.remedy}", markup=False)
    raise SystemExit(code)


def _plain(exc: Exception) -> str:
    return str(exc).replace("[", r"\[")
