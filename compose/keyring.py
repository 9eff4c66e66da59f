"""Changing keys that are in use: rotate, list, shred.

Whoever changes the files holds the folder's lock from reading to writing. A process reads its file once,
when it starts: a dispatcher knows of a change after its restart. It must not print a key, and what it
destroys it destroys here only: copies on other machines and in backups are the operator's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compose.keys import (
    DISPATCHER,
    PUBLISHER,
    Fields,
    dispatcher_keys,
    new_secret,
    publisher_keys,
    read,
    tenant_file,
    write,
)
from compose.replace import Fault, alone_in, no_fault
from schemas.errors import BackstopError, SettingsRefused
from schemas.sealed import generate_key

SEALING, FINGERPRINT = "sealing", "fingerprint"
CURRENT, KEPT, SHREDDED = "current", "kept", "shredded"


class KeyRefused(BackstopError):
    """This key cannot be destroyed, or not like this. Nothing was changed."""

    remedy = "List the keys with `backstop keys list`."


@dataclass(frozen=True, slots=True)
class Key:
    """What may be said of a key. `created_ms` is None where its file does not know."""

    kind: str
    key_id: str
    state: str  # current (new ones are made under it), kept (opens or matches what exists), shredded
    created_ms: int | None
    shredded_ms: int | None = None
    tenant: str | None = None  # whose alone it is


def keys_in(folder: Path) -> list[Key]:
    """Every key of the files that are here, the oldest first. Raises `SettingsRefused`."""
    dispatcher = _dispatchers(folder)
    publishers = {name: _publishers(folder, name) for name in _publisher_files(folder)}
    if not publishers and dispatcher is None:
        raise SettingsRefused([f"keys: {folder} holds no key file; run `backstop keys generate`"])
    shared = publishers.get(PUBLISHER) or next(iter(publishers.values()), None)
    known = dispatcher or shared or {}
    return [*_sealing(list(publishers.values()), dispatcher), *_prints(known, shared)]


def rotate(folder: Path, *, at_ms: int, tenant: str | None = None, fault: Fault = no_fault) -> str:
    """The id of a new sealing key: publishers seal under it, the dispatcher keeps the old ones.

    With `tenant` it is that tenant's own, in a file of its own: nobody else's intents open with it, and
    shredding it leaves everybody else's alone. Raises `SettingsRefused`.
    """
    name = PUBLISHER if tenant is None else tenant_file(tenant)
    with _changing(folder) as (publishers, dispatcher):
        key_id = _next("s", [*(k["kid"] for k in dispatcher["unsealing"]), *dispatcher["shredded"]])
        public, private = generate_key(key_id)
        dispatcher["unsealing"].append(private)
        publisher = publishers.get(name) or {
            "tenant": tenant,
            "fingerprint": publishers[PUBLISHER]["fingerprint"],
        }
        publisher["sealing"] = public
        for fields in (dispatcher, publisher):
            fields["created_ms"] = fields.get("created_ms", {}) | {key_id: at_ms}
        if tenant is not None:
            dispatcher["tenants"] = dispatcher.get("tenants", {}) | {key_id: tenant}
        _write_all(folder, {name: publisher}, dispatcher, fault)
    return key_id


def rotate_fingerprint(folder: Path, *, at_ms: int, fault: Fault = no_fault) -> str:
    """The id of a new fingerprint key; old ones are kept to match what exists. Raises `SettingsRefused`."""
    with _changing(folder) as (publishers, dispatcher):
        files = [dispatcher, *publishers.values()]
        key_id = _next("k", [k for fields in files for k in fields["fingerprint"]["keys"]])
        secret = new_secret()
        for fields in files:
            prints = fields["fingerprint"]
            prints["keys"][key_id], prints["current"] = secret, key_id
            prints["created_ms"] = prints.get("created_ms", {}) | {key_id: at_ms}
        _write_all(folder, publishers, dispatcher, fault)
    return key_id


def check_shred(folder: Path, key_id: str, *, force: bool) -> None:
    """Raises `KeyRefused` where `shred` would, or `SettingsRefused`."""
    found = {k.key_id: k for k in keys_in(folder) if k.kind == SEALING}
    dispatcher_keys(folder)
    if key_id not in found:
        raise KeyRefused(f"there is no sealing key of that id; known: {', '.join(found)}", code="key")
    if found[key_id].state == SHREDDED:
        raise KeyRefused(f"{key_id} was destroyed already", code="key")
    if found[key_id].state == CURRENT and not force:
        raise KeyRefused(
            f"{key_id} is the current key: every intent published from now on would end unsent",
            code="key",
            remedy="Run `backstop keys rotate` first; --force destroys it all the same.",
        )


def shred(
    folder: Path, key_id: str, *, at_ms: int, force: bool = False, fault: Fault = no_fault
) -> list[str]:
    """Destroy the private half of a sealing key; the ids that are left.

    The file is replaced in one step and the bytes of the old one are overwritten. Raises `KeyRefused` or
    `SettingsRefused`.
    """
    with _locked(folder):
        check_shred(folder, key_id, force=force)
        fields = read(folder / DISPATCHER)
        fields["unsealing"] = [k for k in fields["unsealing"] if k["kid"] != key_id]
        fields["shredded"] = [*fields["shredded"], key_id]
        fields["shredded_ms"] = fields.get("shredded_ms", {}) | {key_id: at_ms}
        write(folder / DISPATCHER, fields, wipe=True, fault=fault)
    return [k["kid"] for k in fields["unsealing"]]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    if not folder.is_dir():
        raise SettingsRefused([f"keys: {folder} is not a folder; run `backstop keys generate`"])
    with alone_in(folder):
        yield


@contextmanager
def _changing(folder: Path) -> Iterator[tuple[dict[str, Fields], Fields]]:
    """The publishers' files by name and the dispatcher's, all whole, under the lock."""
    with _locked(folder):
        publisher_keys(folder)
        dispatcher_keys(folder)
        yield (
            {name: _publishers(folder, name) for name in _publisher_files(folder)},
            read(folder / DISPATCHER),
        )


def _write_all(folder: Path, publishers: dict[str, Fields], dispatcher: Fields, fault: Fault) -> None:
    """The dispatcher's first: a publisher must never use a key that no dispatcher has."""
    write(folder / DISPATCHER, dispatcher, fault=lambda point: fault(f"dispatcher_{point}"))
    for name, fields in publishers.items():
        write(folder / name, fields, fault=lambda point: fault(f"publisher_{point}"))


