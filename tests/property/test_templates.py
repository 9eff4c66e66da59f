"""Laws of rendering: both channels say the same facts, an SMS fits, a stranger's name is only a name."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import TemplateVariablesInvalid
from schemas.ids import INSTANT_MS_MAX, INSTANT_MS_MIN
from schemas.templates.registry import Template, shipped
from schemas.templates.render import RenderInput, facts, render_email, render_sms
from schemas.templates.wording import name_text, sms_name_text, to_gsm

REFS = st.sampled_from(sorted(shipped()))
LOCALES = st.sampled_from(["en", "fr", "fr-CA", "de", "ar"])
EXPIRIES = st.integers(INSTANT_MS_MIN, INSTANT_MS_MAX - 1)
GSM_NAMES = st.text("abcXYZ éàñ€[]{}~ß'", min_size=1, max_size=64)
ANY_NAMES = st.text(min_size=1, max_size=64) | st.text(
    "a.:/@<>&\"'{}%\u202e\n\u2019ж", min_size=1, max_size=64
)
ORIGIN = "https://app.example"


@st.composite
def inputs(
    draw: st.DrawFn, template: Template, names: st.SearchStrategy[str], link_chars_max: int
) -> RenderInput:
    """What a service may give this version: every required variable, any of the others."""
    tails = st.text("ab09/?&=#-_.", max_size=link_chars_max - len(ORIGIN) - 4)
    values = {}
    for name, variable in template.variables.items():
        if variable.required or draw(st.booleans()):
            fitting = names.map(lambda n, v=variable: n[: v.chars_max])  # type: ignore[misc]
            values[name] = f"{ORIGIN}/r?{draw(tails)}x" if variable.is_link else draw(fitting)
    return RenderInput("int-0001-test", draw(LOCALES), draw(EXPIRIES), values)


@given(st.data(), REFS)
def test_both_channels_say_the_same_facts_or_the_input_is_refused(data: st.DataObject, ref: str) -> None:
    one = data.draw(inputs(shipped()[ref], ANY_NAMES, 300))
    try:
        email, sms, said = (
            render_email(shipped()[ref], one),
            render_sms(shipped()[ref], one),
            facts(shipped()[ref], one),
        )
    except TemplateVariablesInvalid as refused:
        assert refused.code in {"invalid_variables", "over_budget"}  # noqa: PT017
        return
    for text in (email.text, html.unescape(email.html)):
        assert all(fact in text for fact in (said.sender, said.expiry, *said.links, said.tenant or ""))
    assert all(fact in sms.text for fact in (said.sender, to_gsm(said.expiry), *said.links))
    assert email.locale == sms.locale == said.locale
    assert sms.segments <= shipped()[ref].sms_segments_max
    assert (render_email(shipped()[ref], one), render_sms(shipped()[ref], one)) == (email, sms)


@given(st.data(), REFS)
def test_with_names_in_gsm_and_a_link_of_the_declared_length_an_sms_always_fits(
    data: st.DataObject, ref: str
) -> None:
    template = shipped()[ref]
    one = data.draw(inputs(template, GSM_NAMES, template.sms_link_chars))
    if all(
        sms_name_text(v, chars_max=64) for n, v in one.variables.items() if not template.variables[n].is_link
    ):
        sms = render_sms(shipped()[ref], one)
        assert sms.encoding == "gsm7"
        assert sms.segments <= template.sms_segments_max


class _Tags(HTMLParser):
    """The tags and attribute names of a page, in order, and no text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))


@given(st.data(), REFS)
def test_no_name_adds_a_tag_or_a_line_of_its_own(data: st.DataObject, ref: str) -> None:
    template = shipped()[ref]
    one = data.draw(inputs(template, ANY_NAMES, 100))
    plain = {n: v if template.variables[n].is_link else "Ada" for n, v in one.variables.items()}
    calm = render_email(shipped()[ref], RenderInput(one.intent_id, one.locale, one.expiry_ms, plain))
    try:
        email = render_email(shipped()[ref], one)
    except TemplateVariablesInvalid:
        return
    assert _Tags(email.html).found == _Tags(calm.html).found
    assert len(email.text.splitlines()) == len(calm.text.splitlines())
    assert len(email.subject.splitlines()) == 1


@given(
    ANY_NAMES
    | st.from_regex(r"(https?:/{0,3})?([a-z0-9@]{1,5}[.\u3002]){1,3}[a-z]{2,3}(/[a-z]{1,3})?", fullmatch=True)
)
def test_a_name_in_an_sms_holds_nothing_a_phone_would_link(name: str) -> None:
    written = sms_name_text(name, chars_max=64)
    assert not re.search(r"\S[.\u3002\uff0e\uff61]\S|//|@\S|:\S", written)
    assert len(written) <= 64


@given(st.text(max_size=80))
def test_a_name_is_one_line_without_direction_marks_and_settles_at_once(name: str) -> None:
    written = name_text(name)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", written)
    assert name_text(written) == written
    assert to_gsm(to_gsm(name)) == to_gsm(name)
