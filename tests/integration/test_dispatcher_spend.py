"""SMS pumping and the last unit of a budget (F16, F18, F38), through the real handler on a real guard."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from compose.clock import SystemClock, random_id
from schemas.accounts import Account, Capabilities
from schemas.attempt import Attempt, AttemptState
from schemas.budget import Budgets, shipped
from schemas.control import Controls
from schemas.ids import Channel
from schemas.price import Prices, parse, released
from schemas.reasons import Reason
from schemas.sealed import UnsealingKeys
from schemas.templates.registry import shipped as shipped_templates
from sinks.dispatcher.claims import PostgresClaims
from sinks.dispatcher.handle import Dispatcher
from sinks.dispatcher.ports import Limits, Ports
from sinks.dispatcher.prepare import Preparer
from sinks.dispatcher.spend import HOUR_MS
from sinks.postgres.migrate import migrate
from sinks.postgres.pool import Database
from tests.budgets import spend
from tests.fakes_provider import ScriptedProvider
from tests.orders import PRINTS, PRIVATE, VARIABLES, order

INTENTS = 300
RACERS = 8


class Site:
    """One guard, one text provider, and as many dispatchers as a test wants."""

    def __init__(self, dsn: str) -> None:
        self.clock = SystemClock()
        self.database = Database(dsn, size_max=2 * RACERS)
        self.prices = Prices(released())
        self.text = ScriptedProvider(
            Account(name="text-a", provider="simulated", channel=Channel.SMS, capabilities=Capabilities())
        )

    def dispatcher(self, budgets: Budgets, fault: Callable[[str], None] = lambda _point: None) -> Dispatcher:
        ports = Ports(
            claims=PostgresClaims(self.database, budgets, fault=fault),
            providers={"text-a": self.text},
            preparer=Preparer(
                unsealing=UnsealingKeys([PRIVATE]),
                fingerprints=PRINTS,
                digest_key=b"d" * 32,
                templates=shipped_templates(),
            ),
            prices=self.prices,
            clock=self.clock,
            new_id=random_id,
            controls=Controls,
            completions_read=lambda: True,
            clock_trusted=lambda: True,
        )
        return Dispatcher(ports, Limits(lease_ms=30_000, call_timeout_ms=10_000, clock_skew_ms_max=2_000))

    def ask(self, one: Dispatcher, name: str, phone: str, number: int = 1, **changes: Any) -> Attempt:
        """The Attempt of an order given now: its e-mail has bounced, long before its deadline."""
        given = order(
            number,
            Channel.SMS,
            t0=self.clock.now_ms(),
            intent_id=f"int-{name}-test",
            payload_phone=phone,
            **changes,
        )
        (found,) = one.handle(given).attempts
        return found

    def completed(self, budgets: Budgets, *names: str) -> None:
        PostgresClaims(self.database, budgets).write_facts(
            closed=[(f"int-{n}-test", Reason.COMPLETED) for n in names],
            suppressed=[],
            lifted=[],
            progress={},
        )

    def in_one_hour(self, story: Callable[[], None]) -> None:
        """The windows are clock hours: a story over which one ends is told again from the start."""
        while True:
            hour = self.clock.now_ms() // HOUR_MS
            failed: AssertionError | None = None
            try:
                story()
            except AssertionError as exc:
                failed = exc
            if self.clock.now_ms() // HOUR_MS == hour:
                if failed is not None:
                    raise failed
                return
            with self.database.transaction() as cursor:
                cursor.execute(b"TRUNCATE claims, sms_spend, closed")
            self.text.submitted.clear()


@pytest.fixture
def site(fresh_dsn: str) -> Iterator[Site]:
    migrate(fresh_dsn)
    made = Site(fresh_dsn)
    yield made
    made.database.close()


def fiction(number: int) -> str:
    """All of one range."""
    return f"+447700900{number:03}"


def american(number: int) -> str:
    return f"+120255501{number:02}"


def without(budgets: Budgets, *names: str) -> Budgets:
    return Budgets(
        currency=budgets.currency,
        spend=tuple(x for x in budgets.spend if x.name not in names),
        velocity=tuple(x for x in budgets.velocity if x.name not in names),
        completion=tuple(x for x in budgets.completion if x.name not in names),
    )


def counted(found: list[Attempt]) -> Counter[tuple[str, str | None, tuple[str, ...] | None]]:
    return Counter((a.state.value, a.reason and a.reason.value, a.limits) for a in found)


def test_of_300_intents_to_numbers_of_one_range_twenty_get_an_sms_an_hour(site: Site) -> None:
    """Case F38 under the shipped budgets: what stops it first is the range."""

    def story() -> None:
        one = site.dispatcher(shipped())
        found = counted([site.ask(one, f"{n:04}", fiction(n)) for n in range(INTENTS)])
        assert found == {
            ("accepted", None, None): 20,
            ("held", "velocity_exceeded", ("range_hour",)): 280,
        }
        assert len(site.text.submitted) == 20
        assert site.ask(one, "other", american(1)).state is AttemptState.ACCEPTED

    site.in_one_hour(story)


def test_without_completions_the_breaker_opens_after_thirty_and_other_countries_go_on(site: Site) -> None:
    """Case F38 for a fraud with numbers of many ranges: the hour's floor of the shipped breaker is 30."""
    budgets = without(shipped(), "range_hour")

    def story() -> None:
        one = site.dispatcher(budgets)
        found = [site.ask(one, f"{n:04}", fiction(n)) for n in range(INTENTS)]
        assert [a.state for a in found[:30]] == [AttemptState.ACCEPTED] * 30
        assert counted(found[30:]) == {("held", "breaker_open", ("unfinished",)): INTENTS - 30}
        others = [site.ask(one, f"us-{n:04}", american(n)) for n in range(10)]
        assert {a.state for a in others} == {AttemptState.ACCEPTED}

        # People who do what the message is for open it again, one for one.
        site.completed(budgets, *(f"{n:04}" for n in range(5)))
        later = [site.ask(one, f"{n:04}", fiction(n), 2, after_unknown=False) for n in range(30, 40)]
        assert [a.state for a in later].count(AttemptState.ACCEPTED) == 5

    site.in_one_hour(story)


