"""Is there an order of requests that changes a message's fate, or a repetition that sends a message twice?"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compose.simulator.behaviour import Model, Reply, Request
from compose.simulator.ledger import stored
from compose.simulator.plots import EMAIL_PLOTS
from schemas.accounts import Account, Capabilities
from schemas.ids import Channel

T0 = 1_790_000_000_000
WINDOW_MS = 10_000
LOOKUPS = Capabilities(lookup_by_message_id=True, lookup_by_reference=True)
KEYED = LOOKUPS.model_copy(update={"idempotent_submit": True, "idempotency_window_ms": WINDOW_MS})
NAMES = st.sampled_from([*sorted(EMAIL_PLOTS), "person1", "person2", "lost-3", "throttle-1"])
References = st.integers(0, 5).map(lambda n: f"int-{n:04d}.email")


def model(caps: Capabilities, seed: int) -> Model:
    account = Account(name="mail", provider="simulated", channel=Channel.EMAIL, capabilities=caps)
    return Model({"mail": account}, seed=seed)


def post(one: Model, reference: str, name: str, at: int, body: bytes = b"{}") -> Reply:
    return one.submit(Request("mail", reference, f"{name}@example.com", body, reference), T0 + at)


def seen(reply: Reply) -> tuple[Any, ...]:
    return reply.code, dict(reply.body), dict(reply.headers), reply.wire, reply.delay_ms


@st.composite
def two_orders(draw: st.DrawFn) -> tuple[dict[str, str], list[str], list[str]]:
    """Who gets what, and the same submissions interleaved in two ways."""
    fates = draw(st.dictionaries(References, NAMES, min_size=1))
    order = draw(st.lists(st.sampled_from(sorted(fates)), min_size=1, max_size=20))
    return fates, order, draw(st.permutations(order))


@given(two_orders(), st.integers(0, 3), st.sampled_from([KEYED, LOOKUPS]))
def test_what_becomes_of_a_message_does_not_depend_on_what_else_happens(
    orders: tuple[dict[str, str], list[str], list[str]], seed: int, caps: Capabilities
) -> None:
    fates, *both = orders
    told = []
    for order in both:
        one = model(caps, seed)
        replies: dict[str, list[Any]] = {}
        for reference in order:
            replies.setdefault(reference, []).append(seen(post(one, reference, fates[reference], at=0)))
        found = {m["id"]: m for m in one.transitions(T0 + 60_000)}
        told.append((replies, found, one.duplicates()))
    assert told[0] == told[1]


@given(st.lists(st.tuples(References, NAMES, st.integers(0, 3), st.booleans()), max_size=30), st.data())
def test_within_the_window_one_key_is_one_message_whatever_is_repeated(
    asked: list[tuple[str, str, int, bool]], data: st.DataObject
) -> None:
    one = model(KEYED, 1)
    times = sorted(data.draw(st.integers(0, WINDOW_MS - 1)) for _ in asked)
    first_ids: dict[str, tuple[str, bytes]] = {}
    for (reference, name, variant, _), at in zip(asked, times, strict=True):
        body = f"{name}/{variant}".encode()
        reply = post(one, reference, name, at, body)
        entry = one.ledger[-1]
        if reference not in first_ids:
            assert not entry.replayed
            if entry.took is not None:
                first_ids[reference] = (entry.took, body)
            continue
        first_id, first_body = first_ids[reference]
        if body != first_body:
            assert (reply.code, reply.body["code"], entry.took) == (409, "idempotency_mismatch", None)
        elif reply.code == 409:
            assert (reply.body["code"], entry.took) == ("in_progress", None)
            assert int(reply.headers["Retry-After"]) >= 1
        else:
            assert (reply.body["id"], entry.took, entry.replayed) == (first_id, first_id, True)
    assert one.duplicates() == []


@given(st.lists(st.tuples(References, NAMES), max_size=20), st.integers(0, 20))
def test_a_restart_at_any_moment_changes_nothing(asked: list[tuple[str, str]], cut: int) -> None:
    fates: dict[str, str] = {}
    through, resumed = model(KEYED, 1), model(KEYED, 1)
    for number, (reference, name) in enumerate(asked):
        if number == cut:
            resumed = model(KEYED, 1)
            resumed.restore([stored(e) for e in through.ledger])
        name = fates.setdefault(reference, name)
        replies = [seen(post(one, reference, name, at=number * 700)) for one in (through, resumed)]
        assert replies[0] == replies[1]
    assert through.lines() == resumed.lines()
    assert through.transitions(T0 + 60_000) == resumed.transitions(T0 + 60_000)


@given(NAMES, st.lists(st.integers(0, 40_000), min_size=1, max_size=20))
def test_a_look_up_tells_the_last_thing_that_had_happened(name: str, times: list[int]) -> None:
    one = model(LOOKUPS, 1)
    for _ in range(4):
        post(one, "int-0001.email", name, at=0)
    for message in one.transitions(T0 + 60_000):
        for at in times:
            reply = one.look_up("mail", message["id"], T0 + at)
            if reply.body.get("id") != message["id"]:
                continue  # a scripted fault of the look-up, or not visible yet
            happened = [t for t in message["transitions"] if t["at_ms"] <= T0 + at]
            assert (reply.body["status"], reply.body["at_ms"]) == (
                happened[-1]["status"],
                happened[-1]["at_ms"],
            )
