"""`backstop sample`: a service of nobody's, to see what a completion is and is not."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer
import uvicorn

from compose import settings as configuration
from compose.clock import SystemClock, random_id
from compose.commands import publish
from compose.commands.processes import prepared
from compose.output import say, show, waiting_for
from compose.sample.challenges import Challenges
from compose.sample.page import PATH, create_app
from compose.serving import listening
from schemas.errors import RecordRefused
from sinks.publisher import NewIntent

app = typer.Typer(
    help="A fictional service: its message, and the page behind its link.\n\n"
    "Example: backstop sample serve --email never+1@example.com --phone +447700900012",
    no_args_is_help=True,
)
SOURCE = "sample-page"


@app.callback()
def group() -> None: ...


@app.command()
def serve(
    email: Annotated[str, typer.Option(help="Whom the message goes to.")],
    phone: Annotated[str | None, typer.Option(help="The person's number, E.164; consents to SMS.")] = None,
    policy: Annotated[
        str, typer.Option(help="Policy version with one link and a name.")
    ] = "password_reset__demo:v1",
    deadline: Annotated[str, typer.Option(help="When SMS becomes eligible: 20s, or an instant.")] = "30s",
    expiry: Annotated[str, typer.Option(help="When it is all over: 60s, or an instant.")] = "2m",
    port: Annotated[int, typer.Option(help="Loopback port to listen on.", min=1, max=65_535)] = 8030,
) -> None:
    """Publish one intent as a service would, and serve the page behind its link on loopback until Ctrl-C.

    Looking at the page changes nothing; pressing its button completes the intent, once.

    Example: backstop sample serve --email never+1@example.com --phone +447700900012
    """
    settings, asked = prepared(), publish.now()
    expires = publish.instant(expiry, since=asked, name="expiry")
    challenges, intent_id = Challenges(SystemClock()), f"sample-{random_id()[:12]}"
    made = challenges.make(intent_id, expiry_ms=int(expires.timestamp() * 1000))
    with listening(port) as listener:
        service = publish.publisher(settings)
        link = f"{_origin(settings, policy)}{PATH}?t={made.token}"
        with waiting_for("Kafka"):
            service.publish(
                NewIntent(
                    intent_id=intent_id,
                    tenant="tenant-sample",
                    policy=policy,
                    locale="en",
                    email=email,
                    phone=phone,
                    variables={"name": "Ada", "link": link},
                    challenge_ref=made.ref,
                    requested_at=asked,
                    deadline=publish.instant(deadline, since=asked, name="deadline"),
                    expiry=expires,
                    sms_consent_at=asked - timedelta(days=1) if phone else None,
                )
            )
        origin = f"http://127.0.0.1:{port}"
        page = create_app(
            challenges,
            lambda done: service.complete(done, at=publish.now(), source=SOURCE),
            origin=origin,
        )
        show(f"{intent_id} published, challenge {made.ref}; next: backstop explain {intent_id}")
        show(f"the link of both channels, here: {origin}{PATH}?t={made.token}")
        say("Ctrl-C stops the page")
        uvicorn.Server(
            uvicorn.Config(page, log_config=None, access_log=False, ws="none", server_header=False)
        ).run([listener])


def _origin(settings: configuration.Settings, policy: str) -> str:
    """The origin that this policy's template allows. Raises `RecordRefused`."""
    known = configuration.policies(settings).get(policy)
    if known is None:
        raise RecordRefused(f"{policy} is not known here", code="policy_unknown", pointer="/policy")
    return configuration.templates(settings).find(known.template).link_origins[0]
