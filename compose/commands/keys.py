"""`backstop keys`: make the key files a deployment needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from compose import keys as files
from compose.output import say, show, show_json

app = typer.Typer(help="Make key files.\n\nExample: backstop keys generate --out keys", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Make key files."""


@app.command()
def generate(
    out: Annotated[Path, typer.Option(help="Folder for the key files.")] = Path("keys"),
    key_id: Annotated[str, typer.Option(help="Id of the sealing key, shown in every envelope.")] = "s1",
    fingerprint_id: Annotated[str, typer.Option(help="Id of the fingerprint key.")] = "k1",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document for machines.")] = False,
) -> None:
    """Write publisher.json, dispatcher.json and letters.json; existing files are never overwritten.

    Example: backstop keys generate --out keys
    """
    made = files.generate(out, key_id=key_id, fingerprint_id=fingerprint_id)
    if as_json:
        show_json({"written": [str(p) for p in made]})
        return
    show("\n".join(str(p) for p in made))
    say("give each process only its file: services publisher.json, the dispatcher dispatcher.json")
