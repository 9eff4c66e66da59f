"""Both channels of one version from one input: the same action, expiry, link and sender, or nothing.

Escaping goes by channel part, never by file name (case F20). Rendering depends on nothing but its
arguments: the same input gives the same bytes for ever, so a resubmission is byte-identical (case F08).
It must not read a clock and must not put a variable's value into an error.
"""

from __future__ import annotations

import hmac
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from jinja2 import StrictUndefined, TemplateError, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from schemas.errors import TemplateBroken, TemplateVariablesInvalid
from schemas.templates import segments
from schemas.templates.registry import Template, check_values, get

OUTPUT_CHARS_MAX = 65_536  # far above any released part; a runaway loop in a template stops here
NAME_CHARS_MAX = 64
LINK_CHARS_MAX = 1_024

_TO_GSM = str.maketrans(
    {
        "‘": "'", "’": "'", "‚": "'", "“": '"', "”": '"', "„": '"', "–": "-", "—": "-", "…": "...",
        "\u00a0": " ", "\u202f": " ", "\u2009": " ", "\t": " ", "`": "'", "ç": "Ç", "ê": "e", "â": "a",
        "î": "i", "ô": "o", "û": "u", "á": "a", "í": "i", "ó": "o", "ú": "u", "ë": "e", "ï": "i",
    }
)  # fmt: skip
_URL_LIKE = re.compile(r"(?i)(?:[a-z][a-z0-9+.-]*:|//|www\.)\S*|\S+\.[a-z]{2,}(?:/\S*)?")
_MONTHS = {
    "en": (
        *("January", "February", "March", "April", "May", "June"),
        *("July", "August", "September", "October", "November", "December"),
    ),
    "fr": (
        *("janvier", "février", "mars", "avril", "mai", "juin"),
        *("juillet", "août", "septembre", "octobre", "novembre", "décembre"),
    ),
}


