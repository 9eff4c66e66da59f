"""Where a link leads, as it is written: to an origin the template allows, or it is refused with a reason.

The whole authority is compared with the origins, never a parsed host: parsers disagree about hosts, and equal
bytes need no parser (cases F20, F40). It must not repair or rewrite a link, nor quote one.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import StrEnum

LINK_CHARS_MAX = 1_024

# RFC 3986, appendix B, of a link that has every character checked already.
_PARTS = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?[^#]*)?(?:#.*)?")
# Printable ASCII less what RFC 3986 has no place for, and a browser would repair.
_ALLOWED = re.compile(r"[!#-;=?-Z\[\]_a-z~]+")
_UNLINKED_AT_THE_END = ".,:;!?')]"  # phones leave these out of a link they find in a text
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})|%(?:[01][0-9A-Fa-f]|7[Ff])")
_DOTS = re.compile(r"(?:^|/)(?:\.|%2[Ee]){1,2}(?:/|$)")


class LinkFault(StrEnum):
    """Why a link is refused. The order is that of the checks: the first that applies is told."""

    EMPTY = "empty"
    TOO_LONG = "too_long"
    CONTROL_CHARACTER = "control_character"
    NOT_ASCII = "not_ascii"
    WHITESPACE = "whitespace"
    BACKSLASH = "backslash"
    CHARACTER = "character"
    ENDS_LIKE_PROSE = "ends_like_prose"
    NO_SCHEME = "no_scheme"
    SCHEME_IN_CAPITALS = "scheme_in_capitals"
    SCHEME = "scheme"
    NO_HOST = "no_host"
    USER_INFO = "user_info"
    ENCODED_HOST = "encoded_host"
    PORT = "port"
    TRAILING_DOT = "trailing_dot"
    PUNYCODE = "punycode"
    OTHER_ORIGIN = "other_origin"
    PATH = "path"
    ESCAPE = "escape"

    @property
    def sentence(self) -> str:
        """What is wrong, without the link."""
        return _SENTENCES[self]


_SENTENCES = {
    LinkFault.EMPTY: "there is no link",
    LinkFault.TOO_LONG: f"a link has at most {LINK_CHARS_MAX} characters",
    LinkFault.CONTROL_CHARACTER: "a link holds no control character",
    LinkFault.NOT_ASCII: "a link is ASCII: hosts that look alike are refused, and the rest is escaped",
    LinkFault.WHITESPACE: "a link holds no space",
    LinkFault.BACKSLASH: "a link holds no backslash: browsers read it as a slash",
    LinkFault.CHARACTER: "a link holds no quotes, brackets < > { } or characters that a browser would repair",
    LinkFault.ENDS_LIKE_PROSE: "a link does not end with a character that phones leave out of it",
    LinkFault.NO_SCHEME: "a link is absolute and begins with https://",
    LinkFault.SCHEME_IN_CAPITALS: "the scheme is written https, in lower case",
    LinkFault.SCHEME: "the scheme is https",
    LinkFault.NO_HOST: "a link has a host, after two slashes",
    LinkFault.USER_INFO: "a link holds no user information before its host",
    LinkFault.ENCODED_HOST: "a host is not percent-encoded",
    LinkFault.PORT: "this port is not one of the template's origins",
    LinkFault.TRAILING_DOT: "a host does not end with a dot",
    LinkFault.PUNYCODE: "this international host is not one of the template's origins",
    LinkFault.OTHER_ORIGIN: "it leads to an origin that the template does not allow",
    LinkFault.PATH: "a path holds no empty, . or .. segment: browsers would rewrite it",
    LinkFault.ESCAPE: "a percent sign begins an escape of two hex digits, and not of a control character",
}


def link_fault(link: str, origins: Collection[str]) -> LinkFault | None:
    """Why this link does not lead to one of these https origins; None when it does."""
    return _characters(link) or _origin(link, origins) or _rest(link)


def origin_fault(origin: str) -> LinkFault | None:
    """Why this is no origin a template may allow: https, a host in lower case, no more."""
    parts = _PARTS.fullmatch(origin)
    if parts is None or origin != f"https://{parts[2]}".lower():
        return LinkFault.CHARACTER
    return _characters(origin) or _authority(parts[2] or "", is_allowed=True)


def _characters(link: str) -> LinkFault | None:
    if not link:
        return LinkFault.EMPTY
    if len(link) > LINK_CHARS_MAX:
        return LinkFault.TOO_LONG
    if any(c < " " or c == "\x7f" for c in link):
        return LinkFault.CONTROL_CHARACTER
    if not link.isascii():
        return LinkFault.NOT_ASCII
    if " " in link:
        return LinkFault.WHITESPACE
    if "\\" in link:
        return LinkFault.BACKSLASH
    if not _ALLOWED.fullmatch(link):
        return LinkFault.CHARACTER
    return LinkFault.ENDS_LIKE_PROSE if link[-1] in _UNLINKED_AT_THE_END else None


def _origin(link: str, origins: Collection[str]) -> LinkFault | None:
    parts = _PARTS.fullmatch(link)
    if parts is None or parts[1] is None:
        return LinkFault.NO_SCHEME
    if parts[1] != "https":
        return LinkFault.SCHEME_IN_CAPITALS if parts[1].lower() == "https" else LinkFault.SCHEME
    authority = parts[2] or ""
    is_allowed = f"https://{authority.lower()}" in origins
    return _authority(authority, is_allowed=is_allowed) or (None if is_allowed else LinkFault.OTHER_ORIGIN)


def _authority(authority: str, *, is_allowed: bool) -> LinkFault | None:
    host, colon, port = authority.partition(":")
    if not authority:
        return LinkFault.NO_HOST
    if "@" in authority:
        return LinkFault.USER_INFO
    if "%" in authority:
        return LinkFault.ENCODED_HOST
    if colon and not (is_allowed and port):
        return LinkFault.PORT
    if host.endswith("."):
        return LinkFault.TRAILING_DOT
    is_international = any(label.startswith("xn--") for label in host.lower().split("."))
    return LinkFault.PUNYCODE if is_international and not is_allowed else None


def _rest(link: str) -> LinkFault | None:
    parts = _PARTS.fullmatch(link)
    path = "" if parts is None else parts[3]
    if "//" in path or _DOTS.search(path):
        return LinkFault.PATH
    return LinkFault.ESCAPE if _ESCAPE.search(link) else None
