"""Key files: one per holder, so that a process is given only what it needs.

    publisher.json    the public sealing key and the fingerprint keys      services, operator look-up, poller
    publisher.TENANT.json   the same with that tenant's own sealing key    services of that tenant
    dispatcher.json   the private sealing keys, fingerprint keys, digest key
    letters.json      the key of dead-letter hashes                        worker, dispatcher, poller, auditor

Files are readable by their owner only, and replaced in one step. A rotation writes the dispatcher's file
first: between the two files a publisher seals under a key the dispatcher has. It must not print a key.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compose.clock import SystemClock, entropy
from compose.replace import Fault, no_fault, replace
from schemas.errors import BackstopError, SettingsRefused
from schemas.fingerprints import FingerprintKeys
from schemas.ids import ID_PATTERN
from schemas.sealed import SealingKey, UnsealingKeys, generate_key

PUBLISHER, DISPATCHER, LETTERS = "publisher.json", "dispatcher.json", "letters.json"
KEY_BYTES = 32

Fields = dict[str, Any]


def tenant_file(tenant: str) -> str:
    """The name of the publisher's file of one tenant. Raises `SettingsRefused` for what is no tenant id."""
    if re.fullmatch(ID_PATTERN, tenant) is None:
        raise SettingsRefused([f"keys: a tenant id is 8 to 64 of a-z, 0-9, _ and -, not {tenant[:64]!a}"])
    return f"publisher.{tenant}.json"


@dataclass(frozen=True, slots=True)
class PublisherKeys:
    sealing: SealingKey
    fingerprints: FingerprintKeys


@dataclass(frozen=True, slots=True)
class DispatcherKeys:
    unsealing: UnsealingKeys
    fingerprints: FingerprintKeys
    digest_key: bytes = field(repr=False)


def generate(folder: Path, *, key_id: str = "s1", fingerprint_id: str = "k1") -> list[Path]:
    """Write the three files. Raises `SettingsRefused` when one exists (it is kept) or cannot be written."""
    there = [folder / name for name in (PUBLISHER, DISPATCHER, LETTERS) if (folder / name).exists()]
    if there:
        refused = SettingsRefused([f"{path} exists; keys are never overwritten" for path in there])
        refused.remedy = "Use these, or write new ones into another folder with --out."
        raise refused
    at_ms = SystemClock().now_ms()
    public, private = generate_key(key_id)
    prints = {
        "current": fingerprint_id,
        "keys": {fingerprint_id: new_secret()},
        "created_ms": {fingerprint_id: at_ms},
    }
    made = {key_id: at_ms}
    content: dict[str, Fields] = {
        LETTERS: {"letter_key": new_secret()},
        DISPATCHER: {
            "unsealing": [private],
            "created_ms": made,
            "shredded": [],
            "shredded_ms": {},
            "fingerprint": prints,
            "digest_key": new_secret(),
        },
        PUBLISHER: {"sealing": public, "created_ms": made, "fingerprint": prints},
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise _unwritable(folder, exc) from None
    for name, fields in content.items():
        write(folder / name, fields)
    return [folder / name for name in (PUBLISHER, DISPATCHER, LETTERS)]


def publisher_keys(folder: Path, tenant: str | None = None) -> PublisherKeys:
    """What a service seals with: the tenant's own file where there is one. Raises `SettingsRefused`."""
    own = None if tenant is None else folder / tenant_file(tenant)
    path = own if own is not None and own.exists() else folder / PUBLISHER
    found = read(path)
    try:
        return PublisherKeys(SealingKey(found["sealing"], tenant=found.get("tenant")), _fingerprints(found))
    except (KeyError, ValueError, TypeError, AttributeError, BackstopError):
        raise _broken(path) from None


def dispatcher_keys(folder: Path) -> DispatcherKeys:
    """Raises `SettingsRefused`."""
    found = read(folder / DISPATCHER)
    try:
        tenants = found.get("tenants", {})
        ring = UnsealingKeys(found["unsealing"], shredded=found["shredded"], tenants=tenants)
        return DispatcherKeys(ring, _fingerprints(found), b64decode(found["digest_key"], validate=True))
    except (KeyError, ValueError, TypeError, AttributeError, BackstopError):
        raise _broken(folder / DISPATCHER) from None


def letter_key(folder: Path) -> bytes:
    """Raises `SettingsRefused`."""
    found = read(folder / LETTERS)
    try:
        return b64decode(found["letter_key"], validate=True)
    except (KeyError, ValueError, TypeError):
        raise _broken(folder / LETTERS) from None


def read(path: Path) -> Fields:
    """The fields of a key file. Raises `SettingsRefused`."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        raise SettingsRefused([f"keys: {path} cannot be read; run `backstop keys generate`"]) from None
    if not isinstance(found, dict):
        raise _broken(path)
    return found


def write(path: Path, fields: Fields, *, wipe: bool = False, fault: Fault = no_fault) -> None:
    """In one step, as `compose.replace` does. Raises `SettingsRefused`."""
    try:
        replace(path, json.dumps(fields, indent=1) + "\n", wipe=wipe, fault=fault)
    except OSError as exc:
        raise _unwritable(path.parent, exc) from None


def new_secret() -> str:
    """A new symmetric key as a file holds it."""
    return b64encode(entropy(KEY_BYTES)).decode()


def _fingerprints(found: Fields) -> FingerprintKeys:
    given = found["fingerprint"]
    keys = {key_id: b64decode(text, validate=True) for key_id, text in given["keys"].items()}
    return FingerprintKeys(given["current"], keys)


def _unwritable(folder: Path, exc: OSError) -> SettingsRefused:
    return SettingsRefused([f"keys: {folder} cannot be written to ({type(exc).__name__})"])


def _broken(path: Path) -> SettingsRefused:
    return SettingsRefused([f"keys: {path} is not a key file of this version"])