@dataclass(frozen=True, slots=True)
class RenderInput:
    """The one input of both channels. `variables` hold the link and the names."""

    intent_id: str
    locale: str
    expiry_ms: int
    variables: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class RenderedEmail:
    subject: str = field(repr=False)
    text: str = field(repr=False)
    html: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RenderedSms:
    text: str = field(repr=False)
    encoding: str
    segments: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What both channels must say alike."""

    action: str
    sender: str
    expiry: str
    links: tuple[str, ...] = field(repr=False)


def facts(ref: str, given: RenderInput) -> Facts:
    """The facts of a message, channel-independent. Raises as `render_email` does."""
    template = get(ref)
    check_values(ref, given.variables)
    links = tuple(
        _checked_link(template, name, given.variables[name])
        for name, variable in template.variables.items()
        if variable.is_link and name in given.variables
    )
    return Facts(
        template.action, template.sender, expiry_text(given.expiry_ms, template, given.locale), links
    )


def render_email(ref: str, given: RenderInput) -> RenderedEmail:
    """Subject, text and HTML. Raises `TemplateUnknown`, `TemplateVariablesInvalid`, `TemplateBroken`."""
    template, said = get(ref), facts(ref, given)
    values = _values(template, given, said, for_sms=False)
    subject = _render(template, given.locale, "subject", values).strip()
    if "\n" in subject or "\r" in subject or not subject:
        raise TemplateBroken(f"{ref}: the subject is not one line", code="subject")
    return RenderedEmail(
        subject,
        _render(template, given.locale, "text", values),
        _render(template, given.locale, "html", values),
    )


def render_sms(ref: str, given: RenderInput) -> RenderedSms:
    """The SMS inside its segment budget. Raises as `render_email`, and when the budget is exceeded."""
    template, said = get(ref), facts(ref, given)
    text = _render(template, given.locale, "sms", _values(template, given, said, for_sms=True)).strip()
    for link in said.links:
        if link not in text:
            raise TemplateBroken(f"{ref}: the SMS does not carry the link as it is", code="link_lost")
    counted = segments.count(text)
    if counted.count > template.sms_segments_max:
        raise TemplateVariablesInvalid(
            f"{ref}: {counted.count} segments, {template.sms_segments_max} allowed", code="over_budget"
        )
    return RenderedSms(text, counted.encoding, counted.count)


def digest(rendered: RenderedEmail | RenderedSms, key: bytes) -> str:
    """Keyed hash of the content: equal bytes, equal digest, and nobody can guess the content from it."""
    parts = (
        (rendered.subject, rendered.text, rendered.html)
        if isinstance(rendered, RenderedEmail)
        else (rendered.text,)
    )
    body = b"\x00".join(p.encode() for p in parts)
    return hmac.new(key, body, sha256).hexdigest()


def expiry_text(expiry_ms: int, template: Template, locale: str) -> str:
    """An absolute instant with its zone, such as `14:13 UTC on 21 September 2026`.

    The recipient's zone is not known, so it is UTC, and said to be (case F56).
    """
    at = datetime.fromtimestamp(expiry_ms / 1000, UTC)
    language = template.locale_for(locale).partition("-")[0]
    month = _MONTHS.get(language, _MONTHS["en"])[at.month - 1]
    joiner = {"fr": "le"}.get(language, "on")
    return f"{at:%H:%M} UTC {joiner} {at.day} {month} {at.year}"


def to_gsm(text: str) -> str:
    """Typographic characters as their GSM-7 neighbours; what has none stays and costs UCS-2."""
    return text.translate(_TO_GSM)


def _values(template: Template, given: RenderInput, said: Facts, *, for_sms: bool) -> dict[str, str]:
    values = {"expiry": to_gsm(said.expiry) if for_sms else said.expiry, "sender": said.sender}
    for name, value in given.variables.items():
        values[name] = value if template.variables[name].is_link else _plain(value, for_sms=for_sms)
    return values


def _plain(value: str, *, for_sms: bool) -> str:
    """A name as text: no control or bidi characters, capped; in an SMS nothing that a phone makes a link."""
    kept = "".join(c for c in value if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    kept = " ".join(kept.split())[:NAME_CHARS_MAX]
    if for_sms:
        kept = to_gsm(" ".join(_URL_LIKE.sub("", kept).split()))
    return kept


def _checked_link(template: Template, name: str, link: str) -> str:
    """The link as it is, if it leads to an origin the version allows (case F40)."""
    odd = (
        len(link) > LINK_CHARS_MAX
        or not link.isascii()
        or any(c <= " " or c in '\\"<>^`{|}\x7f' for c in link)
    )
    try:
        parts = urlsplit(link)
        port = parts.port
    except ValueError:
        odd, parts, port = True, urlsplit(""), None
    origin = f"{parts.scheme}://{parts.hostname}" + (f":{port}" if port is not None else "")
    userinfo = parts.username is not None or parts.password is not None
    if odd or userinfo or parts.scheme != "https" or origin not in template.link_origins:
        raise TemplateVariablesInvalid(
            f"{template.ref}: {name} does not lead to an allowed https origin", code="link_origin"
        )
    return link


def _strict(value: Any) -> Any:
    if value is None or isinstance(value, Undefined):
        raise TemplateVariablesInvalid("a null or missing value was rendered", code="null_value")
    if not isinstance(value, str | int):
        raise TemplateVariablesInvalid("something that is not text was rendered", code="not_text")
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
def _compiled(ref: str, locale: str, part: str) -> Any:
    template = get(ref)
    return _environment(escape=part == "html").from_string(template.sources[locale][part])


def _render(template: Template, locale: str, part: str, values: Mapping[str, str]) -> str:
    try:
        found: str = _compiled(template.ref, template.locale_for(locale), part).render(values)
    except TemplateError as exc:
        raise TemplateBroken(f"{template.ref}: {part}: {type(exc).__name__}", code="render") from None
    if len(found) > OUTPUT_CHARS_MAX:
        raise TemplateBroken(f"{template.ref}: {part} is longer than {OUTPUT_CHARS_MAX}", code="too_long")
    return found
