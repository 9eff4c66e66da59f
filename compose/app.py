"""The command line: one name for a command, its container service and its heading in the README.

It must not do the work: each command builds what it needs through `compose.wiring` and says what came of it.
"""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from compose import logs
from compose.commands import (
    budget,
    contract,
    demo,
    doctor,
    explain,
    forget,
    keys,
    policy,
    processes,
    publish,
    sample,
    scenario,
    suppression,
    template,
    topics,
    up,
)
from compose.output import AWAY, FAULT, REFUSED, fail, say
from schemas.errors import BackstopError, FileRefused, GuardUnavailable
from sinks.kafka.consumer import KafkaAway
from sinks.kafka.producer import PublishFailed

log = logging.getLogger("backstop")

app = typer.Typer(
    name="backstop",
    help="Watch by polling whether an e-mail arrived; send exactly one SMS when it did not.\n\n"
    "Start with: backstop demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"backstop {version('backstop')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None: ...


demo.register(app)
up.register(app)
processes.register(app)
explain.register(app)
forget.register(app)
doctor.register(app)
contract.register(app)
app.add_typer(topics.app, name="topics")
app.add_typer(keys.app, name="keys")
app.add_typer(publish.app, name="publish")
app.add_typer(sample.app, name="sample")
app.add_typer(suppression.app, name="suppression")
app.add_typer(budget.app, name="budget")
app.add_typer(scenario.app, name="scenario")
app.add_typer(template.app, name="template")
app.add_typer(policy.app, name="policy")


def run() -> None:
    """Run the command asked for: errors of ours become one sentence, a remedy and an exit code."""
    try:
        app()
    except (KafkaAway, PublishFailed, GuardUnavailable) as exc:
        fail(exc, code=AWAY)
    except BackstopError as exc:
        fail(exc, code=REFUSED)
    except Exception as exc:
        if isinstance(exc, OSError) and exc.filename is not None:  # a path that this command was given
            fail(FileRefused(f"{exc.filename}: {exc.strerror}", code="file"))
        if not log.hasHandlers():  # a trace may quote what it was given: never write one unredacted
            logs.configure()
        log.exception("a fault of ours")
        say("  what to do: this should not happen; report the lines above, they hold no secret")
        sys.exit(FAULT)
