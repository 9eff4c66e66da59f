"""Provider name → adapter. The only place that knows which adapters exist.

It must not read settings or credentials: both come in as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import httpx
from pydantic import ValidationError

from schemas.accounts import Account, Capabilities
from schemas.errors import SettingsRefused
from schemas.fingerprints import FingerprintKeys
from schemas.ids import Channel
from sinks.providers import postmark, simulated, twilio
from sinks.providers.adapter import Adapter, Options, Parts
from sinks.providers.base import Provider
from sinks.providers.credentials import Credential
from sinks.providers.http import CONNECTIONS_MAX, Http

ADAPTERS: dict[str, Adapter] = {
    one.name: one for one in (simulated.ADAPTER, postmark.ADAPTER, twilio.ADAPTER)
}

# What an account may say of itself whatever the documents promise: its own rates.
_OWN = frozenset({"submits_per_s", "lookups_per_s"})
_LATER_IS_LESS = frozenset({"visibility_delay_ms"})  # a longer delay promises less
_TRUE_IS_LESS = frozenset({"destructive_reads"})


def adapter_of(provider: str) -> Adapter:
    """Raises `SettingsRefused` for a provider nobody wrote an adapter for."""
    found = ADAPTERS.get(provider)
    if found is None:
        raise SettingsRefused([f"no adapter named {provider} (known: {', '.join(sorted(ADAPTERS))})"])
    return found


def channel_of(provider: str, given: object) -> object:
    """The channel of an account that names none, when its provider has one only."""
    channels = ADAPTERS[provider].channels if provider in ADAPTERS else frozenset(Channel)
    return next(iter(channels)).value if given is None and len(channels) == 1 else given


def capabilities(account: Account, given: frozenset[str]) -> Capabilities:
    """What holds for the account: the documents', narrowed by what the account itself says (`given`).

    Raises `SettingsRefused` naming every field that promises more than the provider documents, and a
    provider that does not have this channel.
    """
    adapter = adapter_of(account.provider)
    if account.channel not in adapter.channels:
        raise SettingsRefused([f"{account.name}: {adapter.name} does not send {account.channel.value}"])
    documented = adapter.capabilities
    if documented is None:
        return account.capabilities
    own = {name: getattr(account.capabilities, name) for name in given}
    more = sorted(name for name, value in own.items() if _promises_more(name, value, documented))
    if more:
        raise SettingsRefused(
            [
                f"{account.name}: {adapter.name} documents {name} = {_shown(getattr(documented, name))}; an "
                "account may promise less, not more"
                for name in more
            ]
        )
    return documented.model_copy(update=own)


def _promises_more(name: str, value: Any, documented: Capabilities) -> bool:
    if name in _OWN:
        return False
    says = getattr(documented, name)
    less = name in _LATER_IS_LESS | _TRUE_IS_LESS
    return bool(value < says if less else value > says)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def options_of(account: Account, given: Mapping[str, Any]) -> Options:
    """The account's own options, checked. Raises `SettingsRefused` with every field, values not quoted."""
    kind = adapter_of(account.provider).options
    try:
        return kind.model_validate(given)
    except ValidationError as exc:
        known = ", ".join(kind.model_fields)
        raise SettingsRefused(
            [
                f"{account.name}: options.{'.'.join(map(str, e['loc']))}: {e['msg']} (known: {known})"
                for e in exc.errors(include_input=False, include_url=False)
            ]
        ) from None


def build(
    account: Account,
    *,
    credential: Credential,
    monotonic: Callable[[], float],
    base_url: str = "",
    options: Mapping[str, Any] | None = None,
    fingerprints: FingerprintKeys | None = None,
    connections_max: int = CONNECTIONS_MAX,
    transport: httpx.BaseTransport | None = None,
) -> Provider:
    """The adapter of one account. `base_url` empty: the provider's own. `connections_max` is how many calls
    the owner makes at once.

    Raises `SettingsRefused` for a provider nobody wrote an adapter for, options that are none, or an address
    that is not one.
    """
    adapter, chosen = adapter_of(account.provider), options_of(account, options or {})

    def http_for(address: str) -> Http:
        try:
            return Http(
                address,
                monotonic=monotonic,
                headers=credential.header(),
                auth=credential.auth,
                connections_max=connections_max,
                transport=transport,
            )
        except ValueError as exc:
            raise SettingsRefused([f"account {account.name}: {exc}"]) from None

    http = http_for(base_url or adapter.base_url.format_map(chosen.model_dump()))
    return adapter.make(Parts(account, http, chosen, credential, fingerprints, http_for))
