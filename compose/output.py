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
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rich.console import Console
from rich.text import Text

from schemas.errors import BackstopError

OK, DOES_NOT_HOLD, REFUSED, AWAY, FAULT = 0, 1, 2, 3, 4
SILENT_S = 2.0  # nobody should wait longer without being told what for

_err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
_out = Console(highlight=False, soft_wrap=True, markup=False)


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
    _err.print(Text.assemble(("error:", "bold"), f" {exc}"))
    _err.print(f"  what to do: {exc.remedy}")
    raise SystemExit(code)


@contextmanager
def waiting_for(what: str, *, silent_s: float = SILENT_S) -> Iterator[threading.Timer]:
    """Say what is waited for once `silent_s` seconds have gone by without an end."""
    told = threading.Timer(silent_s, say, (f"waiting for {what} …",))
    told.daemon = True
    told.start()
    try:
        yield told
    finally:
        told.cancel()
