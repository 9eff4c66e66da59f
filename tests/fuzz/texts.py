"""Targets that read text: scenario files, settings, templates, destinations, `Retry-After`.

A target takes any bytes and names what became of them; a broken law is an AssertionError, and any other
exception is a reader that came down. It must not know what outcome an entry of the corpus should have.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from compose import settings
from compose.scenario import format as scenarios
from schemas.destinations import EmailAddress, PhoneNumber
from schemas.errors import (
    BackstopError,
    InvalidDestination,
    RecordRefused,
    SettingsRefused,
    TemplateBroken,
    TemplateError,
)
from schemas.ids import INSTANT_MS_MAX, INSTANT_MS_MIN
from schemas.manifest import MANIFEST, manifest, released_files
from schemas.templates.registry import shipped
from schemas.templates.render import RenderInput, digest, facts, render_email, render_sms
from schemas.templates.segments import GSM_BASIC, GSM_EXTENDED, count
from schemas.topics import TopicNames
from sinks.providers import retry_after
from tests.builders import T0
from tests.fuzz.records import says_nothing_private

CUT = b"\n===\n"  # between the parts of a settings case: environment, config file, accounts file, policy
TOPIC_CHARS_MAX = 120  # `schemas.record.Coordinates`
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_LINE_CHARS_MAX = 2_100


def is_printable_refusal(exc: BackstopError) -> None:
    """A person reads it in a terminal: no control character, nothing that cannot be written out."""
    text = f"{exc}\n{exc.remedy}"
    assert not any(_is_obeyed(c) for c in text), "a terminal would obey it"
    text.encode()
    assert max(map(len, text.split("\n"))) <= _LINE_CHARS_MAX
    says_nothing_private(exc)


def _is_obeyed(character: str) -> bool:
    """Control characters and line separators, direction marks, and halves of a pair."""
    category, direction = unicodedata.category(character), unicodedata.bidirectional(character)
    return (category in ("Cc", "Cs", "Zl", "Zp") and character != "\n") or direction in _DIRECTIONS


_DIRECTIONS = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")


def scenario(data: bytes) -> str:
    """A scenario file."""
    try:
        found = scenarios.parse(data.decode("utf-8", "replace"), name="story.toml")
    except RecordRefused as exc:
        is_printable_refusal(exc)
        return f"refused: {exc.code}"
    assert found.played_policy.bounds
    moments = [m.at for m in (*found.completions, *found.cancellations)]
    moments += [c.at for c in found.controls]
    for moment in (*moments, found.until, found.intent.deadline, found.intent.expiry, found.intent.requested):
        assert 0 <= moment < INSTANT_MS_MAX - T0, "an instant that no record can hold"
    return "story"


@contextmanager
def _environment(lines: bytes, also: Mapping[str, str]) -> Iterator[None]:
    """Only these variables begin with the prefix; the rest of the environment stays."""
    before = {n: v for n, v in os.environ.items() if n.upper().startswith(settings.ENV_PREFIX)}
    given = dict(also)
    for line in lines.split(b"\n"):
        name, equals, value = line.partition(b"=")
        if equals and name.upper().startswith(settings.ENV_PREFIX.encode()) and b"\x00" not in line:
            given[os.fsdecode(name)] = os.fsdecode(value)
    for variable in before:
        del os.environ[variable]
    try:
        os.environ.update(given)
        yield
    finally:
        for variable in given:
            del os.environ[variable]
        os.environ.update(before)


def environment(data: bytes) -> str:
    """The environment and the files it names: settings, accounts, policies; or one list of what is wrong."""
    env, *files = data.split(CUT)
    with tempfile.TemporaryDirectory() as folder:
        also = {}
        for name, variable, content in zip(
            ("config.toml", "accounts.toml", "policies"),
            (settings.CONFIG_VARIABLE, "BACKSTOP_ACCOUNTS_FILE", "BACKSTOP_POLICIES_DIR"),
            files,
            strict=False,
        ):
            path = Path(folder, name)
            if name == "policies":
                named = re.search(rb'policy = "([a-z_]+):(v[0-9]+)"', content)
                place = (
                    "/".join(part.decode() for part in named.groups()) if named else "password_reset__x/v1"
                )
                (path / place).parent.mkdir(parents=True)
                (path / f"{place}.toml").write_bytes(content)
                (path / MANIFEST).write_text(manifest(released_files(path)))
            else:
                path.write_bytes(content)
            also[variable] = str(path)
        with _environment(env, also):
            return _settings()


def _settings() -> str:
    try:
        found = settings.load()
        accounts, policies = settings.accounts(found), settings.policies(found)
    except SettingsRefused as exc:
        is_printable_refusal(exc)
        assert exc.problems  # noqa: PT017
        return "refused"
    says_nothing_private(found.postgres)
    for topic in TopicNames(found.prefix).changelogs:
        assert _TOPIC.fullmatch(topic)
        assert len(topic) <= TOPIC_CHARS_MAX, "a topic whose coordinates no record can hold"
    return f"settings, {len(accounts)} accounts, {len(policies)} policies"


def template(data: bytes) -> str:
    """One input of both channels, as JSON: template, locale, expiry_ms, variables."""
    case = _template_case(data)
    if case is None:
        return "not a case"
    ref, given = case
    try:
        email, sms, said = (
            render_email(shipped().find(ref), given),
            render_sms(shipped().find(ref), given),
            facts(shipped().find(ref), given),
        )
    except TemplateBroken:
        raise AssertionError("variables alone broke a released template") from None
    except TemplateError as exc:
        is_printable_refusal(exc)
        return f"refused: {exc.code}"
    links = [
        given.variables[n]
        for n, v in shipped().find(ref).variables.items()
        if v.is_link and n in given.variables
    ]
    assert all(link in part for link in links for part in (email.text, sms.text)), "a link was altered"
    assert tuple(links) == said.links
    assert len(email.subject.splitlines()) == 1
    assert not any(c in email.subject + sms.text for c in "\x00\x1b\u202e")
    is_gsm = all(c in GSM_BASIC or c in GSM_EXTENDED for c in sms.text)
    assert sms.encoding == ("gsm7" if is_gsm else "ucs2")
    assert sms.segments == count(sms.text).count <= shipped().find(ref).sms_segments_max
    assert digest(email, b"k" * 32) == digest(render_email(shipped().find(ref), given), b"k" * 32)
    says_nothing_private(given, email, sms, said)
    return f"both: {sms.encoding}"


def _template_case(data: bytes) -> tuple[str, RenderInput] | None:
    try:
        found = json.loads(data)
        ref, locale, expiry, values = (found[n] for n in ("template", "locale", "expiry_ms", "variables"))
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    texts = isinstance(ref, str) and isinstance(locale, str) and isinstance(values, dict)
    in_range = isinstance(expiry, int) and INSTANT_MS_MIN <= expiry < INSTANT_MS_MAX
    return (ref, RenderInput("int-0001-test", locale, expiry, values)) if texts and in_range else None


def destination(data: bytes) -> str:
    """`email ` or `phone ` and the text of one destination."""
    kind, _, rest = data.partition(b" ")
    text = rest.decode("utf-8", "surrogateescape")
    parse = EmailAddress.parse if kind == b"email" else PhoneNumber.parse
    try:
        found = parse(text)
    except InvalidDestination as exc:
        assert len(text) < 6 or text not in f"{exc} {exc.args}"  # noqa: PT017
        assert exc.__context__ is None or exc.__suppress_context__  # noqa: PT017
        return f"refused: {exc.code}"
    normal = found.reveal()
    assert parse(normal).reveal() == normal, "a normal form that is not its own"
    assert normal.isascii()
    assert normal.isprintable()
    assert not re.search(r"[\s;,<>]", normal), "a second recipient"
    assert normal not in repr(found) + str(found) + f"{found}"
    return f"taken: {found.country}" if isinstance(found, PhoneNumber) else "taken"


def wait(data: bytes) -> str:
    """The value of a `Retry-After` header."""
    told = retry_after.parse(data.decode("latin-1"), now_ms=_ASKED_MS)
    if told.at_ms is None:
        assert told.malformed
        return "malformed"
    assert not told.malformed
    assert _ASKED_MS + retry_after.FLOOR_MS <= told.at_ms <= _ASKED_MS + retry_after.CAP_MS
    return f"in {(told.at_ms - _ASKED_MS) / 1000:g} s"


_ASKED_MS = 1_792_567_620_000  # 2026-10-21T07:27:00Z, as in VECTORS.md
