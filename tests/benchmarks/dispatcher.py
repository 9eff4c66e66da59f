"""`python -m tests.benchmarks.dispatcher`: what a claim costs beside the bare HTTP call, on a real Postgres.

The same work by the same number of threads of one process, to the same simulated provider: once the call
alone, rendered beforehand, and once the whole handler. «render» is prepare without unsealing: destination,
fingerprints, both checks of the binding, the text, its digest. Times are reported, never judged; exit code
1 when an order was not accepted, because then something else was measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from compose import keys, wiring
from compose import settings as configuration
from compose.clock import SystemClock, random_id
from compose.local.database import Database as LocalDatabase
from compose.settings import Settings
from schemas.attempt import AttemptState
from schemas.budget import AMOUNT_MAX, COUNT_MAX, Budgets
from schemas.control import Controls
from schemas.destinations import EmailAddress, PhoneNumber
from schemas.dispatch import Dispatch
from schemas.ids import Channel, dispatch_key
from schemas.sealed import Binding, Payload, seal
from sinks.dispatcher import prepare
from sinks.dispatcher.claims import PostgresClaims
from sinks.dispatcher.handle import Dispatcher
from sinks.dispatcher.ports import Limits, Ports
from tests.benchmarks import report
from tests.integration.guard_rig import EMAIL, POLICY, SMS, VARIABLES, Rig, rig

NUMBERS = 100  # of the fictional range, delivered at once
CALL_MS, LEASE_MS, SKEW_MS = 10_000, 30_000, 2_000
STEPS = ("unseal", "render", "claim", "begin", "call", "finish")


@dataclass(frozen=True, slots=True)
class Measured:
    """One channel with so many threads. `shares`: of the time spent in the handler, by step."""

    channel: str
    threads: int
    orders: int
    bare_per_s: float
    whole_per_s: float
    bare_ms: float
    whole_ms: float
    shares: dict[str, float]
    accepted: int

    @property
    def ratio(self) -> float:
        return self.whole_per_s / self.bare_per_s


class Watch:
    """Time by step, over all threads."""

    def __init__(self) -> None:
        self.spent_s: dict[str, list[float]] = defaultdict(list)

    def over(self, step: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*given, **named)
            finally:
                self.spent_s[step].append(time.perf_counter() - started)

        return timed

    def total(self, step: str) -> float:
        return sum(self.spent_s[step])


def orders_of(one: Rig, channel: Channel, count: int) -> list[Dispatch]:
    """Intents of their own, sealed as a service does; an hour to go."""
    held, now_ms = keys.publisher_keys(one.folder / "keys"), SystemClock().now_ms()
    made = []
    for number in range(count):
        intent_id = f"bench-{random_id()[:16]}"
        email = EmailAddress.parse(f"delivered+{intent_id}@example.com")
        phone = PhoneNumber.parse(f"+4477009000{number % NUMBERS:02d}")
        prints = (held.fingerprints.of(email), held.fingerprints.of(phone))
        times = (now_ms - 1, now_ms + 3_600_000)
        binding = Binding(intent_id, "tenant-0001", "password_reset", POLICY, *times, *prints)
        made.append(
            Dispatch(
                decision_id=f"{intent_id}:1",
                intent_id=intent_id,  # type: ignore[arg-type]
                tenant="tenant-0001",
                purpose="password_reset",
                policy=POLICY,
                template="password_reset:v1",
                channel=channel,
                dispatch_key=dispatch_key(intent_id, channel),
                submission_no=1,
                provider_account=EMAIL if channel is Channel.EMAIL else SMS,
                locale="en",
                country="GB",
                email_fingerprint=prints[0],
                sms_fingerprint=prints[1],
                deadline_ms=times[0],
                expiry_ms=times[1],
                not_after_ms=times[1],
                ordered_at_ms=now_ms,
                sealed=seal(Payload(email.reveal(), phone.reveal(), VARIABLES), binding, held.sealing),
            )
        )
    return made


def never_reached(limits: Budgets) -> Budgets:
    """The same limits, so that the same scopes are counted, none of which so many orders can reach."""
    return limits.model_copy(
        update={
            "spend": tuple(s.model_copy(update={"amount_max": AMOUNT_MAX}) for s in limits.spend),
            "velocity": tuple(v.model_copy(update={"count_max": COUNT_MAX}) for v in limits.velocity),
            "completion": tuple(
                c.model_copy(update={"floor_day": COUNT_MAX, "floor_hour": COUNT_MAX})
                for c in limits.completion
            ),
        }
    )


@contextmanager
def ports_of(settings: Settings, threads: int) -> Iterator[Ports]:
    """As `compose.wiring` builds them; no completions or controls reach them."""
    held = keys.dispatcher_keys(settings.keys)
    with closing(wiring.guard(settings, size_max=threads + 1)) as database:
        yield Ports(
            claims=PostgresClaims(database, never_reached(configuration.budgets(settings))),
            providers=wiring.providers(settings, connections_max=threads),
            preparer=prepare.Preparer(
                unsealing=held.unsealing,
                fingerprints=held.fingerprints,
                digest_key=held.digest_key,
                templates=configuration.templates(settings),
            ),
            prices=configuration.prices(settings),
            clock=SystemClock(),
            new_id=random_id,
            controls=Controls,
            completions_read=lambda: True,
            clock_trusted=lambda: True,
        )


def measured(one: Rig, settings: Settings, channel: Channel, threads: int, count: int) -> Measured:
    """The bare calls first, then the handler; each after a few orders that warm both up."""
    with ports_of(settings, threads) as ports:
        _bare(ports, orders_of(one, channel, threads * 2), threads)
        bare_s = _bare(ports, orders_of(one, channel, count), threads)
        dispatcher, watch = Dispatcher(ports, Limits(LEASE_MS, CALL_MS, SKEW_MS)), Watch()
        _whole(dispatcher, orders_of(one, channel, threads * 2), threads, Watch())
        with _watched(ports, channel, watch):
            whole_s, accepted = _whole(dispatcher, orders_of(one, channel, count), threads, watch)
    inside = watch.total("handle")
    shares = {step: watch.total(step) / inside for step in STEPS}
    return Measured(
        channel=channel.value,
        threads=threads,
        orders=count,
        bare_per_s=count / bare_s,
        whole_per_s=count / whole_s,
        bare_ms=1000 * bare_s * threads / count,
        whole_ms=1000 * inside / count,
        shares=shares | {"rest": 1 - sum(shares.values())},
        accepted=accepted,
    )


def _bare(ports: Ports, orders: list[Dispatch], threads: int) -> float:
    """Seconds for the calls alone."""
    ready = []
    for order in orders:
        found = ports.preparer.prepare(order)
        assert isinstance(found, prepare.Prepared)
        ready.append((order, found.submission(f"{order.dispatch_key}.bare", ttl_ms=60_000)))

    def call(given: tuple[Dispatch, Any]) -> None:
        order, submission = given
        ports.providers[order.provider_account].submit(
            submission, now_ms=ports.clock.now_ms(), timeout_ms=CALL_MS
        )

    return _timed(call, ready, threads)


def _whole(dispatcher: Dispatcher, orders: list[Dispatch], threads: int, watch: Watch) -> tuple[float, int]:
    """Seconds for the whole handler, and how many it brought to `accepted`."""
    states: list[AttemptState] = []
    handle = watch.over("handle", dispatcher.handle)

    def work(order: Dispatch) -> None:
        states.extend(attempt.state for attempt in handle(order).attempts)

    return _timed(work, orders, threads), states.count(AttemptState.ACCEPTED)


def _timed(work: Callable[[Any], None], given: list[Any], threads: int) -> float:
    with ThreadPoolExecutor(threads) as pool:
        started = time.perf_counter()
        list(pool.map(work, given))
        return time.perf_counter() - started


@contextmanager
def _watched(ports: Ports, channel: Channel, watch: Watch) -> Iterator[None]:
    """A clock around each step; the steps themselves are the product's."""
    claims: Any = ports.claims
    account: Any = ports.providers[EMAIL if channel is Channel.EMAIL else SMS]
    module: Any = prepare
    kept, shown = module.unseal, ports.preparer
    module.unseal = watch.over("unseal", kept)
    whole = watch.over("prepare", shown.prepare)
    named = {"claim": claims.claim, "begin": claims.begin, "finish": claims.finish}
    submit = account.submit
    for name, call in named.items():
        setattr(claims, name, watch.over(name, call))
    account.submit = watch.over("call", submit)
    shown.prepare = whole  # type: ignore[method-assign]
    try:
        yield
    finally:
        module.unseal = kept
        watch.spent_s["render"] = [watch.total("prepare") - watch.total("unseal")]


