"""What a provider account can and cannot promise, as data the machine's ladder reads.

It must not hold a credential or a base address: those are settings of the process that calls.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.ids import AccountName, Channel, Milliseconds
from schemas.record import Model


class Capabilities(Model):
    """Declared by an adapter, taken from the provider's documents (PROVIDERS.md §0.2)."""

    idempotent_submit: bool = False
    idempotency_window_ms: Milliseconds = 0  # how long a key is remembered; less a safety margin
    lookup_by_message_id: bool = False
    lookup_by_reference: bool = False
    lookup_batch_max: Annotated[int, Field(ge=1, le=1000)] = 1
    visibility_delay_ms: Milliseconds = 0  # until then «not found» says nothing
    destructive_reads: bool = False
    submits_per_s: Annotated[float, Field(gt=0, le=100_000)] = 10.0
    lookups_per_s: Annotated[float, Field(gt=0, le=100_000)] = 10.0


class Account(Model):
    """One account at one provider, for one channel."""

    name: AccountName
    provider: AccountName
    channel: Channel
    capabilities: Capabilities
