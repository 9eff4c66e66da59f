"""What a provider account can and cannot promise, as data the machine's ladder reads.

It must not hold a credential or a base address: those are settings of the process that calls.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.ids import AccountName, Channel, Milliseconds
from schemas.record import Model


class Capabilities(Model):
    """Declared by an adapter, taken from the provider's documents (PROVIDERS.md §0.2).

    The machine reads the first six and the rates are kept by the processes that call; the rest is told by
    `backstop providers`. `lookup_by_reference`: the provider, or a list of its own that we search, finds a
    message without its id.
    """

    idempotent_submit: bool = False
    idempotency_window_ms: Milliseconds = 0  # how long a key is remembered; less a safety margin
    lookup_by_message_id: bool = False
    lookup_by_reference: bool = False
    lookup_batch_max: Annotated[int, Field(ge=1, le=1000)] = 1
    visibility_delay_ms: Milliseconds = 0  # until then «not found» says nothing
    destructive_reads: bool = False  # an answer is told once, so a lost one is gone
    cancel: bool = False  # of a message that is on its way
    suppression_list: bool = False  # the provider's own can be read
    time_to_live: bool = False  # the provider gives up when the message is of no more use
    price_cap: bool = False  # the provider refuses what would cost more
    sandbox: bool = False  # documented test recipients or a mode that sends nothing
    submits_per_s: Annotated[float, Field(gt=0, le=100_000)] = 10.0
    lookups_per_s: Annotated[float, Field(gt=0, le=100_000)] = 10.0


class Account(Model):
    """One account at one provider, for one channel."""

    name: AccountName
    provider: AccountName
    channel: Channel
    capabilities: Capabilities
