"""`backstop keys`: make, rotate, list and destroy the keys of a deployment. A key is never printed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from compose import keyring
from compose import keys as files
from compose import settings as configuration
from compose.clock import SystemClock
from compose.output import say, show, show_json
from compose.typed import is_confirmed

app = typer.Typer(
    help="Make, rotate, list and destroy keys.\n\nExample: backstop keys generate --out keys",
    no_args_is_help=True,
)

Folder = Annotated[Path | None, typer.Option(help="Folder with the key files; BACKSTOP_KEYS by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document for machines.")]

DISPATCHERS_FIRST = (
    "next: give every dispatcher its dispatcher.json and restart it, and only then give services their "
    "publisher.json and restart them"
)
WHAT_BECOMES_OF = (
    "Every intent sealed under {key_id} that has not ended ends with reason key_shredded when its next order "
    "reaches a dispatcher with the new file: nothing more is sent for it, by e-mail or SMS. What was sent "
    "stays sent, and `backstop explain` goes on telling each of them. This cannot be undone."
)
COPIES = (
    "next: give every dispatcher the new dispatcher.json and restart it; destroy the copies of the old one "
    "on other machines, in snapshots and in backups: a copy opens what was sealed under {key_id}"
)


@app.callback()
def _group() -> None:
    """Make, rotate, list and destroy keys."""


@app.command()
def generate(
    out: Annotated[Path, typer.Option(help="Folder for the key files.")] = Path("keys"),
    key_id: Annotated[str, typer.Option(help="Id of the sealing key, shown in every envelope.")] = "s1",
    fingerprint_id: Annotated[str, typer.Option(help="Id of the fingerprint key.")] = "k1",
    as_json: AsJson = False,
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


@app.command()
def rotate(
    folder: Folder = None,
    fingerprint: Annotated[
        bool, typer.Option("--fingerprint", help="Rotate the fingerprint key instead of the sealing key.")
    ] = False,
    tenant: Annotated[
        str | None, typer.Option(help="A sealing key of this tenant's own, in publisher.TENANT.json.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a new sealing key: publisher.json seals under it, dispatcher.json keeps the old ones to open with.

    With --fingerprint the fingerprint key instead; old ones are kept, so that suppressions go on matching.
    With --tenant the tenant's own sealing key: it opens no other tenant's intents, and can be shredded alone.

    Example: backstop keys rotate --folder keys
    """
    place, at_ms = _in(folder), SystemClock().now_ms()
    if fingerprint and tenant is not None:
        raise keyring.KeyRefused(
            "fingerprint keys are everybody's: a suppression holds for every tenant",
            code="key",
            remedy="Give --tenant or --fingerprint, not both.",
        )
    if fingerprint:
        kind, made = keyring.FINGERPRINT, keyring.rotate_fingerprint(place, at_ms=at_ms)
    else:
        kind, made = keyring.SEALING, keyring.rotate(place, at_ms=at_ms, tenant=tenant)
    if as_json:
        show_json({"kind": kind, "current": made, "tenant": tenant})
        return
    whose = "" if tenant is None else f" of {tenant}"
    show(f"{kind} key {made}{whose} is current; the ones before it are kept")
    say(DISPATCHERS_FIRST)
    if tenant is not None:
        say(f"services of {tenant} get {files.tenant_file(tenant)} instead of {files.PUBLISHER}")


@app.command(name="list")
def list_keys(folder: Folder = None, as_json: AsJson = False) -> None:
    """Show kind, id, age and state of every key; never a key.

    Example: backstop keys list --folder keys
    """
    found, now_ms = keyring.keys_in(_in(folder)), SystemClock().now_ms()
    if as_json:
        show_json({"keys": [_as_dict(key, now_ms) for key in found]})
        return
    show(f"{'kind':<12} {'id':<17} {'state':<9} {'created':<25} {'tenant':<13} age")
    for key in found:
        created = "not known" if key.created_ms is None else _utc(key.created_ms)
        ended = "" if key.shredded_ms is None else f", shredded {_utc(key.shredded_ms)}"
        age = "not known" if key.created_ms is None else _age(now_ms - key.created_ms)
        whose = key.tenant or "every"
        show(f"{key.kind:<12} {key.key_id:<17} {key.state:<9} {created:<25} {whose:<13} {age}{ended}")


@app.command()
def shred(
    key_id: Annotated[str, typer.Argument(help="Id of the sealing key.")],
    folder: Folder = None,
    force: Annotated[bool, typer.Option("--force", help="Also the current key.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Destroy the private half of a sealing key: what was sealed under it can never be opened again.

    Live intents under it end with reason key_shredded, unsent, once the dispatchers have the new file.

    Example: backstop keys shred s1 --folder keys
    """
    place = _in(folder)
    keyring.check_shred(place, key_id, force=force)
    say(WHAT_BECOMES_OF.format(key_id=key_id))
    if not yes and not is_confirmed(key_id, "to destroy it"):
        raise keyring.KeyRefused(
            "not confirmed: nothing was changed", code="key", remedy="Type the id of the key, or give --yes."
        )
    at_ms = SystemClock().now_ms()
    left = keyring.shred(place, key_id, at_ms=at_ms, force=force)
    if as_json:
        show_json({"shredded": key_id, "shredded_at": _utc(at_ms), "left": left})
        return
    show(f"{key_id} was destroyed at {_utc(at_ms)}; left to open with: {', '.join(left) or 'none'}")
    say(COPIES.format(key_id=key_id))


def _in(folder: Path | None) -> Path:
    return configuration.load().keys if folder is None else folder


def _as_dict(key: keyring.Key, now_ms: int) -> dict[str, object]:
    return {
        "kind": key.kind,
        "id": key.key_id,
        "tenant": key.tenant,
        "state": key.state,
        "created_at": None if key.created_ms is None else _utc(key.created_ms),
        "age_s": None if key.created_ms is None else (now_ms - key.created_ms) // 1000,
        "shredded_at": None if key.shredded_ms is None else _utc(key.shredded_ms),
    }


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")


def _age(ms: int) -> str:
    minutes = max(0, ms) // 60_000
    return (
        f"{minutes // 1440} d {minutes // 60 % 24} h"
        if minutes >= 1440
        else f"{minutes // 60} h {minutes % 60} min"
    )
