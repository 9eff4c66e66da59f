"""Catalogues of released template versions: files that never change, checked against a manifest.

It must not render (`schemas.templates.render`) or fall back to another version: a version that is not
here is unknown, and the intent is held until a process knows it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from schemas.errors import TemplateBroken, TemplateUnknown, TemplateVariablesInvalid
from schemas.ids import VARIABLE_PATTERN
from schemas.manifest import check

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


class Catalogue(Mapping[str, Template]):
    """Released versions by reference (`password_reset:v1`)."""

    def __init__(self, templates: Iterable[Template]) -> None:
        self._by_ref = {template.ref: template for template in templates}

    def find(self, ref: str) -> Template:
        """Raises `TemplateUnknown`."""
        try:
            return self._by_ref[ref]
        except KeyError:
            raise TemplateUnknown(
                f"template {ref} is not in this catalogue", code="template_unknown"
            ) from None

    def beside(self, other: Catalogue) -> Catalogue:
        """Both. Raises `TemplateBroken` when they have a reference in common."""
        twice = sorted(self.keys() & other.keys())
        if twice:
            raise TemplateBroken(f"two catalogues have {', '.join(twice)}", code="duplicate")
        return Catalogue([*self.values(), *other.values()])

    def __getitem__(self, ref: str) -> Template:
        return self._by_ref[ref]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_ref)

    def __len__(self) -> int:
        return len(self._by_ref)


@cache
def shipped() -> Catalogue:
    """The versions that ship with this package. Raises as `read`."""
    return read(files("schemas.templates").joinpath("catalog"))


def read(root: Traversable) -> Catalogue:
    """The catalogue in a folder with `<name>/v<n>/` and `MANIFEST`. Raises `TemplateBroken` when a file
    differs from the manifest, which says what was released."""
    wrong = check(root)
    if wrong is not None:
        raise TemplateBroken(f"templates: {wrong}", code="manifest")
    return Catalogue(read_version(named) for named in versions(root))


def versions(root: Traversable) -> Iterator[tuple[str, Traversable]]:
    """(reference, folder) of every version, released or not, in order."""
    for name in sorted(_folders(root), key=lambda f: f.name):
        for version in sorted(_folders(name), key=lambda f: (len(f.name), f.name)):
            yield f"{name.name}:{version.name}", version


def _folders(where: Traversable) -> Iterator[Traversable]:
    yield from (e for e in where.iterdir() if e.is_dir() and not e.name.startswith(("__", ".")))


def names_problem(template: Template, names: Collection[str]) -> str | None:
    """What is wrong with these variable names; None when they fit.

    An unknown name is quoted when it is one: a service may have put an address where the name belongs.
    """
    variables = template.variables
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


def check_values(template: Template, values: Mapping[str, str]) -> None:
    """Raises `TemplateVariablesInvalid` naming variables, never values."""
    problem = names_problem(template, values)
    if problem is None:
        variables = template.variables
        wrong = sorted(
            n
            for n, v in values.items()
            if not isinstance(v, str) or not v.strip() or len(v) > variables[n].chars_max
        )
        problem = f"null, empty or too long: {', '.join(wrong)}" if wrong else None
    if problem is not None:
        raise TemplateVariablesInvalid(f"{template.ref}: {problem}", code="invalid_variables")


def read_version(named: tuple[str, Traversable]) -> Template:
    """One version from its folder, as `versions` names it, released or not."""
    ref, version = named
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
        ref,
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
