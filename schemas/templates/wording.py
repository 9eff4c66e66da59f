"""Values as they may stand in a message: names and instants. Links are in `links`.

A name comes from a stranger: it may hold no control or bidi character, and in an SMS nothing that a phone
turns into a link. It must not know a template or a channel's layout.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime

from schemas.templates.segments import GSM_BASIC, GSM_EXTENDED

# What NFKD does not take apart into GSM characters by itself.
_TO_GSM = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′´`", "'"),
        **dict.fromkeys("“”„‟″«»", '"'),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys("\t\u2028\u2029", " "),
        **dict(zip("łŁđĐðÐħĦŧŦı•×", "lLdDdDhHtTi-x", strict=True)),
        "œ": "oe",
        "Œ": "OE",
        "þ": "th",
        "Þ": "Th",
        "ẞ": "ß",
    }
)
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
# A phone links «evil.example», «a:b» and «a@b»; the ideographic dots count as dots in a host name.
_LINK_MAKERS = re.compile(r"[.:@\\\u3002\uff0e\uff61]+/*(?=\S)|/{2,}")
_MONTHS_EN = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_MONTHS_FR = (
    *("janvier", "février", "mars", "avril", "mai", "juin"),
    *("juillet", "août", "septembre", "octobre", "novembre", "décembre"),
)
LANGUAGES = {"en": ("on", _MONTHS_EN), "fr": ("le", _MONTHS_FR)}


def expiry_text(expiry_ms: int, language: str) -> str:
    """An absolute instant with its zone, such as `14:13 UTC on 21 September 2026`; a begun minute is cut.

    The recipient's zone is not known, so it is UTC, and said to be (case F56).
    """
    at = datetime.fromtimestamp(expiry_ms // 1_000, UTC)
    joiner, months = LANGUAGES[language]
    return f"{at:%H:%M} UTC {joiner} {at.day} {months[at.month - 1]} {at.year}"


def name_text(name: str) -> str:
    """The name on one line, without control, bidi and unassigned characters; empty when nothing is left."""
    kept = "".join(" " if c.isspace() else c for c in name if c.isspace() or not _is_unprintable(c))
    return " ".join(kept.split())


def sms_name_text(name: str, *, chars_max: int) -> str:
    """As `name_text`, in GSM-7 as far as it goes, with every link taken apart: `evil.example` has two words.

    Taken apart and not removed: `acme.web` is also the name of a project.
    """
    kept = to_gsm(name_text(name))
    return " ".join(_LINK_MAKERS.sub(" ", kept).split())[:chars_max].strip()


def to_gsm(text: str) -> str:
    """Typographic and accented characters as their GSM-7 neighbours (case F15).

    What has none stays, and the text is sent and counted as UCS-2. An accent typed as a character of its
    own counts as part of its letter; after a letter without a neighbour it stays (Devanagari, Hebrew).
    """
    kept: list[str] = []
    for character in unicodedata.normalize("NFC", text).translate(_TO_GSM):
        if unicodedata.combining(character) and kept and _is_gsm(kept[-1]):
            continue
        kept.append(_gsm_neighbour(character))
    return "".join(kept)


def _gsm_neighbour(character: str) -> str:
    if _is_gsm(character):
        return character
    parts = unicodedata.normalize("NFKD", character)
    plain = "".join(c for c in parts if not unicodedata.combining(c)).translate(_TO_GSM)
    return plain if plain and GSM_BASIC.issuperset(plain) else character


def _is_gsm(text: str) -> bool:
    return all(c in GSM_BASIC or c in GSM_EXTENDED for c in text)


def _is_unprintable(character: str) -> bool:
    return unicodedata.category(character) in _UNPRINTABLE
