"""No file, variable or header brings a reader down; what it says fits a terminal and repeats nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.settings import Settings
from schemas.ids import INSTANT_MS_MAX, INSTANT_MS_MIN
from schemas.templates.registry import shipped
from tests.builders import POLICY_TEXT
from tests.fuzz import hostile, texts
from tests.fuzz.profile import fuzzed
from tests.fuzz.records import CANARY
from tests.integration.workers import ACCOUNTS

STORIES = [p.read_bytes() for p in sorted(Path("tests/scenarios").glob("*.toml"))]

# TOML as people and programs get it wrong; a canary stands where a value stands.
TOML_VALUES = st.sampled_from(
    [
        f'"{CANARY}"',
        "5",
        "-1",
        "1.5",
        "nan",
        "inf",
        "true",
        "[]",
        "{}",
        "[[]]",
        "1979-05-27T07:32:00Z",
        "07:32:00",
        '""',
        '"\\u0000"',
        '"9' + "9" * 400 + 'd"',
        '"99999999d"',
        '"1.5"',
        "9" * 5_000,
        "0x" + "f" * 5_000,
        "[" * 3_000 + "]" * 3_000,
        '{ a = "b" }',
        "'''x'''",
    ]
)
_KEYS = st.sampled_from(
    [
        "title",
        "policy",
        "until",
        "changes",
        "intent",
        "email",
        "sms",
        "faults",
        "expect",
        "controls",
        "_env_file",
    ]
) | st.sampled_from(
    ['"self"', '"\\u001b[2J"', "'__proto__'", "a.b.c", "kafka", "accounts", "_cli_parse_args", "_secrets_dir"]
)
TOML_LINES = st.lists(st.tuples(_KEYS, TOML_VALUES).map(lambda p: f"{p[0]} = {p[1]}"), max_size=4).map(
    lambda lines: "\n".join(lines).encode()
)


@st.composite
def toml_with_one_value_changed(draw: st.DrawFn, valid: bytes) -> bytes:
    """A whole file in which the right side of one line is another."""
    lines = valid.decode().split("\n")
    places = [n for n, line in enumerate(lines) if " = " in line and not line.lstrip().startswith("#")]
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.sampled_from(places))
        lines[at] = lines[at].partition(" = ")[0] + " = " + draw(TOML_VALUES)
    return "\n".join(lines).encode()


def tomls(*valid: bytes) -> st.SearchStrategy[bytes]:
    """Nearly valid files, files of odd lines, and no file at all."""
    whole = st.sampled_from(valid)
    return (
        whole.flatmap(toml_with_one_value_changed)
        | whole.flatmap(hostile.spoiled)
        | st.tuples(TOML_LINES, whole).map(lambda p: p[0] + b"\n" + p[1])
        | TOML_LINES
        | hostile.BYTES
    )


@fuzzed
@given(tomls(*STORIES))
def test_a_scenario_file_is_a_story_or_a_refusal(file: bytes) -> None:
    texts.scenario(file)


@fuzzed
@given(
    st.sampled_from(["deadline", "expiry", "requested"]),
    st.from_regex(r"[0-9]{1,400}(ms|s|m|h|d)", fullmatch=True),
)
def test_a_duration_of_any_length_is_one_or_is_refused(name: str, duration: str) -> None:
    texts.scenario(f'title = "t"\n[intent]\n{name} = "{duration}"\n'.encode())


_SETTINGS = sorted(Settings.model_fields)
_ENV_VALUES = st.sampled_from(
    [
        "",
        "0",
        "-1",
        "7",
        "1.5",
        "true",
        "None",
        "nan",
        "[1]",
        "{}",
        "9" * 5_000,
        CANARY,
        "a b",
        "::1",
        "é",
        "x" * 5_000,
    ]
) | st.text(st.characters(exclude_characters="\n\x00", exclude_categories=["Cs"]), max_size=30)
_VARIABLES = st.sampled_from(_SETTINGS).map(lambda n: f"BACKSTOP_{n.upper()}") | st.sampled_from(
    [
        "BACKSTOP_NO_SUCH",
        "backstop_prefix",
        "BACKSTOP_\x1b[2J",
        "BACKSTOP_",
        "BACKSTOP_MODEL_CONFIG",
        "BACKSTOP_CONFIG",
    ]
)
_ENVIRONMENTS = st.lists(st.tuples(_VARIABLES, _ENV_VALUES).map("=".join), max_size=4).map(
    lambda lines: "\n".join(lines).encode()
)
_CONFIG = b'kafka = "127.0.0.1:9092"\nprefix = "backstop."\npartitions = 12\nlog_json = true\n'


@fuzzed
@given(_ENVIRONMENTS | st.binary(max_size=60).map(lambda b: b"BACKSTOP_" + b))
def test_any_environment_gives_settings_or_one_list_of_what_is_wrong(env: bytes) -> None:
    texts.environment(env)


@fuzzed
@given(_ENVIRONMENTS, tomls(_CONFIG))
def test_any_config_file_gives_settings_or_one_list_of_what_is_wrong(env: bytes, config: bytes) -> None:
    texts.environment(texts.CUT.join([env, config]))


@fuzzed
@given(tomls(ACCOUNTS.encode()))
def test_any_accounts_file_gives_accounts_or_one_list_of_what_is_wrong(accounts: bytes) -> None:
    texts.environment(texts.CUT.join([b"", b"", accounts]))


@fuzzed
@given(tomls(POLICY_TEXT.encode()))
def test_any_policy_file_gives_a_policy_or_one_list_of_what_is_wrong(policy: bytes) -> None:
    texts.environment(texts.CUT.join([b"", b"", ACCOUNTS.encode(), policy]))


_LINKS = (
    st.sampled_from(
        [
            "https://app.example/r?u=1&t=2",
            "https://evil.example/r",
            "http://app.example/",
            "https://app.example@evil.example/",
            "https://app.example.evil.example/",
            "//app.example",
            "https://app.example:8443/",
            "https://app.example/\t",
            "https://app.example/\\",
            "javascript:alert(1)",
            "https://app.example/" + "a" * 2_000,
            "https://APP.example/x",
            "https://app.example/x.",
            "https://[::1",
        ]
    )
    | st.from_regex(r"https://app\.example/[!-~]{0,60}", fullmatch=True)
    | hostile.TEXTS
)


@st.composite
def template_cases(draw: st.DrawFn) -> bytes:
    """Every declared variable with anything in it; now and then one missing, one too many, one not text."""
    ref = draw(st.sampled_from([*sorted(shipped()), "no_such:v1"]))
    declared = shipped()[ref].variables if ref in shipped() else {}
    values: dict[str, Any] = {
        n: draw(_LINKS if v.is_link else hostile.TEXTS)
        for n, v in declared.items()
        if draw(st.integers(0, 9))
    }
    if not draw(st.integers(0, 7)):
        values[draw(hostile.TEXTS)] = draw(hostile.JSON)
    locale = draw(st.sampled_from(["en", "fr", "fr-CA", "ar", "", "zz-ZZ"]) | st.text(max_size=6))
    expiry = draw(st.integers(INSTANT_MS_MIN, INSTANT_MS_MAX - 1))
    body = {"template": ref, "locale": locale, "expiry_ms": expiry, "variables": values}
    return hostile.as_json(body)


@fuzzed
@given(template_cases())
def test_any_variables_give_both_channels_or_a_declared_refusal(case: bytes) -> None:
    texts.template(case)


@fuzzed
@given(
    st.sampled_from([b"email ", b"phone "]),
    hostile.BYTES | st.from_regex(rb"[+0-9a-z@.\-]{0,30}", fullmatch=True),
)
def test_any_text_is_one_destination_or_refused_without_being_repeated(kind: bytes, text: bytes) -> None:
    texts.destination(kind + text)


@fuzzed
@given(st.from_regex(r"\+[0-9]{6,16}", fullmatch=True) | st.from_regex(r"\+1[2-9][0-9]{9}", fullmatch=True))
def test_any_number_has_one_country_or_is_refused(number: str) -> None:
    texts.destination(b"phone " + number.encode())


_DATES = st.from_regex(
    r"(Wed, )?[0-9]{1,2} (Oct|Feb|Xyz) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}( (GMT|[+-][0-9]{4}))?"
    r"|[A-Z][a-z]{5,8}, [0-9]{2}-(Oct|Feb)-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT"
    r"|Wed Oct [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2} [0-9]{4}",
    fullmatch=True,
)


@fuzzed
@given(hostile.BYTES | _DATES.map(str.encode) | st.from_regex(rb"[0-9 .+-]{0,30}", fullmatch=True))
def test_any_retry_after_is_a_bounded_wait_or_malformed(value: bytes) -> None:
    texts.wait(value)


@pytest.mark.parametrize("parts", [[b""], [b"", _CONFIG], [b"", b"", ACCOUNTS.encode()]])
def test_the_files_the_fuzzing_begins_with_are_valid(parts: list[bytes]) -> None:
    assert texts.environment(texts.CUT.join(parts)).startswith("settings, ")


def test_every_scenario_the_fuzzing_begins_with_is_valid() -> None:
    assert len(STORIES) > 30
    assert {texts.scenario(story) for story in STORIES} == {"story"}


def test_a_valid_template_case_gives_both_channels() -> None:
    values = {"link": "https://app.example/r?t=1", "name": "Ada"}
    case = {"template": "password_reset:v1", "locale": "en", "expiry_ms": INSTANT_MS_MIN, "variables": values}
    assert texts.template(json.dumps(case).encode()) == "both: gsm7"
