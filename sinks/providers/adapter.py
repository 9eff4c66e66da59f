"""What an adapter says of itself, at the end of its file; the registry and `backstop providers` read it.

It must not know any provider, or read a setting or a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import ConfigDict

from schemas.accounts import Account, Capabilities
from schemas.fingerprints import FingerprintKeys
from schemas.ids import Channel
from schemas.record import Model
from sinks.providers.base import Provider
from sinks.providers.credentials import Credential, CredentialKind
from sinks.providers.http import Http


class Options(Model):
    """`[accounts.options]` of one provider: what its address, its sender or its look-ups need."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    # The sender of every message of this account, instead of the one the template names.
    sender: str | None = None


OptionsT = TypeVar("OptionsT", bound=Options)


@dataclass(frozen=True, slots=True)
class Parts:
    """What an adapter is made of. `fingerprints`: to know a recipient again in a list; the dispatcher and
    the poller have them, a command that only looks at settings may not. `http_for` makes a second client for
    providers whose look-ups have another address."""

    account: Account
    http: Http
    options: Options
    credential: Credential
    fingerprints: FingerprintKeys | None
    http_for: Callable[[str], Http]

    def options_as(self, kind: type[OptionsT]) -> OptionsT:
        """The options as the adapter's own. `TypeError` for another adapter's: a fault of the registry."""
        if not isinstance(self.options, kind):
            raise TypeError(f"options of {type(self.options).__name__} for an adapter of {kind.__name__}")
        return self.options


@dataclass(frozen=True, slots=True)
class Adapter:
    """One provider for one channel.

    `base_url` may name options in braces. `capabilities` are those of the provider's documents: an account
    may narrow them and set its own rates, never promise more; None when the account has to say them all.
    """

    name: str
    channels: frozenset[Channel]
    make: Callable[[Parts], Provider]
    base_url: str
    credential: CredentialKind
    read_credential: Callable[[str], Credential]
    capabilities: Capabilities | None
    options: type[Options] = Options