def lines(about: dict[str, Any], found: list[Measured]) -> Iterator[str]:
    yield ", ".join(f"{name} {value}" for name, value in about.items())
    yield f"{'':14}{'bare/s':>9}{'whole/s':>9}{'ratio':>7}{'bare ms':>9}{'whole ms':>9}  share of the handler"
    for one in found:
        rates = f"{one.bare_per_s:9.0f}{one.whole_per_s:9.0f}{one.ratio:7.2f}"
        shares = ", ".join(f"{step} {share:.0%}" for step, share in one.shares.items())
        yield f"{one.channel:<6}{one.threads:>2} thr. {rates}{one.bare_ms:9.1f}{one.whole_ms:9.1f}  {shares}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.dispatcher", description=__doc__)
    parser.add_argument("--orders", type=int, default=2_000, help="per channel and number of threads")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
    given = parser.parse_args()
    about, found = report.machine(), []
    with tempfile.TemporaryDirectory(prefix="backstop-bench-") as name:
        local = LocalDatabase(Path(name) / "postgres")
        local.start(lambda sentence: print(f"… {sentence}", file=sys.stderr, flush=True))
        try:
            with rig("127.0.0.1:9", local.dsn, Path(name) / "run") as one:
                settings = Settings.model_validate(
                    {k.removeprefix("BACKSTOP_").lower(): v for k, v in one.environment.items()}
                )
                for channel in (Channel.EMAIL, Channel.SMS):
                    found += [measured(one, settings, channel, n, given.orders) for n in given.threads]
        finally:
            local.stop()
    if given.json:
        print(
            json.dumps(
                {"about": about, "measured": [asdict(m) | {"ratio": m.ratio} for m in found]}, indent=2
            )
        )
    else:
        print("\n".join(lines(about, found)))
    return 0 if all(m.accepted == m.orders for m in found) else 1


if __name__ == "__main__":
    sys.exit(main())
