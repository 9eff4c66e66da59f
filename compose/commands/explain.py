"""`backstop explain`: the whole story of one intent, from the audit."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr

from compose import settings as configuration
from compose import wiring
from compose.local.database import Database
from compose.local.stack import running
from compose.output import say, show_json
from compose.settings import Settings
from schemas.topics import TopicNames
from sinks.operator import explain as story


def explain(
    intent_id: Annotated[str, typer.Argument(help="The intent id.")],
    why: Annotated[str, typer.Option(help="Why you read it; kept in the access log.")] = "backstop explain",
    folder: Annotated[
        Path, typer.Option(help="Local stack to read when BACKSTOP_POSTGRES is not set.")
    ] = Path(".backstop"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document for machines.")] = False,
) -> None:
    """Tell what was asked, seen, decided and sent, with times, evidence, reasons and the three ages.

    Reads BACKSTOP_POSTGRES when it is set, else the local stack of this folder, which need not run.

    Example: backstop explain demo12345678-03-000 --why "ticket 4711"
    """
    settings = configuration.load()
    if settings.postgres.get_secret_value() or not (folder / "postgres").is_dir():
        rows = _rows(settings, intent_id, why)
    else:  # the local stack has stopped: its database alone is enough
        with local_database(folder) as dsn:
            local = settings.model_copy(update={"postgres": SecretStr(dsn)})
            rows = _rows(local, intent_id, why, is_local=True)
    found = story.tell(intent_id, rows)
    if as_json:
        show_json(story.as_dict(found))
    else:
        typer.echo(story.render(found))


def _rows(settings: Settings, intent_id: str, why: str, *, is_local: bool = False) -> list[dict[str, Any]]:
    with wiring.opened(settings) as database:
        names = TopicNames(settings.prefix)
        if is_local:  # the demo has a prefix of its own
            names = story.names_of(database, intent_id, default=names)
        return story.load(database, intent_id, names=names, who=getpass.getuser(), why=why)


@contextmanager
def local_database(folder: Path) -> Iterator[str]:
    """The URI of a local stack's database: the running one, or started for as long as it is needed."""
    live = running(folder)
    if live is not None:
        yield live.dsn
        return
    database = Database(folder.resolve() / "postgres")
    database.start(say)
    try:
        yield database.dsn
    finally:
        database.stop()


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(explain)
