"""`backstop suppression`: who must not be written to. An address or number is hashed as soon as it is read.

It must not keep or print one: not in a log, a table, a record or an error.
"""

from __future__ import annotations

import csv
import sys
import threading
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from compose import keys, typed, wiring
from compose import settings as configuration
from compose.clock import SystemClock, random_id
from compose.output import DOES_NOT_HOLD, say, show, show_json, waiting_for
from compose.settings import Settings
from schemas.errors import RecordRefused
from schemas.instruction import OperatorText
from schemas.reasons import Reason, reason_of
from schemas.suppression import Suppression
from schemas.topics import TopicNames
from sinks.kafka.producer import Publisher, PublishFailed
from sinks.operator import suppression_csv as table
from sinks.operator import suppressions as books
from sinks.operator.suppressions import Entry, Hand
from sinks.operator.text import OperatorTextRefused

app = typer.Typer(
    help="Read and change the suppression list.\n\nExample: backstop suppression check --file address.txt",
    no_args_is_help=True,
)

SEEN_S, STEP_S = 10.0, 0.5  # a dispatcher reads the topic within a second
BATCH_COUNT = 1_000
FILE_BYTES_MAX = 16_000_000  # 100 000 lines of 160 bytes


class ByHand(StrEnum):
    """`books.BY_HAND` as choices of an option."""

    SUPPRESSED_BY_HAND = Reason.SUPPRESSED_BY_HAND.value
    OPTED_OUT = Reason.OPTED_OUT.value
    COMPLAINT = Reason.COMPLAINT.value
    PERMANENT_BOUNCE = Reason.PERMANENT_BOUNCE.value
    INVALID_RECIPIENT = Reason.INVALID_RECIPIENT.value


class TakesOff(StrEnum):
    """What takes a destination off the list."""

    CONSENT_GIVEN = Reason.CONSENT_GIVEN.value
    LISTED_BY_MISTAKE = Reason.LISTED_BY_MISTAKE.value


Given = Annotated[
    str | None,
    typer.Option("--destination", help="The address or number; it stays in the shell's history."),
]
FromFile = Annotated[Path | None, typer.Option("--file", help="File with the address or number.")]
Why = Annotated[str, typer.Option(help="Why; kept with the record, so a ticket and no address.")]
ReadWhy = Annotated[str, typer.Option(help="Why you read it; kept in the access log.")]
Operator = Annotated[str | None, typer.Option(help="Who does it; the user of this shell by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document for machines.")]


