"""`backstop contract`: what a publisher in any language must do, and the vectors to check it with."""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import Annotated

import typer

from schemas.publishers.page import page


def contract(
    vectors: Annotated[bool, typer.Option("--vectors", help="The vectors, as one JSON document.")] = False,
) -> None:
    """Print the publisher contract of this version, as a page in Markdown.

    Example: backstop contract --vectors > vectors.json
    """
    kept = files("schemas.publishers").joinpath("vectors.json")
    sys.stdout.write(kept.read_text("utf-8") if vectors else page())


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(contract)
