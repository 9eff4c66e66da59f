"""`backstop scenario`: play a story from a file on a virtual clock, through the real handlers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from compose.output import DOES_NOT_HOLD, show_json
from compose.scenario import format as files
from compose.scenario import report
from compose.scenario.play import play
from compose.scenario.verdict import verdict
from schemas.errors import RecordRefused

REMEDY = "Correct the file; compose/scenario/format.py has the format, tests/scenarios has examples."

app = typer.Typer(
    help="Play stories on a virtual clock: no Kafka, no database, no waiting.\n\n"
    "Example: backstop scenario run tests/scenarios/v05-bounce.toml",
    no_args_is_help=True,
)


@app.callback()
def _group() -> None:
    """Play stories on a virtual clock: no Kafka, no database, no waiting."""


@app.command()
def run(
    file: Annotated[
        Path, typer.Argument(help="A scenario file; the format is in compose/scenario/format.py.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document for machines.")] = False,
) -> None:
    """Play one file: every decision with its reason, what the providers took, how it ended.

    Exit code 0 when its `expect` holds, 1 when it does not, 2 when the file is refused.

    Example: backstop scenario run tests/scenarios/v05-bounce.toml
    """
    try:
        played = play(files.parse(_read(file), name=file.name))
    except RecordRefused as exc:
        if exc.remedy == RecordRefused.remedy:  # nothing is published here
            exc.remedy = REMEDY
        raise
    if as_json:
        show_json(report.document(played))
    else:
        typer.echo(report.text(played))
    if not all(line.holds for line in verdict(played)):
        raise typer.Exit(DOES_NOT_HOLD)


def _read(file: Path) -> str:
    """The text of a file a person wrote. Raises `RecordRefused`."""
    try:
        if file.stat().st_size > files.FILE_BYTES_MAX:
            raise RecordRefused(f"{file.name} has more than {files.FILE_BYTES_MAX} bytes", code="too_large")
        return file.read_text("utf-8")
    except FileNotFoundError:
        raise RecordRefused(f"{file.name} cannot be read: there is no such file", code="unreadable") from None
    except (OSError, UnicodeDecodeError):
        raise RecordRefused(f"{file.name} cannot be read as text", code="unreadable") from None
