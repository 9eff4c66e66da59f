"""What is wrong with a template version before it is released: every mistake with its file and its rule.

Static where the source tells, by rendering at the worst where only the result does. Pure: it reads the folder
it is given. It must not change a file or decide whether a version may be released (`compose.releases`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from typing import Annotated, Any, Literal

from jinja2 import Environment, TemplateSyntaxError, meta, nodes
from pydantic import Field, ValidationError

from schemas.errors import TemplateError
from schemas.ids import VARIABLE_PATTERN, Purpose
from schemas.policy import Clause
from schemas.templates.links import LINK_CHARS_MAX, origin_fault
from schemas.templates.registry import PARTS, VALUE_CHARS_MAX, Template, read_version
from schemas.templates.render import TENANT, RenderInput, render_email, render_sms
from schemas.templates.segments import GSM_BASIC, GSM_EXTENDED, count
from schemas.templates.wording import LANGUAGES
from schemas.written import NotToml, toml

NAME_CHARS_MAX = 64
# 23:14 UTC on 30 September 2026: the longest month name in most languages.
SEPTEMBER_MS = 1_790_781_240_000
ABOUT, VARIABLES = "template.toml", "variables.schema.json"
_ALWAYS = ("sender", "expiry")
_LOCALE = re.compile(r"[a-z]{2}(-[A-Z]{2})?")
_UNITS = {"gsm7": "septets", "ucs2": "UTF-16 units"}
_WORD = re.compile(VARIABLE_PATTERN[1:-1])
# A duration in words beside the absolute instant: it would be wrong in one channel or the other.
_DURATION = re.compile(r"\d+\s*(min|hour|heure|hr|h\b|day|jour|second|Minute|Stunde|Tag)", re.IGNORECASE)
_NOT_PLAIN = (
    *(nodes.Call, nodes.Getattr, nodes.Getitem, nodes.For, nodes.Include, nodes.Import, nodes.FromImport),
    *(nodes.Extends, nodes.Block, nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.Assign),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake. `place` is the file inside the version's folder; `rule` a stable token for machines."""

    place: str
    rule: str
    says: str


class About(Clause):
    """`template.toml`. `says`: per locale the words that every part must hold, so that both channels speak of
    the same thing; its keys are the locales the version promises."""

    purpose: Purpose
    sender: Annotated[str, Field(min_length=1, max_length=32)]
    action: Annotated[str, Field(min_length=1, max_length=80)]
    says: Annotated[dict[str, tuple[str, ...]], Field(min_length=1)]
    link_origins: Annotated[tuple[str, ...], Field(min_length=1)]
    sms_segments_max: Annotated[int, Field(ge=1, le=10)]
    sms_link_chars: Annotated[int, Field(ge=1, le=LINK_CHARS_MAX)]
    fallback_locale: str
    sms_encoding: Literal["gsm7", "ucs2"] = "gsm7"


def lint(ref: str, folder: Traversable) -> list[Finding]:
    """Every mistake of the version in this folder; empty when it may be released."""
    about = _about(folder)
    if isinstance(about, list):
        return about
    found = [*_about_fits(about), *_variables(folder)]
    found += _layout(about, folder)
    if found:  # the rest would say the same again, about every part
        return found
    template = read_version((ref, folder))
    for locale, parts in template.sources.items():
        for part, source in parts.items():
            place = f"{locale}/{PARTS[part]}"
            found += [
                Finding(place, rule, says) for rule, says in _part(about, template, locale, part, source)
            ]
    return found or [*_worst(about, template)]


# the two documents


def _about(folder: Traversable) -> About | list[Finding]:
    try:
        return About.model_validate(toml(folder.joinpath(ABOUT).read_text("utf-8")), strict=False)
    except (OSError, UnicodeDecodeError, NotToml) as exc:
        why = str(exc) if isinstance(exc, NotToml) else "not there, or not text"
        return [Finding(ABOUT, "about_unreadable", why)]
    except ValidationError as exc:
        return [
            Finding(ABOUT, "about_field", f"{'.'.join(map(str, e['loc']))}: {e['msg']}")
            for e in exc.errors(include_input=False, include_url=False)
        ]


