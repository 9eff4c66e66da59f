"""How many SMS segments a text needs: GSM-7 (160 septets, 153 per part) or UCS-2 (70 units, 67 per part).

Source: 3GPP TS 23.038 and 23.040; figures in VECTORS.md. A character of two units (GSM extension table,
UTF-16 surrogate pair) never straddles two parts. It must not transliterate; see `render.to_gsm`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GSM_SINGLE, GSM_PART = 160, 153
UCS2_SINGLE, UCS2_PART = 70, 67

GSM_BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
GSM_EXTENDED = frozenset("\f^{}\\[~]|€")


@dataclass(frozen=True, slots=True)
class Segments:
    """`units` are septets (GSM-7) or UTF-16 code units (UCS-2), before padding at part borders."""

    encoding: Literal["gsm7", "ucs2"]
    units: int
    count: int


def count(text: str) -> Segments:
    """The encoding a provider will choose and what it will bill."""
    if all(c in GSM_BASIC or c in GSM_EXTENDED for c in text):
        widths = [2 if c in GSM_EXTENDED else 1 for c in text]
        return Segments("gsm7", sum(widths), _parts(widths, GSM_SINGLE, GSM_PART))
    widths = [2 if ord(c) > 0xFFFF else 1 for c in text]
    return Segments("ucs2", sum(widths), _parts(widths, UCS2_SINGLE, UCS2_PART))


def _parts(widths: list[int], single: int, part: int) -> int:
    if sum(widths) <= single:
        return 1
    parts, room = 1, part
    for width in widths:
        if width > room:
            parts, room = parts + 1, part
        room -= width
    return parts
