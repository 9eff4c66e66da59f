"""The catalogue of released template versions: files that never change, checked against a manifest.

It must not render (`schemas.templates.render`) or fall back to another version: a version that is not
here is unknown, and the intent is held until a process knows it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from schemas.errors import TemplateBroken, TemplateUnknown, TemplateVariablesInvalid
from schemas.ids import VARIABLE_PATTERN

PARTS = {"subject": "subject.txt.j2", "text": "text.txt.j2", "html": "body.html.j2", "sms": "sms.txt.j2"}
VALUE_CHARS_MAX = 2_048
_NAME = re.compile(VARIABLE_PATTERN[1:-1])


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable of a version: what it may hold."""

    name: str
    required: bool
    is_link: bool
    chars_max: int


@dataclass(frozen=True, slots=True)
class Template:
    """One released version; `sources` is locale → part → Jinja text.

    Whatever the names in GSM-7 are, the SMS fits `sms_segments_max` when its link has at most
    `sms_link_chars` septets (`~`, `[` and `]` have two); anything longer is measured when it comes.
    """

    ref: str
    purpose: str
    sender: str
    action: str
    link_origins: tuple[str, ...]
    sms_segments_max: int
    sms_link_chars: int
    fallback_locale: str
    variables: Mapping[str, Variable]
    sources: Mapping[str, Mapping[str, str]]

    def locale_for(self, wanted: str) -> str:
        """The wanted locale, its language, or the declared fallback."""
        for candidate in (wanted, wanted.partition("-")[0]):
            if candidate in self.sources:
                return candidate
        return self.fallback_locale


def catalogue() -> Traversable:
    return files("schemas.templates").joinpath("catalog")


@cache
def load() -> Mapping[str, Template]:
    """All released versions by reference. Raises `TemplateBroken` when a file differs from the manifest."""
    manifest = json.loads(files("schemas.templates").joinpath("MANIFEST").read_text("utf-8"))
    found = hashes()
    if found != manifest:
        changed = sorted(k for k in found.keys() | manifest.keys() if found.get(k) != manifest.get(k))
        raise TemplateBroken(
            f"released files differ from the manifest: {', '.join(changed)}", code="manifest"
        )
    return {
        f"{name.name}:{version.name}": _read(name.name, version)
        for name in catalogue().iterdir()
        if name.is_dir()
        for version in name.iterdir()
        if version.is_dir()
    }


def get(ref: str) -> Template:
    """Raises `TemplateUnknown`."""
    try:
        return load()[ref]
    except KeyError:
        raise TemplateUnknown(f"template {ref} is not in this catalogue", code="template_unknown") from None


def hashes() -> dict[str, str]:
    """SHA-256 of every file of the catalogue, by path; what the manifest must equal."""
    found: dict[str, str] = {}

    def walk(folder: Traversable, prefix: str) -> None:
        for entry in sorted(folder.iterdir(), key=lambda e: e.name):
            if entry.is_dir():
                walk(entry, f"{prefix}{entry.name}/")
            else:
                found[prefix + entry.name] = sha256(entry.read_bytes()).hexdigest()

    walk(catalogue(), "")
    return found


def names_problem(ref: str, names: Collection[str]) -> str | None:
    """What is wrong with these variable names; None when they fit. Raises `TemplateUnknown`.

    An unknown name is quoted when it is one: a service may have put an address where the name belongs.
    """
    variables = get(ref).variables
    missing = sorted(v.name for v in variables.values() if v.required and v.name not in names)
    unknown = sorted(
        {n if _NAME.fullmatch(n) else "something that is no name" for n in names if n not in variables}
    )
    if missing or unknown:
        return "; ".join(
            f"{what}: {', '.join(which)}"
            for what, which in (("missing", missing), ("unknown", unknown))
            if which
        )
    return None


def check_values(ref: str, values: Mapping[str, str]) -> None:
    """Raises `TemplateVariablesInvalid` naming variables, never values."""
    problem = names_problem(ref, values)
    if problem is None:
        variables = get(ref).variables
        wrong = sorted(
            n
            for n, v in values.items()
            if not isinstance(v, str) or not v.strip() or len(v) > variables[n].chars_max
        )
        problem = f"null, empty or too long: {', '.join(wrong)}" if wrong else None
    if problem is not None:
        raise TemplateVariablesInvalid(f"{ref}: {problem}", code="invalid_variables")


def _read(name: str, version: Traversable) -> Template:
    about = tomllib.loads(version.joinpath("template.toml").read_text("utf-8"))
    schema = json.loads(version.joinpath("variables.schema.json").read_text("utf-8"))
    required = set(schema.get("required", ()))
    variables = {
        key: Variable(
            key,
            key in required,
            rule.get("format") == "uri",
            min(rule.get("maxLength", VALUE_CHARS_MAX), VALUE_CHARS_MAX),
        )
        for key, rule in schema["properties"].items()
    }
    sources = {
        locale.name: {part: locale.joinpath(file).read_text("utf-8") for part, file in PARTS.items()}
        for locale in version.iterdir()
        if locale.is_dir()
    }
    return Template(
        f"{name}:{version.name}",
        about["purpose"],
        about["sender"],
        about["action"],
        tuple(about["link_origins"]),
        about["sms_segments_max"],
        about["sms_link_chars"],
        about["fallback_locale"],
        variables,
        sources,
    )
