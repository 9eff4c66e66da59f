"""Provider name → adapter. The only place that knows which adapters exist.

It must not read settings or credentials: both come in as arguments.
"""

from __future__ import annotations

from collections.abc import Callable

from schemas.accounts import Account
from schemas.errors import SettingsRefused
from sinks.providers.base import Provider
from sinks.providers.credentials import BearerToken
from sinks.providers.http import CONNECTIONS_MAX, Http
from sinks.providers.simulated import SimulatedProvider

ADAPTERS: dict[str, Callable[[Account, Http], Provider]] = {
    "simulated": SimulatedProvider,
}


def build(
    account: Account,
    *,
    base_url: str,
    credential: BearerToken,
    monotonic: Callable[[], float],
    connections_max: int = CONNECTIONS_MAX,
) -> Provider:
    """The adapter of one account. `connections_max` is how many calls the owner makes at once.

    Raises `SettingsRefused` for a provider nobody wrote an adapter for, or an address that is not one.
    """
    adapter = ADAPTERS.get(account.provider)
    if adapter is None:
        known = ", ".join(sorted(ADAPTERS))
        raise SettingsRefused(
            [f"account {account.name}: no adapter named {account.provider} (known: {known})"]
        )
    try:
        http = Http(
            base_url, monotonic=monotonic, headers=credential.header(), connections_max=connections_max
        )
    except ValueError as exc:
        raise SettingsRefused([f"account {account.name}: {exc}"]) from None
    return adapter(account, http)