@app.command()
def add(
    why: Why,
    reason: Annotated[ByHand, typer.Option(help="What is the matter.")] = ByHand.SUPPRESSED_BY_HAND,
    destination: Given = None,
    file: FromFile = None,
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Put an address or a number, typed on standard input, on the list: for every purpose and account.

    Example: backstop suppression add --why "ticket 4711" < number.txt
    """
    settings, by = configuration.load(), _hand(operator, why)
    prints = typed.prints_of(settings, destination, file)
    _publish(settings, [books.put(prints[0], reason_of(reason.value), by)])
    seen = _seen(settings, prints, by, lambda found: any(e.stands for e in found))
    _told("added", prints[0], seen, as_json=as_json)


@app.command()
def remove(
    why: Why,
    reason: Annotated[TakesOff, typer.Option(help="What opens the way again.")],
    destination: Given = None,
    file: FromFile = None,
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Take an address or a number off the list. After a STOP only with --reason consent_given.

    Example: backstop suppression remove --reason listed_by_mistake --why "ticket 4711" < number.txt
    """
    settings, by = configuration.load(), _hand(operator, why)
    wiring.database_dsn(settings)
    prints = typed.prints_of(settings, destination, file)
    with wiring.opened(settings) as database:
        there = books.find(database, prints, who=by.operator, why=by.why)
    if not there:
        _told("not on the list", prints[0], None, as_json=as_json)
        raise typer.Exit(DOES_NOT_HOLD)
    _publish(settings, books.take_off(there, reason_of(reason.value), by))
    seen = _seen(settings, prints, by, lambda found: not any(e.stands for e in found))
    _told("removed", prints[0], seen, as_json=as_json)


@app.command()
def check(
    destination: Given = None,
    file: FromFile = None,
    why: ReadWhy = "backstop suppression check",
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Say whether an address or a number, typed on standard input, is on the list, why and since when.

    The reading is logged, with fingerprints.

    Example: backstop suppression check --why "ticket 4711" < number.txt
    """
    settings, who = configuration.load(), typed.operator_name(operator)
    wiring.database_dsn(settings)
    prints = typed.prints_of(settings, destination, file)
    with wiring.opened(settings) as database:
        found = books.find(database, prints, who=who, why=why)
    if as_json:
        show_json({"fingerprint": prints[0], "entries": [_as_dict(one) for one in found]})
        return
    channel = books.channel_of(prints[0]).value
    if not any(one.stands for one in found):
        show(f"{channel}: not suppressed ({prints[0]})")
    for one in found:
        show(f"{one.channel}: {_sentence(one)}")


@app.command(name="list")
def list_entries(
    limit: Annotated[int, typer.Option(min=1, max=books.PAGE_COUNT_MAX, help="At most so many.")] = 100,
    why: ReadWhy = "backstop suppression list",
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Show the list by fingerprint; the reading is logged.

    Example: backstop suppression list --limit 20 --why "weekly review"
    """
    who = typed.operator_name(operator)
    with wiring.opened(configuration.load()) as database:
        found = next(books.pages(database, who=who, why=why, count_max=limit), [])
    if as_json:
        show_json({"entries": [_as_dict(one) for one in found]})
        return
    for one in found:
        show(f"{one.fingerprint}  {one.channel:<5}  {_sentence(one)}")
    say(f"{len(found)} shown, in the order of fingerprints; all of them: backstop suppression export")


@app.command(name="import")
def import_file(
    file: Annotated[Path, typer.Argument(help="CSV with a column destination or fingerprint.")],
    why: Why,
    skip_rejected: Annotated[
        bool, typer.Option("--skip-rejected", help="Publish the other lines all the same.")
    ] = False,
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Put every line of a CSV file on the list: columns destination or fingerprint, and reason, since.

    One rejected line and nothing is published, unless --skip-rejected. Importing again is safe.

    Example: backstop suppression import bounces.csv --why "from the old provider"
    """
    settings, by, now_ms = configuration.load(), _hand(operator, why), SystemClock().now_ms()
    known = keys.read(settings.keys / keys.PUBLISHER)["fingerprint"]["keys"]
    prints = keys.publisher_keys(settings.keys).fingerprints
    found = table.parse(typed.text_of(file), prints, key_ids=known, now_ms=now_ms)
    stopped = bool(found.rejected) and not skip_rejected
    records = [] if stopped else [_record(line, by) for line in found.lines]
    try:
        _publish(settings, records)
    finally:
        for one in found.rejected:
            say(f"line {one.number}: {one.why}")
    if as_json:
        rejected = [{"line": one.number, "why": one.why} for one in found.rejected]
        show_json({"published": len(records), "rejected": rejected})
    else:
        show(f"{len(records)} published, {len(found.rejected)} rejected")
    if stopped:
        raise RecordRefused(
            f"{len(found.rejected)} lines are rejected: nothing was published",
            remedy="Correct the lines above, or publish the others with --skip-rejected.",
        )
    if found.rejected:
        raise typer.Exit(DOES_NOT_HOLD)


@app.command()
def export(
    out: Annotated[Path | None, typer.Option(help="File to write; standard output by default.")] = None,
    why: ReadWhy = "backstop suppression export",
    operator: Operator = None,
) -> None:
    """Write what stands as CSV, by fingerprint only; `import` reads it. The reading is logged.

    Example: backstop suppression export --out list.csv --why "move to another cluster"
    """
    who, count = typed.operator_name(operator), 0
    with wiring.opened(configuration.load()) as database:
        pages = books.pages(database, who=who, why=why)
        rows = (row for page in pages for row in table.written(page))
        if out is None:
            count = _write(sys.stdout, rows)
        else:
            with out.open("w", encoding="utf-8", newline="") as opened:
                count = _write(opened, rows)
    say(f"{count} written")


# who asks


def _hand(operator: str | None, why: str) -> Hand:
    """Raises `OperatorTextRefused`, which quotes nothing."""
    try:
        TypeAdapter(OperatorText).validate_python(why)
    except ValidationError:
        raise OperatorTextRefused(
            "why is too short or too long, or may hold an address, a number or a link", code="operator_text"
        ) from None
    return Hand(typed.operator_name(operator), why, SystemClock().now_ms(), f"operator:{random_id()}")


# publishing, and whether the guard has it


def _publish(settings: Settings, records: Sequence[Suppression]) -> None:
    if not records:
        return
    publisher, names = Publisher(settings.kafka, client_id="backstop-cli"), TopicNames(settings.prefix)
    ready = books.outgoing(names, records)
    done = 0
    try:
        with waiting_for("Kafka"):
            for start in range(0, len(ready), BATCH_COUNT):
                publisher.publish(ready[start : start + BATCH_COUNT])
                done = min(start + BATCH_COUNT, len(ready))
    except PublishFailed:
        say(f"{done} of {len(ready)} were published for certain; doing it again is safe")
        raise


def _seen(
    settings: Settings, prints: Sequence[str], by: Hand, is_there: Callable[[list[Entry]], bool]
) -> bool | None:
    """Whether the guard has it within `SEEN_S`; None: there is no database to ask."""
    if not settings.postgres.get_secret_value():
        return None
    clock = SystemClock()
    until = clock.monotonic() + SEEN_S
    with wiring.opened(settings) as database, waiting_for("a dispatcher to read it"):
        while True:
            if is_there(books.find(database, prints, who=by.operator, why=by.why)):
                return True
            if clock.monotonic() >= until:
                return False
            threading.Event().wait(STEP_S)


# words


def _told(what: str, fingerprint: str, seen: bool | None, *, as_json: bool) -> None:
    if as_json:
        show_json({"fingerprint": fingerprint, "what": what, "guard_has_it": seen})
        return
    show(f"{fingerprint}: {what}" + (", and the guard has it" if seen else ""))
    if seen is None and what == "added":
        say("published; a dispatcher reads it within a second. To see it: backstop suppression check")
    if seen is False:
        say(
            f"published, but the guard has not read it within {SEEN_S:.0f} s: does a dispatcher run? "
            "It is not lost; to see it: backstop suppression check"
        )


def _sentence(one: Entry) -> str:
    try:
        told = reason_of(one.reason).sentence
    except KeyError:
        told = "A reason of a newer version."
    since = f"{one.reason} since {table.utc(one.since_ms)}: {told}"
    hand = f" By {one.operator}: {one.note}." if one.operator else f" Cause: {one.cause}."
    if not one.stands:
        return f"not suppressed any more: {since} A consent of {table.utc(one.consent_ms or 0)} is later."
    stop = ""
    if one.is_opted_out and one.reason != Reason.OPTED_OUT.value:
        stop = f" The person also answered STOP at {table.utc(one.opted_out_ms or 0)}."
    return f"suppressed, {since}{hand}{stop}"


def _as_dict(one: Entry) -> dict[str, object]:
    return {
        "fingerprint": one.fingerprint,
        "channel": one.channel,
        "suppressed": one.stands,
        "reason": one.reason,
        "since": table.utc(one.since_ms),
        "opted_out_at": None if one.opted_out_ms is None else table.utc(one.opted_out_ms),
        "consent_at": None if one.consent_ms is None else table.utc(one.consent_ms),
        "cause": one.cause,
        "operator": one.operator,
        "why": one.note,
    }


def _record(line: table.Line, by: Hand) -> Suppression:
    at_ms = by.at_ms if line.at_ms is None else line.at_ms
    return books.put(line.fingerprint, line.reason, Hand(by.operator, by.why, at_ms, by.cause))


def _write(out: Any, rows: Any) -> int:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.HEADER)
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007  the number of the last one
        writer.writerow(row)
    return count
