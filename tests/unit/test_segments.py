"""Segments as the networks count them in the vectors of case F16."""

from __future__ import annotations

import pytest

from schemas.templates.segments import count

EURO, EMOJI = "€", "\U0001f600"


@pytest.mark.parametrize(
    ("text", "encoding", "units", "segments"),
    [
        ("a" * 160, "gsm7", 160, 1),
        ("a" * 161, "gsm7", 161, 2),
        ("a" * 159 + EURO, "gsm7", 161, 2),
        ("]" * 80, "gsm7", 160, 1),
        ("]" * 81, "gsm7", 162, 2),
        ("]" * 153, "gsm7", 306, 3),
        ("a" * 152 + EURO + "a" * 152, "gsm7", 306, 3),
        ("this is a " + "]" * 74 + EMOJI, "ucs2", 86, 2),
        (EMOJI * 35, "ucs2", 70, 1),
        (EMOJI * 36, "ucs2", 72, 2),
        (EMOJI * 70, "ucs2", 140, 3),
        ("ж" * 70, "ucs2", 70, 1),
        ("ж" * 71, "ucs2", 71, 2),
        ("", "gsm7", 0, 1),
    ],
)
def test_a_text_has_the_segments_of_the_vectors(text: str, encoding: str, units: int, segments: int) -> None:
    found = count(text)
    assert (found.encoding, found.units, found.count) == (encoding, units, segments)


def test_a_typographic_apostrophe_doubles_the_bill_of_a_french_text() -> None:
    body = "Votre mot de passe expire bientôt, changez-le dès aujourd'hui s'il vous plaît: https://app.example/r?t=12345".replace(
        "ô", "o"
    ).replace("î", "i")
    assert (len(body), count(body).count) == (108, 1)
    assert count(body.replace("'", "\u2019")).count == 2


@pytest.mark.parametrize("character", "çê`\t\u00a0\u2019áíóú")
def test_one_character_outside_the_alphabet_makes_the_whole_text_ucs2(character: str) -> None:
    assert count("a" + character).encoding == "ucs2"


@pytest.mark.parametrize("character", "éàñ€ÇØß§\f\n\r")
def test_the_characters_of_the_alphabet_keep_it_gsm(character: str) -> None:
    assert count(character).encoding == "gsm7"
