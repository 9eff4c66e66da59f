"""`backstop topics`: create what is missing, verify what is there, print who may touch what."""

from __future__ import annotations

from typing import Annotated

import typer

from compose import settings as configuration
from compose.output import DOES_NOT_HOLD, say, show, show_json, waiting_for
from compose.settings import Settings
from schemas.topics import TopicNames
from sinks.kafka import admin

app = typer.Typer(
    help="Create, verify and describe the topics.\n\nExample: backstop topics verify", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document for machines.")]


def layout(settings: Settings) -> admin.Layout:
    """What a deployment fixes once."""
    names = TopicNames(settings.prefix)
    return admin.Layout(names, settings.partitions, settings.replication, settings.min_insync)


@app.command()
def create(as_json: AsJson = False) -> None:
    """Create every topic that is missing; existing ones are never changed.

    Example: BACKSTOP_KAFKA=127.0.0.1:9092 backstop topics create
    """
    settings = configuration.load()
    with waiting_for("Kafka"):
        made = admin.create(settings.kafka, layout(settings))
    if as_json:
        show_json({"created": made})
        return
    show("\n".join(made) if made else "all topics exist")
    say("next: backstop topics verify")


@app.command()
def verify(as_json: AsJson = False) -> None:
    """Compare the cluster with the registry and name each difference. Exit 1 when there is one.

    Example: backstop topics verify --json
    """
    settings = configuration.load()
    with waiting_for("Kafka"):
        differences = admin.verify(settings.kafka, layout(settings))
        remarks = admin.warnings(settings.kafka)
    if as_json:
        show_json({"differences": differences, "warnings": remarks})
    else:
        show("\n".join(differences) if differences else "the cluster is as the registry wants it")
        for line in remarks:
            say(f"warning: {line}")
    if differences:
        raise typer.Exit(DOES_NOT_HOLD)


@app.command()
def acl(as_json: AsJson = False) -> None:
    """Print `kafka-acls` arguments: who may read and write which topic.

    Example: backstop topics acl | xargs -L1 kafka-acls --bootstrap-server broker:9092
    """
    lines = admin.acl_lines(layout(configuration.load()))
    if as_json:
        show_json({"acl": lines})
    else:
        show("\n".join(lines))
