"""Rendering: both channels say the same, links stay as they are, what is wrong is named without values."""

from __future__ import annotations

import html
from dataclasses import replace
from typing import Any

import pytest

from schemas.errors import TemplateBroken, TemplateUnknown, TemplateVariablesInvalid
from schemas.templates.registry import names_problem, shipped
from schemas.templates.render import RenderInput, digest, facts, render_email, render_sms
from schemas.templates.wording import expiry_text, to_gsm

LINK = "https://app.example/r?u=1&t=2"
GIVEN = RenderInput("int-0001-test", "en", 1_790_000_900_000, {"link": LINK, "name": "Ada"})
REF = "password_reset:v1"
TEMPLATE = shipped()[REF]


def given(**variables: str) -> RenderInput:
    return replace(GIVEN, variables={**GIVEN.variables, **variables})


def test_the_link_is_byte_identical_in_text_and_sms_and_escaped_in_html() -> None:
    email, sms = render_email(TEMPLATE, GIVEN), render_sms(TEMPLATE, GIVEN)
    assert LINK in email.text
    assert LINK in sms.text
    assert html.escape(LINK) in email.html
    assert LINK not in email.html


def test_a_name_is_escaped_in_html_only() -> None:
    email = render_email(TEMPLATE, given(name="<b>&'\""))
    assert "<b>" not in email.html
    assert "<b>&'\"" in email.text


@pytest.mark.parametrize("ref", sorted(shipped()))
@pytest.mark.parametrize(
    ("wanted", "used"), [("en", "en"), ("fr", "fr"), ("fr-CA", "fr"), ("en-GB", "en"), ("xx", "en")]
)
def test_both_channels_of_every_version_say_the_same_facts(ref: str, wanted: str, used: str) -> None:
    values = {n: LINK if v.is_link else "Ada" for n, v in shipped()[ref].variables.items()}
    one = replace(GIVEN, locale=wanted, variables=values)
    email, sms, said = (
        render_email(shipped()[ref], one),
        render_sms(shipped()[ref], one),
        facts(shipped()[ref], one),
    )
    assert (email.locale, sms.locale, said.locale) == (used, used, used)
    assert (sms.encoding, sms.segments) == ("gsm7", 1)
    for text in (email.text, html.unescape(email.html), sms.text):
        assert said.sender in text
        assert all(link in text for link in said.links)
    assert said.expiry in email.text
    assert said.expiry in html.unescape(email.html)
    assert said.expiry.replace("û", "u") in sms.text


@pytest.mark.parametrize(
    "link",
    [
        "https://app.example",
        "https://APP.example/r",
        "https://app.example?t=1",
        "https://app.example/r?u=1&t=2#f",
        "https://app.example/r?t=a%2Fb~c==",
        "https://app.example/r?to=https://evil.example/",
    ],
)
def test_a_link_to_an_allowed_origin_arrives_as_it_was_given(link: str) -> None:
    assert link in render_sms(TEMPLATE, given(link=link)).text.split()
    assert link in render_email(TEMPLATE, given(link=link)).text.split()


def test_missing_unknown_null_and_empty_variables_are_named_and_not_quoted() -> None:
    assert names_problem(TEMPLATE, ["name"]) == "missing: link"
    assert names_problem(TEMPLATE, ["name", "link", "extra"]) == "unknown: extra"
    assert names_problem(TEMPLATE, ["name", "link"]) is None
    bad: list[dict[str, Any]] = [{"link": LINK}, {"link": LINK, "name": None}, {"link": LINK, "name": " "}]
    for values in bad:
        with pytest.raises(TemplateVariablesInvalid, match="name"):
            render_email(TEMPLATE, replace(GIVEN, variables=values))


def test_an_unknown_version_is_not_replaced_by_another() -> None:
    with pytest.raises(TemplateUnknown):
        shipped().find("password_reset:v99")


def test_names_lose_control_and_bidi_characters() -> None:
    email = render_email(TEMPLATE, given(name="A\u202eda\x00\n Love\u2028lace\ud83d"))
    assert "Hello Ada Love lace," in email.text.splitlines()