def _publisher_files(folder: Path) -> list[str]:
    """The shared one first."""
    own = sorted(p.name for p in folder.glob("publisher.*.json") if p.name != PUBLISHER)
    return [*([PUBLISHER] if (folder / PUBLISHER).exists() else []), *own]


def _publishers(folder: Path, name: str) -> Fields:
    """The fields of a publisher's file, checked as the service that holds it would."""
    publisher_keys(folder, None if name == PUBLISHER else name.split(".")[1])
    return read(folder / name)


def _dispatchers(folder: Path) -> Fields | None:
    if not (folder / DISPATCHER).exists():
        return None
    dispatcher_keys(folder)
    return read(folder / DISPATCHER)


def _sealing(publishers: list[Fields], dispatcher: Fields | None) -> Iterator[Key]:
    held: Fields = dispatcher or {"unsealing": [], "shredded": []}
    tenants = held.get("tenants", {}) | {
        p["sealing"]["kid"]: p["tenant"] for p in publishers if p.get("tenant")
    }
    ids = list(dict.fromkeys([*held["shredded"], *(k["kid"] for k in held["unsealing"])]))
    newest = {tenants.get(key_id): key_id for key_id in ids}  # current, where a publisher's file is not here
    newest |= {p.get("tenant"): p["sealing"]["kid"] for p in publishers}
    created = held.get("created_ms", {})
    for fields in publishers:
        created = created | fields.get("created_ms", {})
    for key_id in dict.fromkeys([*ids, *newest.values()]):
        state = CURRENT if key_id in newest.values() else KEPT
        ended = None
        if key_id in held["shredded"]:
            state, ended = SHREDDED, held.get("shredded_ms", {}).get(key_id)
        yield Key(SEALING, key_id, state, created.get(key_id), ended, tenants.get(key_id))


def _prints(known: Fields, publisher: Fields | None) -> Iterator[Key]:
    prints = known["fingerprint"]
    current = (publisher or known)["fingerprint"]["current"]
    for key_id in prints["keys"]:
        state = CURRENT if key_id == current else KEPT
        yield Key(FINGERPRINT, key_id, state, prints.get("created_ms", {}).get(key_id))


def _next(letter: str, taken: Iterable[str]) -> str:
    """The letter and the lowest number above every one that was ever used: an id never comes back."""
    numbers = [
        int(found[1]) for key_id in taken if (found := re.fullmatch(rf"{letter}([0-9]{{1,9}})", key_id))
    ]
    return f"{letter}{max(numbers, default=0) + 1}"
