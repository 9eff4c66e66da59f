"""Both channels of one version from one input: the same action, expiry, tenant, link and sender, or nothing.

Escaping goes by channel part, never by file name (case F20). Rendering depends on nothing but its
arguments: the same input gives the same bytes for ever, so a resubmission is byte-identical (case F08).
It must not read a clock and must not put a variable's value into an error.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any

from jinja2 import StrictUndefined, TemplateError, Undefined
from jinja2 import Template as Compiled
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import escape

from schemas.errors import TemplateBroken, TemplateVariablesInvalid
from schemas.templates import segments
from schemas.templates.links import link_fault
from schemas.templates.registry import Template, check_values
from schemas.templates.wording import expiry_text, name_text, sms_name_text, to_gsm

OUTPUT_CHARS_MAX = 65_536  # far above any released part; a runaway loop in a template stops here
TENANT = "tenant_name"  # the variable that says on whose behalf; a fact when it is given


@dataclass(frozen=True, slots=True)
class RenderInput:
    """The one input of both channels. `variables` hold the link and the names."""

    intent_id: str
    locale: str
    expiry_ms: int
    variables: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class RenderedEmail:
    """`locale` is the one that was used: the wanted one, its language, or the version's fallback."""

    subject: str = field(repr=False)
    text: str = field(repr=False)
    html: str = field(repr=False)
    locale: str


@dataclass(frozen=True, slots=True)
class RenderedSms:
    """`encoding` is `gsm7` or `ucs2`, `segments` what is billed; `locale` as in `RenderedEmail`."""

    text: str = field(repr=False)
    encoding: str
    segments: int
    locale: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What both channels must say alike; `tenant` is None when the service gave none."""

    action: str
    sender: str
    tenant: str | None = field(repr=False)
    expiry: str
    links: tuple[str, ...] = field(repr=False)
    locale: str


def facts(template: Template, given: RenderInput) -> Facts:
    """The facts of a message, channel-independent. Raises as `render_email` does."""
    check_values(template, given.variables)
    links = {
        n: given.variables[n] for n, v in template.variables.items() if v.is_link and n in given.variables
    }
    for name, link in links.items():
        _check_link(template, name, link)
    tenant = given.variables.get(TENANT)
    locale = template.locale_for(given.locale)
    return Facts(
        action=template.action,
        sender=template.sender,
        tenant=None if tenant is None else name_text(tenant),
        expiry=expiry_text(given.expiry_ms, locale.partition("-")[0]),
        links=tuple(links.values()),
        locale=locale,
    )


def render_email(template: Template, given: RenderInput) -> RenderedEmail:
    """Subject, text and HTML. Raises `TemplateVariablesInvalid`, `TemplateBroken`."""
    said = facts(template, given)
    values = _values(template, given, said, for_sms=False)
    subject = _render(template, said.locale, "subject", values).strip()
    if len(subject.splitlines()) != 1:
        raise TemplateBroken(f"{template.ref}: the subject is not one line", code="subject")
    text = _render(template, said.locale, "text", values)
    html = _render(template, said.locale, "html", values)
    wanted = [said.sender, said.expiry, *said.links, *([said.tenant] if said.tenant else ())]
    _check_says(template, "text", text, wanted)
    _check_says(template, "html", html, [str(escape(fact)) for fact in wanted])
    return RenderedEmail(subject, text, html, said.locale)


def render_sms(template: Template, given: RenderInput) -> RenderedSms:
    """The SMS inside its segment budget.

    Raises as `render_email`, and `TemplateVariablesInvalid` with code `over_budget`.
    """
    said = facts(template, given)
    values = _values(template, given, said, for_sms=True)
    text = _render(template, said.locale, "sms", values).strip()
    _check_says(
        template,
        "sms",
        text,
        [said.sender, to_gsm(said.expiry), *said.links, *([values[TENANT]] if said.tenant else ())],
    )
    counted = segments.count(text)
    if counted.count > template.sms_segments_max:
        raise TemplateVariablesInvalid(
            f"{template.ref}: {counted.count} segments, {template.sms_segments_max} allowed",
            code="over_budget",
        )
    return RenderedSms(text, counted.encoding, counted.count, said.locale)


def digest(rendered: RenderedEmail | RenderedSms, key: bytes) -> str:
    """Keyed hash of the content: equal bytes, equal digest, and nobody can guess the content from it."""
    parts = (
        (rendered.subject, rendered.text, rendered.html)
        if isinstance(rendered, RenderedEmail)
        else (rendered.text,)
    )
    body = b"\x00".join(p.encode() for p in parts)
    return hmac.new(key, body, sha256).hexdigest()


def _values(template: Template, given: RenderInput, said: Facts, *, for_sms: bool) -> dict[str, str]:
    values = {"expiry": to_gsm(said.expiry) if for_sms else said.expiry, "sender": said.sender}
    for name, value in given.variables.items():
        variable = template.variables[name]
        if variable.is_link:
            values[name] = value
            continue
        values[name] = sms_name_text(value, chars_max=variable.chars_max) if for_sms else name_text(value)
        if not values[name]:
            raise TemplateVariablesInvalid(
                f"{template.ref}: nothing in {name} can be printed", code="invalid_variables"
            )
    return values


def _check_link(template: Template, name: str, link: str) -> None:
    fault = link_fault(link, template.link_origins)
    if fault is not None:
        raise TemplateVariablesInvalid(
            f"{template.ref}: {name} is refused as {fault.value}: {fault.sentence}", code="link_origin"
        )


def _check_says(template: Template, part: str, text: str, wanted: list[str]) -> None:
    """A part that lost a fact is our mistake, whatever the variables were."""
    if any(fact not in text for fact in wanted):
        raise TemplateBroken(f"{template.ref}: {part} does not say every fact as it is", code="fact_lost")


def _strict(value: Any) -> Any:
    """Jinja's `finalize`. The variables are text by now, so anything else is the template's mistake (F19)."""
    if value is None or isinstance(value, Undefined):
        raise TemplateBroken("a null or missing value was rendered", code="null_value")
    if not isinstance(value, str):
        raise TemplateBroken("something that is not text was rendered", code="not_text")
    return value


@cache
def _environment(*, escape: bool) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=escape,
        finalize=_strict,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.clear()
    return environment


@cache
def _compiled(source: str, *, escape: bool) -> Compiled:
    return _environment(escape=escape).from_string(source)


def _render(template: Template, locale: str, part: str, values: Mapping[str, str]) -> str:
    try:
        found = _compiled(template.sources[locale][part], escape=part == "html").render(values)
    except TemplateBroken as exc:
        raise TemplateBroken(f"{template.ref}: {part}: {exc}", code=exc.code) from None
    except TemplateError as exc:
        raise TemplateBroken(f"{template.ref}: {part}: {type(exc).__name__}", code="render") from None
    if len(found) > OUTPUT_CHARS_MAX:
        raise TemplateBroken(f"{template.ref}: {part} is longer than {OUTPUT_CHARS_MAX}", code="too_long")
    return found