@pytest.mark.parametrize("name", ["\u202e", "\x00\u200b", "\ue000"])
def test_a_name_of_which_nothing_is_left_is_refused(name: str) -> None:
    with pytest.raises(TemplateVariablesInvalid, match="name can be printed"):
        render_email(TEMPLATE, given(name=name))


@pytest.mark.parametrize(
    ("project", "written"),
    [
        ("go to evil.example/x now", "go to evil example/x now"),
        ("https://evil.example:80//x", "https evil example 80 x"),
        ("evil\u3002example", "evil example"),
        ("ｅｖｉｌ．example", "evil example"),
        ("evil\u2024example", "evil example"),
        ("evil…example", "evil example"),
        ("mail\u200bto:a@b", "mailto a b"),
        ("192.0.2.1", "192 0 2 1"),
        ("acme/engine No. 5.", "acme/engine No. 5."),
    ],
)
def test_in_an_sms_a_name_holds_nothing_a_phone_would_link(project: str, written: str) -> None:
    sms = render_sms(BUILD_TEMPLATE, replace(GIVEN, variables=BUILD | {"project": project}))
    assert sms.text.startswith(f"Example CI: build of {written} failed, ")


def test_the_tenant_is_a_fact_of_both_channels() -> None:
    one = given(tenant_name="Acme & Søns")
    email, sms = render_email(TEMPLATE, one), render_sms(TEMPLATE, one)
    assert facts(TEMPLATE, one).tenant == "Acme & Søns"
    assert facts(TEMPLATE, GIVEN).tenant is None
    for text in (email.subject, email.text, html.unescape(email.html), sms.text):
        assert "Acme & Søns" in text


def test_both_channels_say_what_to_do_when_it_was_not_you() -> None:
    assert "If it was not you, do nothing" in render_email(TEMPLATE, GIVEN).text
    assert "Not you? Ignore." in render_sms(TEMPLATE, GIVEN).text


BUILD_REF = "build_failure:v1"
BUILD_TEMPLATE = shipped()[BUILD_REF]
BUILD = {"link": LINK, "project": "engine", "branch": "main"}


@pytest.mark.parametrize(
    ("project", "written"),
    [
        ("l\u2019atelier\u00a0dor\u00e9", "l'atelier doré"),
        ("“façade” — ê`•", '"facade" - e\'-'),
        ("Œuvre №5 ﬁn™", "OEuvre No5 finTM"),
        ("àèéìòùÇßñ€[]", "àèéìòùÇßñ€[]"),
        ("Jose\u0301 n\u0303u", "José ñu"),
        ("x\u0302e\u0323\u0302", "xe"),
        ("Đorđe Þór ð ẞ", "Dorde Thor d ß"),
    ],
)
def test_typographic_characters_become_gsm_and_do_not_double_the_bill(project: str, written: str) -> None:
    sms = render_sms(BUILD_TEMPLATE, replace(GIVEN, variables=BUILD | {"project": project}))
    assert f"build of {written} failed" in sms.text
    assert (sms.encoding, sms.segments) == ("gsm7", 1)


def test_a_mark_that_belongs_to_a_letter_without_a_neighbour_is_kept() -> None:
    assert to_gsm("\u0928\u092e\u0938\u094d\u0924\u0947") == "\u0928\u092e\u0938\u094d\u0924\u0947"
    assert to_gsm("\u05e9\u05b8\u05c1") == "\u05e9\u05b8\u05c1"


def test_what_has_no_gsm_neighbour_is_kept_counted_as_ucs2_and_measured_against_the_budget() -> None:
    short = replace(GIVEN, variables=BUILD | {"project": "проект"})
    sms = render_sms(BUILD_TEMPLATE, short)
    assert (sms.encoding, sms.segments) == ("ucs2", 2)
    with pytest.raises(TemplateVariablesInvalid) as refused:
        render_sms(BUILD_TEMPLATE, replace(GIVEN, variables=BUILD | {"project": "проект " * 5}))
    assert refused.value.code == "over_budget"


def test_an_sms_over_its_budget_is_refused() -> None:
    with pytest.raises(TemplateVariablesInvalid) as refused:
        render_sms(TEMPLATE, given(link=LINK + "&p=" + "a" * 300))
    assert refused.value.code == "over_budget"


