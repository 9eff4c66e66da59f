"""`backstop publish`: an intent, a completion or a cancellation by hand, through the publisher helper."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from compose import keys
from compose import settings as configuration
from compose.clock import SystemClock, random_id
from compose.output import show, show_json, waiting_for
from compose.settings import Settings
from schemas.errors import RecordRefused
from schemas.topics import TopicNames
from sinks.kafka.producer import Publisher
from sinks.publisher import IntentPublisher, NewIntent

app = typer.Typer(
    help="Publish an intent, a completion or a cancellation.\n\n"
    "Example: backstop publish completion reset-7f0c1b52",
    no_args_is_help=True,
)

NAME = "backstop-cli"
_SPAN = re.compile(r"([0-9]+)(s|m|h)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document for machines.")]
IntentId = Annotated[str, typer.Argument(help="The intent id: 8 to 64 of a-z, 0-9, _ and -.")]


def publisher(settings: Settings, tenant: str | None = None) -> IntentPublisher:
    """The helper a service of `tenant` would use, with this deployment's keys and policies."""
    held = keys.publisher_keys(settings.keys, tenant)
    return IntentPublisher(
        TopicNames(settings.prefix),
        publisher=Publisher(settings.kafka, client_id=NAME),
        sealing=held.sealing,
        fingerprints=held.fingerprints,
        policies=configuration.policies(settings),
        templates=configuration.templates(settings),
        name=NAME,
    )


def now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)


def instant(text: str, *, since: datetime, name: str) -> datetime:
    """`2m` after `since`, or an RFC 3339 instant with an offset. Raises `RecordRefused`."""
    span = _SPAN.fullmatch(text)
    try:
        if span is not None:
            return since + timedelta(seconds=int(span[1]) * _SECONDS[span[2]])
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        found = None
    if found is None or found.tzinfo is None:
        raise RecordRefused(
            f"{name} is a span such as 2m, or an instant with its zone such as 2026-12-01T10:00:00Z",
            pointer=f"/{name}",
        )
    return found


def _past(text: str | None, name: str) -> datetime | None:
    """An instant that has been: a span would lie in the future. Raises `RecordRefused`."""
    if text is None:
        return None
    if _SPAN.fullmatch(text):
        raise RecordRefused(
            f"{name} is an instant with its zone, such as 2026-11-30T10:00:00Z", pointer=f"/{name}"
        )
    return instant(text, since=now(), name=name)


@app.command()
def intent(
    policy: Annotated[str, typer.Option(help="Policy version, such as password_reset:v1.")],
    email: Annotated[str, typer.Option(help="The person's e-mail address.")],
    var: Annotated[list[str], typer.Option(help="A template variable, name=value; repeat.")],
    phone: Annotated[str | None, typer.Option(help="The person's number in E.164 form.")] = None,
    consent: Annotated[bool, typer.Option("--consent", help="The person agreed to SMS, just now.")] = False,
    consent_at: Annotated[
        str | None, typer.Option(help="When the person agreed to SMS, such as 2026-11-30T10:00:00Z.")
    ] = None,
    phone_verified_at: Annotated[
        str | None, typer.Option(help="Since when the number is known to be theirs, an instant like that.")
    ] = None,
    deadline: Annotated[str, typer.Option(help="When SMS becomes eligible: 2m, or an instant.")] = "2m",
    expiry: Annotated[str, typer.Option(help="When it is all over: 15m, or an instant.")] = "15m",
    tenant: Annotated[str, typer.Option(help="Tenant id.")] = "tenant-0001",
    locale: Annotated[str, typer.Option(help="Locale of both channels.")] = "en",
    subject: Annotated[
        str | None,
        typer.Option(help="What you call the person by; a newer intent of one subject supersedes the older."),
    ] = None,
    intent_id: Annotated[
        str | None,
        typer.Option("--id", help="Intent id: 8 to 64 of a-z, 0-9, _ and -; made up when not given."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Publish one intent; refused with a reason when no reader would accept it.

    Example: backstop publish intent --policy password_reset:v1 --email ada@example.com
    --var name=Ada --var link=https://app.example/r?t=1 --phone +447700900012 --consent
    """
    settings, asked = configuration.load(), now()
    pairs = [v.partition("=") for v in var]
    if any(not sep for _, sep, _ in pairs):
        raise RecordRefused("a variable is given as name=value", pointer="/variables")
    if consent and consent_at is not None:
        raise RecordRefused("give --consent or --consent-at, not both", pointer="/sms_consent")
    new = NewIntent(
        intent_id=intent_id or random_id(),
        tenant=tenant,
        policy=policy,
        locale=locale,
        email=email,
        phone=phone,
        variables={name: value for name, _, value in pairs},
        challenge_ref=random_id(),
        requested_at=asked,
        deadline=instant(deadline, since=asked, name="deadline"),
        expiry=instant(expiry, since=asked, name="expiry"),
        sms_consent_at=asked if consent else _past(consent_at, "consent_at"),
        phone_verified_at=_past(phone_verified_at, "phone_verified_at"),
        subject=subject,
    )
    with waiting_for("Kafka"):
        record = publisher(settings, tenant).publish(new)
    _told(record.intent_id, record, as_json=as_json)


@app.command()
def completion(
    intent_id: IntentId,
    source: Annotated[str, typer.Option(help="Who says so.")] = "cli",
    as_json: AsJson = False,
) -> None:
    """Say that the person did it: nothing more is sent.

    Example: backstop publish completion reset-7f0c1b52
    """
    with waiting_for("Kafka"):
        record = publisher(configuration.load()).complete(intent_id, at=now(), source=source)
    _told(intent_id, record, as_json=as_json)


@app.command()
def cancellation(
    intent_id: IntentId,
    source: Annotated[str, typer.Option(help="Who says so.")] = "cli",
    as_json: AsJson = False,
) -> None:
    """Withdraw an intent: nothing more is sent.

    Example: backstop publish cancellation reset-7f0c1b52
    """
    with waiting_for("Kafka"):
        record = publisher(configuration.load()).cancel(intent_id, at=now(), source=source)
    _told(intent_id, record, as_json=as_json)


def _told(intent_id: str, record: Any, *, as_json: bool) -> None:
    if as_json:
        show_json({"intent_id": intent_id, "record": record.record})
    else:
        show(f"{intent_id} {record.record} published; next: backstop explain {intent_id}")