def test_what_bounces_at_once_has_a_tighter_limit_and_what_is_due_does_not(site: Site) -> None:
    budgets = without(shipped(), "range_hour", "unfinished")

    def story() -> None:
        one = site.dispatcher(budgets)
        found = counted([site.ask(one, f"{n:04}", fiction(n)) for n in range(60)])
        assert found == {
            ("accepted", None, None): 50,
            ("held", "velocity_exceeded", ("instant_tenant_hour",)): 10,
        }
        late_ms = site.clock.now_ms() + 60_000  # ordered at its deadline
        due = site.ask(one, "0055", fiction(55), 2, ordered_at_ms=late_ms, after_unknown=False)
        assert due.state is AttemptState.ACCEPTED

    site.in_one_hour(story)


def test_of_dispatchers_that_race_for_the_last_unit_one_sends(site: Site) -> None:
    """Through the handler, again and again: the cap is never passed, and what is held was not sent."""
    price = Decimal("0.05")
    for turn in range(5):
        budgets = spend(str(price * (turn + 1)))
        racers = [site.dispatcher(budgets) for _ in range(RACERS)]
        start, found = threading.Barrier(RACERS), list[Attempt]()

        def race(number: int, one: Dispatcher) -> None:
            start.wait()  # noqa: B023  joined before the next turn
            found.append(site.ask(one, f"{turn}-{number:03}", fiction(turn * 10 + number)))  # noqa: B023

        threads = [threading.Thread(target=race, args=given) for given in enumerate(racers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        states = Counter(a.state for a in found)
        assert states == {AttemptState.ACCEPTED: 1, AttemptState.HELD: RACERS - 1}
        assert len(site.text.submitted) == turn + 1
        with site.database.transaction() as cursor:
            row = cursor.execute(b"SELECT sum(amount) AS spent FROM sms_spend WHERE scope = 'all'").fetchone()
        assert row is not None
        assert row["spent"] == price * (turn + 1)


def test_the_row_of_a_claim_says_how_many_segments_at_what_price_and_the_cap_counts_them(
    site: Site,
) -> None:
    """Case F16: a link of 120 characters makes two segments of the text."""
    long = VARIABLES | {"link": "https://app.example/r?t=" + "c" * 120}
    assert site.ask(site.dispatcher(spend("0.09")), "0001", fiction(1), payload_variables=long).reason is (
        Reason.SPEND_EXHAUSTED
    )
    found = site.ask(site.dispatcher(spend("0.10")), "0002", fiction(2), payload_variables=long)
    assert found.state is AttemptState.ACCEPTED
    with site.database.transaction() as cursor:
        rows = cursor.execute(b"SELECT country, purpose, segments, amount, currency FROM claims").fetchall()
    assert rows == [
        {
            "country": "GB",
            "purpose": "password_reset",
            "segments": 2,
            "amount": Decimal("0.10"),
            "currency": "EUR",
        }
    ]


def test_a_country_nobody_priced_gets_no_sms(site: Site) -> None:
    """Case F18: Canada is not the United States, though both are +1."""
    site.prices = Prices(
        [
            parse(
                'table = "sms:v1"\ncurrency = "EUR"\nvalid_from = 2026-01-01T00:00:00Z\n'
                '[per_segment]\nUS = "0.02"\n',
                name="only the United States",
            )
        ]
    )
    one = site.dispatcher(shipped())
    canada = site.ask(one, "0001", "+16135550123")
    assert (canada.state, canada.reason) == (AttemptState.REFUSED, Reason.COUNTRY_NOT_PRICED)
    assert site.ask(one, "0002", american(1)).state is AttemptState.ACCEPTED


def test_a_completion_that_comes_while_the_claim_waits_for_the_counts_is_seen(site: Site) -> None:
    """The clock and the facts are read again once the counts are ours."""
    waiting, budgets = threading.Event(), spend("1.00")
    found: list[Attempt] = []
    one = site.dispatcher(budgets)
    with site.database.transaction() as cursor:
        cursor.execute(b"SELECT pg_advisory_xact_lock(hashtextextended('all', 2))")

        def claim() -> None:
            waiting.set()
            found.append(site.ask(one, "0001", fiction(1)))

        thread = threading.Thread(target=claim)
        thread.start()
        assert waiting.wait(30.0)
        _until(lambda: _waits_for_a_lock(site.database))
        site.completed(budgets, "0001")
    thread.join(30.0)
    assert [(a.state, a.reason) for a in found] == [(AttemptState.REFUSED, Reason.COMPLETED)]
    with site.database.transaction() as cursor:
        assert cursor.execute(b"SELECT 1 FROM claims").fetchone() is None
    assert site.text.submitted == []


def test_a_dispatcher_that_stands_still_in_its_claim_does_not_keep_the_others_from_theirs(site: Site) -> None:
    """All SMS claims share a lock: whoever is frozen with it loses it within seconds, and claims nothing."""
    stands, go_on = threading.Event(), threading.Event()

    def fault(point: str) -> None:
        if point == "in_claim":
            stands.set()
            assert go_on.wait(60.0)

    found: list[Attempt] = []
    frozen = site.dispatcher(spend("0.05"), fault)
    thread = threading.Thread(target=lambda: found.append(site.ask(frozen, "0001", fiction(1))))
    thread.start()
    try:
        assert stands.wait(30.0)
        other = site.ask(site.dispatcher(spend("0.05")), "0002", fiction(2))
        assert other.state is AttemptState.ACCEPTED
    finally:
        go_on.set()
        thread.join(30.0)
    assert [a.reason for a in found] == [Reason.SPEND_EXHAUSTED]  # asked again, and there was none left
    assert len(site.text.submitted) == 1


def _waits_for_a_lock(database: Database) -> bool:
    with database.transaction() as cursor:
        asked = b"SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        return cursor.execute(asked).fetchone() is not None


def _until(true: Callable[[], bool]) -> None:
    again = threading.Event()
    for _ in range(600):
        if true():
            return
        again.wait(0.05)
    raise AssertionError("it never came true")
