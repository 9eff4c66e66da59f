"""Credentials as types whose printed form is useless. It must not read them from anywhere."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from enum import StrEnum
from typing import NoReturn, Self

import httpx


class Credential:
    """Headers that go with every call. `header` is the only way out.

    `name` is the part that is no secret, where there is one: some providers want it in the path.
    """

    __slots__ = ("_headers", "name")

    def __init__(self, name: str = "", **headers: str) -> None:
        self.name = name
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def header(self) -> dict[str, str]:
        return dict(self._headers)

    @property
    def auth(self) -> httpx.Auth | None:
        """Signs each request instead, where a provider wants that."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(hidden)"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("a credential is not pickled: it would be written out in clear")


class BearerToken(Credential):
    """A bearer token (RFC 6750). `ValueError` for what could not stand in a header."""

    __slots__ = ()

    def __init__(self, token: str) -> None:
        super().__init__(Authorization=f"Bearer {_token(token, 'a bearer token')}")


class ApiKey(Credential):
    """A key in a header of the provider's own. `ValueError` for what could not stand in a header."""

    __slots__ = ()

    @classmethod
    def under(cls, header: str) -> Callable[[str], Self]:
        """Makes the key of that header from its text."""
        return lambda text: cls(**{header: _token(text, "a key")})


class BasicLogin(Credential):
    """`name:secret` (RFC 7617)."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        name, colon, secret = _token(text, "a login").partition(":")
        if not name or not colon or not secret:
            raise ValueError("a login is name:secret on one line")
        super().__init__(name, Authorization=f"Basic {b64encode(text.encode()).decode()}")


class CredentialKind(StrEnum):
    """What an account's `credential_file` holds, on one line."""

    BEARER = "bearer token"
    KEY = "key"
    LOGIN = "name:secret"
    AWS = "access key id:secret access key, or no file for the usual chain of AWS"


def _token(text: str, what: str) -> str:
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"{what} is printable ASCII without spaces")
    return text
