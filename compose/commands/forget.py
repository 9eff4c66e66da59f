"""`backstop forget`: a person asked to be forgotten. The address or number is hashed as soon as it is read.

It must not keep or print one, and it must not open the way to somebody who answered STOP.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from compose import settings as configuration
from compose import typed, wiring
from compose.clock import SystemClock
from compose.commands import publish
from compose.output import show, show_json, waiting_for
from compose.settings import Settings
from schemas.errors import BackstopError, RecordRefused
from schemas.topics import TopicNames
from sinks.operator import forgetting as books
from sinks.operator.forgetting import About, Forgotten

SOURCE = "forget"  # who cancelled, on the record


class ForgetRefused(BackstopError):
    """Nothing was changed."""

    remedy = "Wait until they are over, or give --cancel: nothing more is sent for them."


def forget(
    why: Annotated[str, typer.Option(help="Why; kept in the access log, so a ticket and no address.")],
    destination: Annotated[
        str | None,
        typer.Option("--destination", help="The address or number; it stays in the shell's history."),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="File with the address or number.")] = None,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel what is not over yet, instead of refusing.")
    ] = False,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Nobody new: only what came late about who was forgotten before.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what there is.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    operator: Annotated[
        str | None, typer.Option(help="Who does it; the user of this shell by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document for machines.")] = False,
) -> None:
    """Take what leads to a person out of the database: by address or number, typed on standard input.

    Fingerprints, country, the service's and the provider's references leave audit and claims, and the
    person's consents are deleted. Decisions stay: `backstop explain` goes on telling what was done and why.
    The suppression list stays: who answered STOP is left alone. Address and number of a person are asked
    for one by one. Doing it again is safe. Records that were on their way name the person once more: the next
    `backstop forget` of anybody, or with --sweep of nobody, takes them out.

    Example: backstop forget --why "ticket 4711" --file address.txt
    """
    settings, who = configuration.load(), typed.operator_name(operator)
    wiring.database_dsn(settings)
    if sweep and (destination is not None or file is not None):
        raise RecordRefused("--sweep is about nobody new: give no destination", pointer="/destination")
    prints = () if sweep else typed.prints_of(settings, destination, file)
    names, now_ms = TopicNames(settings.prefix), SystemClock().now_ms()
    with wiring.opened(settings) as database:
        with waiting_for("the database"):
            found = books.about(database, prints, names=names, who=who, why=why)
        live = [one for one in found if one.is_live(now_ms)]
        if dry_run:
            _listed(found, live, as_json=as_json)
            return
        _agreed(found, live, cancel=cancel, yes=yes or sweep)
        _cancelled(settings, live)
        with waiting_for("the database"):
            done = books.forget(database, prints, found, names=names, now_ms=now_ms, who=who, why=why)
    if as_json:
        show_json(asdict(done) | {"cancelled": [one.intent_id for one in live]})
        return
    show("\n".join(_told(done, len(live))))


def _agreed(found: list[About], live: list[About], *, cancel: bool, yes: bool) -> None:
    """Raises `ForgetRefused`."""
    if live and not cancel:
        raise ForgetRefused(
            f"{len(live)} of {len(found)} intents are not over: nothing was changed", code="live"
        )
    if not yes and not typed.is_confirmed("forget", f"to forget {len(found)} intents for good"):
        raise ForgetRefused(
            "not confirmed: nothing was changed", code="forget", remedy="Type forget, or give --yes."
        )


def _cancelled(settings: Settings, live: list[About]) -> None:
    """First, so that what is forgotten can no longer be sent. Raises `PublishFailed`."""
    if not live:
        return
    service = publish.publisher(settings)
    with waiting_for("Kafka"):
        for one in live:
            service.cancel(one.intent_id, at=publish.now(), source=SOURCE)


def _listed(found: list[About], live: list[About], *, as_json: bool) -> None:
    if as_json:
        show_json({"intents": [asdict(one) | {"is_live": one in live} for one in found]})
        return
    for one in found:
        state = "forgotten before" if one.is_forgotten else "not over" if one in live else "over"
        show(f"{one.intent_id}  asked for {_utc(one.requested_ms)}, {state}")
    show(f"{len(found)} intents, {len(live)} of them not over; nothing was changed")


def _told(done: Forgotten, cancelled: int) -> list[str]:
    lines = [
        f"{done.intents} intents forgotten: {done.audit_rows} audit rows and {done.claims} claims cleared",
        f"{done.consents} consents deleted",
        "the suppression list was left as it is",
    ]
    if cancelled:
        lines.append(f"{cancelled} intents were cancelled first")
    if done.claims_kept:
        lines.append(f"{done.claims_kept} intents keep their claim: without it one could be sent twice")
    if done.again_after_ms is not None:
        lines.append(
            "records on their way can name them again: backstop forget --sweep, the last time after "
            f"{_utc(done.again_after_ms)}"
        )
    if done.sealed_until_ms is not None:
        lines.append(
            f"sealed envelopes lie in Kafka until {_utc(done.sealed_until_ms)} at the latest; only a "
            "dispatcher's key opens them"
        )
    return lines


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(forget)