def test_the_same_input_gives_the_same_bytes() -> None:
    """Pinned: a change here changes what a resubmission sends, and is not allowed for a released version."""
    pinned = {
        "email": digest(render_email(TEMPLATE, GIVEN), b"k"),
        "sms": digest(render_sms(TEMPLATE, GIVEN), b"k"),
    }
    assert pinned == {
        "email": "f0c7b46500aa224f75bb418ba01a4212dbd1d84d3b79890a3ea8e54fa352cc13",
        "sms": "39a16e1b6b6f7b74df5c7fed69a172b89a8165c8b7f94b9a6f3ffc35ea146e1e",
    }


def test_the_order_of_the_variables_does_not_matter() -> None:
    turned = replace(GIVEN, variables=dict(reversed(list(GIVEN.variables.items()))))
    assert render_email(TEMPLATE, turned) == render_email(TEMPLATE, GIVEN)


def test_the_expiry_names_its_zone_and_two_instants_of_one_wall_clock_hour_differ() -> None:
    first = expiry_text(1_792_888_200_000, "en")  # 2026-10-25T00:30Z, 01:30 in London
    second = expiry_text(1_792_891_800_000, "en")  # 2026-10-25T01:30Z, 01:30 in London again
    assert (first, second) == ("00:30 UTC on 25 October 2026", "01:30 UTC on 25 October 2026")
    assert expiry_text(1_792_888_200_000, "fr") == "00:30 UTC le 25 octobre 2026"


@pytest.mark.parametrize("wanted", ["ar", "he", "fa-IR"])
def test_a_right_to_left_recipient_gets_the_fallback_locale_and_no_direction_mark_in_the_sms(
    wanted: str,
) -> None:
    """Case F56. A stranger's name stands isolated in the HTML; in an SMS there is nothing to isolate."""
    one = replace(given(name="\u05d0\u05d1\u200f"), locale=wanted)
    email, sms = render_email(TEMPLATE, one), render_sms(TEMPLATE, one)
    assert (email.locale, sms.locale) == ("en", "en")
    assert "<bdi>\u05d0\u05d1</bdi>" in email.html
    assert facts(TEMPLATE, one).expiry in sms.text
    assert not set(sms.text + email.text) & set(
        "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )


def test_a_begun_minute_is_cut_so_that_nobody_comes_too_late() -> None:
    assert expiry_text(1_792_888_259_999, "en") == expiry_text(1_792_888_200_000, "en")


@pytest.mark.parametrize(
    ("part", "source", "code"),
    [
        ("text", "{{ nobody }}", "null_value"),
        ("text", "{{ name.__class__ }}", "null_value"),
        ("text", "{{ none }}", "null_value"),
        ("text", "{{ 7 }}", "not_text"),
        ("text", "{{ name.upper }}", "not_text"),
        ("text", "{{ nobody.name }}", "render"),
        ("text", "{% if nobody %}{% endif %}", "render"),
        ("html", "{% for a in", "render"),
        ("text", "Hello {{ name }}", "fact_lost"),
        ("html", "{{ link|safe }} {{ sender }} {{ expiry }}", "fact_lost"),
        ("sms", "{{ sender }} {{ expiry }}", "fact_lost"),
        ("subject", "two\nlines", "subject"),
        ("subject", " ", "subject"),
        ("text", "{{ link }}{{ sender }}{{ expiry }}" + "x" * 65_536, "too_long"),
    ],
)
def test_a_template_that_is_wrong_sends_nothing_and_names_the_part(part: str, source: str, code: str) -> None:
    released = TEMPLATE
    broken = replace(released, ref="broken:v1", sources={"en": {**released.sources["en"], part: source}})
    with pytest.raises(TemplateBroken) as refused:
        (render_sms if part == "sms" else render_email)(broken, given(name="canary"))
    assert refused.value.code == code
    assert "canary" not in str(refused.value)


def test_nothing_rendered_is_printed() -> None:
    shown = (
        repr(render_email(TEMPLATE, GIVEN))
        + repr(render_sms(TEMPLATE, GIVEN))
        + repr(GIVEN)
        + repr(facts(TEMPLATE, GIVEN))
    )
    assert "app.example" not in shown
    assert "Ada" not in shown