def _about_fits(about: About) -> Iterator[Finding]:
    for origin in about.link_origins:
        if origin_fault(origin) is not None:
            yield Finding(ABOUT, "link_origin", "an origin is https:// and a host in lower case, no more")
    if about.fallback_locale not in about.says:
        yield Finding(ABOUT, "fallback_locale", "the fallback locale is not one of those in `says`")
    for locale, words in about.says.items():
        if not _LOCALE.fullmatch(locale) or locale.partition("-")[0] not in LANGUAGES:
            yield Finding(
                ABOUT, "locale_unknown", f"no month names for {locale}: add them to wording.LANGUAGES"
            )
        if not words or not all(word.strip() for word in words):
            yield Finding(ABOUT, "says_nothing", f"says.{locale} names no word")


def _variables(folder: Traversable) -> Iterator[Finding]:
    try:
        schema = json.loads(folder.joinpath(VARIABLES).read_text("utf-8"))
        properties: Mapping[str, Any] = schema["properties"]
        required = list(schema.get("required", ()))
        rules = {name: dict(rule) for name, rule in properties.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        yield Finding(VARIABLES, "variables_unreadable", "not there, or not a JSON Schema of an object")
        return
    if schema.get("type") != "object" or schema.get("additionalProperties") is not False:
        yield Finding(VARIABLES, "variables_open", "type is object and additionalProperties false")
    for name in sorted(set(required) - rules.keys()):
        yield Finding(VARIABLES, "required_undeclared", f"{name} is required and not declared")
    for name, rule in rules.items():
        if not _WORD.fullmatch(name) or name in _ALWAYS:
            yield Finding(VARIABLES, "variable_name", f"{name} is no name for a variable")
        if rule.get("type") != "string" or "default" in rule:
            yield Finding(VARIABLES, "null_variable", f"{name} is a string, never null and without a default")
        if set(rule) - {"type", "format", "maxLength", "description", "default"}:
            yield Finding(VARIABLES, "variable_rule", f"{name}: only type, format and maxLength are kept")
        limit = LINK_CHARS_MAX if rule.get("format") == "uri" else NAME_CHARS_MAX
        if not isinstance(rule.get("maxLength"), int) or not 1 <= rule["maxLength"] <= min(
            limit, VALUE_CHARS_MAX
        ):
            yield Finding(VARIABLES, "variable_length", f"{name} needs a maxLength of at most {limit}")
    if TENANT in required:
        yield Finding(VARIABLES, "tenant_required", f"{TENANT} is optional in every version")


def _layout(about: About, folder: Traversable) -> Iterator[Finding]:
    there = {entry.name: entry for entry in folder.iterdir()}
    for name in sorted(there.keys() - about.says.keys() - {ABOUT, VARIABLES}):
        rule = "locale_undeclared" if there[name].is_dir() else "stray_file"
        yield Finding(name, rule, "not named in `says` of template.toml; nobody would read it")
    for locale in about.says:
        if locale not in there or not there[locale].is_dir():
            yield Finding(locale, "locale_missing", "promised in `says` of template.toml and not there")
            continue
        files = {entry.name for entry in there[locale].iterdir()}
        for file in sorted(set(PARTS.values()) - files):
            yield Finding(f"{locale}/{file}", "part_missing", "every locale has all four parts")
        for file in sorted(files - set(PARTS.values())):
            yield Finding(f"{locale}/{file}", "stray_file", "not one of the four parts")


# one part

Said = Iterator[tuple[str, str]]


def _part(about: About, template: Template, locale: str, part: str, source: str) -> Said:
    try:
        tree = Environment(autoescape=True).parse(source)  # only read
    except TemplateSyntaxError as exc:
        yield "syntax", f"line {exc.lineno}: not a template"
        return
    yield from _plain(template, tree)
    yield from _links(template, part, source)
    literal = "".join(n.data for n in tree.find_all(nodes.TemplateData))
    yield from _facts(about, template, locale, part, tree, literal)
    if part == "subject" and "\n" in source.strip("\n"):
        yield "subject_lines", "a subject is one line"
    if part == "sms" and about.sms_encoding == "gsm7":
        odd = sorted({c for c in literal if c not in GSM_BASIC and c not in GSM_EXTENDED})
        if odd:
            shown = " ".join(f"{c!r} (U+{ord(c):04X})" for c in odd)
            yield "not_gsm", f"{shown} would more than halve what fits; or say sms_encoding is ucs2"


def _plain(template: Template, tree: nodes.Template) -> Said:
    """Names and `if … is defined` only (F19): no filter hides a missing value, no call prints one."""
    known = template.variables.keys() | set(_ALWAYS)
    for name in sorted(meta.find_undeclared_variables(tree) - known):
        yield "undefined_variable", f"{name} is not declared in {VARIABLES}"
    for one in tree.find_all(nodes.Filter):
        if one.name in ("default", "d"):
            yield "default", "default() hides a missing value; declare the variable optional and test it"
        elif one.name in ("safe", "escape", "e", "forceescape"):
            yield "escaping", "escaping follows the part, never a filter"
        else:
            yield "filter", f"no filters: {one.name}"
    if list(tree.find_all(nodes.ScopedEvalContextModifier)):
        yield "escaping", "escaping follows the part, never a block"
    for plain in _NOT_PLAIN:
        if list(tree.find_all(plain)):
            yield "not_plain", f"names and `if … is defined` only: {plain.__name__.lower()}"
    for test in tree.find_all(nodes.Test):
        name = getattr(test.node, "name", "")
        if test.name not in ("defined", "undefined"):
            yield "not_plain", f"names and `if … is defined` only: is {test.name}"
        elif name in template.variables and template.variables[name].required:
            yield "required_tested", f"{name} is required: a test would only hide it"


def _links(template: Template, part: str, source: str) -> Said:
    for name, variable in template.variables.items():
        for found in re.finditer(r"\{\{-?\s*" + name + r"\s*-?\}\}", source):
            before, after = source[: found.start()], source[found.end() :]
            if part == "html":
                wanted = ('href="', '"') if variable.is_link else ("<bdi>", "</bdi>")
                if not before.endswith(wanted[0]) or not after.startswith(wanted[1]):
                    where = "in href with double quotes" if variable.is_link else "between <bdi> and </bdi>"
                    yield "html_place", f"{name} stands {where}, nowhere else"
            elif variable.is_link and part == "subject":
                yield "link_in_subject", f"{name}: a subject has no link"
            elif variable.is_link and (before[-1:].strip() or after[:1].strip()):
                yield "link_touched", f"{name} touches other text, which a phone takes for a part of it"


def _facts(
    about: About, template: Template, locale: str, part: str, tree: nodes.Template, literal: str
) -> Said:
    folded = literal.casefold()
    missing = [word for word in about.says[locale] if word.casefold() not in folded]
    if missing:
        yield "purpose_differs", f"does not say {', '.join(missing)} as every part of {locale} has to"
    if part == "subject":
        return
    shown = {n.name for out in tree.find_all(nodes.Output) for n in out.find_all(nodes.Name)}
    links = [n for n, v in template.variables.items() if v.is_link and v.required]
    for name in (*_ALWAYS, *links):
        if name not in shown:
            yield (
                f"{'link' if name in links else name}_missing",
                f"does not show {name}, a fact of both channels",
            )
    if TENANT in template.variables and TENANT not in shown:
        yield "tenant_missing", f"does not show {TENANT}, a fact of both channels when it is given"
    if _DURATION.search(literal):
        yield "expiry_differs", "a duration in words; only {{ expiry }} says until when"


# the whole, at its worst


def _worst(about: About, template: Template) -> Iterator[Finding]:
    for locale in template.sources:
        yield from _renders(template, locale)
        yield from _fits(about, template, locale)


def _renders(template: Template, locale: str) -> Iterator[Finding]:
    """Without what is optional, and with everything."""
    link = f"{template.link_origins[0]}/r?t=1&u=2"
    every = {n: link if v.is_link else "Ada" for n, v in template.variables.items()}
    least = {n: value for n, value in every.items() if template.variables[n].required}
    for values in (least, every):
        given = RenderInput("lint-0001", locale, SEPTEMBER_MS, values)
        for part, render in (("text", render_email), ("sms", render_sms)):
            try:
                render(template, given)
            except TemplateError as exc:
                yield Finding(f"{locale}/{PARTS[part]}", "render", str(exc))


def _fits(about: About, template: Template, locale: str) -> Iterator[Finding]:
    """Names of the widest characters, and a link of the declared length."""
    link = f"{template.link_origins[0]}/".ljust(about.sms_link_chars, "a")
    wide = "[" if about.sms_encoding == "gsm7" else "ж"
    values = {n: link if v.is_link else wide * v.chars_max for n, v in template.variables.items()}
    free = replace(template, sms_segments_max=99)
    try:
        text = render_sms(free, RenderInput("lint-0001", locale, SEPTEMBER_MS, values)).text
    except TemplateError:  # said by `_renders`
        return
    counted = count(text)
    if counted.count > about.sms_segments_max:
        yield Finding(
            f"{locale}/{PARTS['sms']}",
            "over_budget",
            f"at its worst {counted.units} {_UNITS[counted.encoding]} in {counted.count} segments; "
            f"{about.sms_segments_max} allowed (link {about.sms_link_chars}, names at their longest)",
        )
