"""What an SMS will cost, from its very text and number.

Segments of the text that will be sent, times the price of the number's country at this moment; a country
without a price has no cost, and gets no SMS. It must not count or judge.
"""

from __future__ import annotations

from schemas.dispatch import Dispatch
from schemas.price import Prices
from sinks.dispatcher.prepare import Prepared
from sinks.dispatcher.spend import Cost


def cost_of(order: Dispatch, prepared: Prepared, prices: Prices, now_ms: int) -> Cost | None:
    """None: nobody said what a segment costs there."""
    price = prices.per_segment(order.country or "", now_ms)
    if price is None:
        return None
    return Cost(
        tenant=order.tenant,
        country=order.country or "",
        purpose=order.purpose,
        number_range=prepared.number_range,
        is_instant=order.ordered_at_ms < order.deadline_ms,
        segments=prepared.segments,
        amount=price * prepared.segments,
        currency=prices.currency,
    )
