"""Text that people wrote, in files and names: read without surprises, and shown without obeying it.

It must not know what the text is about.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

LINE_CHARS_MAX = 2_000  # a policy with every field wrong needs 900; a file's key may have any length

# Control characters (a terminal obeys them) and half surrogate pairs (nothing can write them out).
_UNSHOWABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class NotToml(ValueError):
    """The text is not TOML that we read; the sentence says where, and fits a terminal."""


def toml(text: str) -> dict[str, Any]:
    """The table in `text`. Raises `NotToml`, and nothing else, whatever the text is.

    tomllib alone also raises RecursionError for deep nesting and a bare ValueError for a number of more
    digits than Python reads.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise NotToml(shown(str(exc))) from None
    except RecursionError:
        raise NotToml("nested too deep") from None
    except ValueError:
        raise NotToml("a number has too many digits, or a date is none") from None


def shown(text: str) -> str:
    """`text` as a terminal may have it: what it would obey is replaced, and a line of any length is cut."""
    lines = _UNSHOWABLE.sub("\ufffd", text).split("\n")
    return "\n".join(one if len(one) <= LINE_CHARS_MAX else one[:LINE_CHARS_MAX] + " …" for one in lines)
