"""Segments as the networks count them in the vectors of case F16."""

from __future__ import annotations

import pytest

from schemas.templates.segments import count

EURO, EMOJI = "€", "\U0001f600"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"  # one sign to the eye, eight units

# VECTORS.md, in its order: name, text, encoding, units, segments.
VECTORS = {
    "160 x a": ("a" * 160, "gsm7", 160, 1),
    "161 x a": ("a" * 161, "gsm7", 161, 2),
    "159 x a + euro": ("a" * 159 + EURO, "gsm7", 161, 2),
    "80 x ]": ("]" * 80, "gsm7", 160, 1),
    "81 x ]": ("]" * 81, "gsm7", 162, 2),
    "153 x ]": ("]" * 153, "gsm7", 306, 3),
    "this is a + 74 x ] + emoji": ("this is a " + "]" * 74 + EMOJI, "ucs2", 86, 2),
}
OTHERS = {
    "F16 70 x emoji": (EMOJI * 70, "ucs2", 140, 3),
    "F16 36 x emoji": (EMOJI * 36, "ucs2", 72, 2),
    "F16 152 a + euro + 152 a": ("a" * 152 + EURO + "a" * 152, "gsm7", 306, 3),
    "35 x emoji": (EMOJI * 35, "ucs2", 70, 1),
    "70 x Cyrillic": ("ж" * 70, "ucs2", 70, 1),
    "71 x Cyrillic": ("ж" * 71, "ucs2", 71, 2),
    "134 x Cyrillic": ("ж" * 134, "ucs2", 134, 2),
    "135 x Cyrillic": ("ж" * 135, "ucs2", 135, 3),
    "306 x a": ("a" * 306, "gsm7", 306, 2),
    "307 x a": ("a" * 307, "gsm7", 307, 3),
    "a pair at the border": ("ж" * 66 + EMOJI + "ж" * 66, "ucs2", 134, 3),
    "a pair before the border": ("ж" * 65 + EMOJI + "ж" * 67, "ucs2", 134, 2),
    "an escape before the border": ("a" * 151 + EURO + "a" * 153, "gsm7", 306, 2),
    "] counts once in UCS-2": ("]" * 69 + "ж", "ucs2", 70, 1),
    "a family": (FAMILY * 9, "ucs2", 72, 2),
    "a flag": ("\U0001f1eb\U0001f1f7" * 18, "ucs2", 72, 2),
    "an accent of its own": ("e\u0301", "ucs2", 2, 1),
    "CR LF": ("\r\n" * 80, "gsm7", 160, 1),
    "160 x @": ("@" * 160, "gsm7", 160, 1),
    "nothing": ("", "gsm7", 0, 1),
}


@pytest.mark.parametrize(
    ("text", "encoding", "units", "segments"), [*VECTORS.values(), *OTHERS.values()], ids=[*VECTORS, *OTHERS]
)
def test_a_text_has_the_segments_of_the_vectors(text: str, encoding: str, units: int, segments: int) -> None:
    found = count(text)
    assert (found.encoding, found.units, found.count) == (encoding, units, segments)


@pytest.mark.parametrize("character", "^{}\\[~]|€\f")
def test_every_character_of_the_extension_table_has_two_units_and_stays_whole(character: str) -> None:
    assert (count(character * 80).count, count(character * 81).count) == (1, 2)
    assert count("a" * 152 + character + "a" * 152).count == 3


def test_a_typographic_apostrophe_doubles_the_bill_of_a_french_text() -> None:
    body = "Votre mot de passe expire bientôt, changez-le dès aujourd'hui s'il vous plaît: https://app.example/r?t=12345".replace(
        "ô", "o"
    ).replace("î", "i")
    assert (len(body), count(body).count) == (108, 1)
    assert count(body.replace("'", "\u2019")).count == 2


@pytest.mark.parametrize("character", "çê`\t\u00a0\u2019áíóúµΑ\u2126\u212b\u2206\x1b\x00\u200b\ufeff\u2026")
def test_one_character_outside_the_alphabet_makes_the_whole_text_ucs2(character: str) -> None:
    assert count("a" + character).encoding == "ucs2"


@pytest.mark.parametrize("character", "éàñ€ÇØß§\f\n\r")
def test_the_characters_of_the_alphabet_keep_it_gsm(character: str) -> None:
    assert count(character).encoding == "gsm7"
