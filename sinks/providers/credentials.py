"""Credentials as types whose printed form is useless. It must not read them from anywhere."""

from __future__ import annotations

from typing import NoReturn


class BearerToken:
    """A bearer token (RFC 6750). `ValueError` for what could not stand in a header."""

    __slots__ = ("_token",)

    def __init__(self, token: str) -> None:
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError("a bearer token is printable ASCII without spaces")
        self._token = token

    def header(self) -> dict[str, str]:
        """The only way out."""
        return {"Authorization": f"Bearer {self._token}"}

    def __repr__(self) -> str:
        return "BearerToken(hidden)"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("a credential is not pickled: it would be written out in clear")
