"""Rendering: both channels say the same, links stay as they are, what is wrong is named without values."""

from __future__ import annotations

import html
from dataclasses import replace
from typing import Any

import pytest

from schemas.errors import TemplateUnknown, TemplateVariablesInvalid
from schemas.templates.registry import load, names_problem
from schemas.templates.render import (
    RenderInput,
    digest,
    expiry_text,
    facts,
    render_email,
    render_sms,
)

LINK = "https://app.example/r?u=1&t=2"
GIVEN = RenderInput("int-0001-test", "en", 1_790_000_900_000, {"link": LINK, "name": "Ada"})
REF = "password_reset:v1"


def given(**variables: str) -> RenderInput:
    return replace(GIVEN, variables={**GIVEN.variables, **variables})


def test_the_link_is_byte_identical_in_text_and_sms_and_escaped_in_html() -> None:
    email, sms = render_email(REF, GIVEN), render_sms(REF, GIVEN)
    assert LINK in email.text
    assert LINK in sms.text
    assert html.escape(LINK) in email.html
    assert LINK not in email.html


def test_a_name_is_escaped_in_html_only() -> None:
    email = render_email(REF, given(name="<b>&'\""))
    assert "<b>" not in email.html
    assert "<b>&'\"" in email.text


@pytest.mark.parametrize("ref", sorted(load()))
@pytest.mark.parametrize("locale", ["en", "fr", "fr-CA", "xx"])
def test_both_channels_of_every_version_say_the_same_facts(ref: str, locale: str) -> None:
    values = {n: LINK if v.is_link else "Ada" for n, v in load()[ref].variables.items()}
    one = replace(GIVEN, locale=locale, variables=values)
    email, sms, said = render_email(ref, one), render_sms(ref, one), facts(ref, one)
    assert sms.encoding == "gsm7"
    for text in (email.text, html.unescape(email.html), sms.text):
        assert said.sender in text
        assert all(link in text for link in said.links)
    assert said.expiry in email.text
    assert said.expiry in html.unescape(email.html)
    assert said.expiry.replace("û", "u") in sms.text


@pytest.mark.parametrize(
    "link",
    [
        "https://evil.example/r?t=1",
        "http://app.example/r",
        "https://app.example@evil.example/",
        "https://app.example.evil.example/",
        "//app.example/r",
        "https://app.example:8443/",
        "https://xn--pp-xka.example/",
        "https://аpp.example/",
        "https://app.example\\@evil.example/",
        "https://app.example/\t",
        "https://app.example/ x",
        "javascript:alert(1)",
        "https://user@app.example/",
        "https://[app.example/",
    ],
)
def test_a_link_leads_to_an_allowed_origin_or_nothing_is_rendered(link: str) -> None:
    for render in (render_email, render_sms):
        with pytest.raises(TemplateVariablesInvalid) as refused:
            render(REF, given(link=link))
        assert link not in str(refused.value)


def test_missing_unknown_null_and_empty_variables_are_named_and_not_quoted() -> None:
    assert names_problem(REF, ["name"]) == "missing: link"
    assert names_problem(REF, ["name", "link", "extra"]) == "unknown: extra"
    assert names_problem(REF, ["name", "link"]) is None
    bad: list[dict[str, Any]] = [{"link": LINK}, {"link": LINK, "name": None}, {"link": LINK, "name": " "}]
    for values in bad:
        with pytest.raises(TemplateVariablesInvalid, match="name"):
            render_email(REF, replace(GIVEN, variables=values))


def test_an_unknown_version_is_not_replaced_by_another() -> None:
    with pytest.raises(TemplateUnknown):
        render_email("password_reset:v99", GIVEN)


def test_names_lose_control_and_bidi_characters_and_in_an_sms_whatever_a_phone_would_link() -> None:
    email = render_email(REF, given(name="A\u202eda\x00\n Lovelace"))
    assert "Hello Ada Lovelace" in email.text
    sms = render_sms(
        "build_failure:v1", replace(GIVEN, variables=BUILD | {"project": "go to evil.example/x now"})
    )
    assert "evil" not in sms.text


BUILD = {"link": LINK, "project": "engine", "branch": "main"}


def test_typographic_characters_become_gsm_and_do_not_double_the_bill() -> None:
    sms = render_sms(
        "build_failure:v1", replace(GIVEN, variables=BUILD | {"project": "l\u2019atelier\u00a0dor\u00e9"})
    )
    assert (sms.encoding, sms.segments) == ("gsm7", 1)
    assert "l'atelier doré" in sms.text


def test_an_sms_over_its_budget_is_refused() -> None:
    with pytest.raises(TemplateVariablesInvalid) as refused:
        render_sms(REF, given(link=LINK + "&p=" + "a" * 300))
    assert refused.value.code == "over_budget"


def test_the_same_input_gives_the_same_bytes() -> None:
    """Pinned: a change here changes what a resubmission sends, and is not allowed for a released version."""
    pinned = {"email": digest(render_email(REF, GIVEN), b"k"), "sms": digest(render_sms(REF, GIVEN), b"k")}
    assert pinned == {
        "email": "7d69eb80c9bc9af60102d285c0581a38f364eaabb441e6c69ca9a5d14a09247b",
        "sms": "b92b6158403cf0aded8a6e45a44ca392ab575854c8a729759f3e150c22beeac9",
    }


def test_the_expiry_names_its_zone_and_two_instants_of_one_wall_clock_hour_differ() -> None:
    template = load()[REF]
    first = expiry_text(1_792_888_200_000, template, "en")  # 2026-10-25T00:30Z, 01:30 in London
    second = expiry_text(1_792_891_800_000, template, "en")  # 2026-10-25T01:30Z, 01:30 in London again
    assert (first, second) == ("00:30 UTC on 25 October 2026", "01:30 UTC on 25 October 2026")


def test_nothing_rendered_is_printed() -> None:
    shown = (
        repr(render_email(REF, GIVEN)) + repr(render_sms(REF, GIVEN)) + repr(GIVEN) + repr(facts(REF, GIVEN))
    )
    assert "app.example" not in shown
    assert "Ada" not in shown
