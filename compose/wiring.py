"""Builds each process from settings: the only place that knows all the parts.

It must not decide anything, and each function hands a process only what it needs: the worker and the
auditor never see a private key. `fault` has no setting: a test build passes one (tests/acceptance/crash).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from starlette.applications import Starlette

from compose import keys, probes
from compose import settings as configuration
from compose.clock import SystemClock, random_id
from compose.metrics import PrometheusMeter
from compose.probes import Beat
from compose.settings import REPLAY_PREFIX, ProviderAccount, Settings
from compose.simulator.behaviour import Model
from compose.simulator.dialects import ID_SHAPES
from compose.simulator.server import create_app
from schemas.accounts import Account
from schemas.budget import Budgets
from schemas.control_board import ControlBoard
from schemas.errors import PreflightFailed, SettingsRefused
from schemas.fingerprints import FingerprintKeys
from schemas.metrics import NO_METER, PARKED, PENDING_S, Meter
from schemas.record import TopicKind
from schemas.topics import TopicNames
from sinks.audit.loop import AuditorLoop
from sinks.dispatcher.claims import PostgresClaims
from sinks.dispatcher.facts import ClockGuard, CompletionsRead, FactsReader
from sinks.dispatcher.handle import Dispatcher
from sinks.dispatcher.loop import DispatcherLoop
from sinks.dispatcher.ports import Limits, Ports
from sinks.dispatcher.prepare import Preparer
from sinks.kafka import admin
from sinks.kafka.consumer import Ends
from sinks.kafka.letters import Letters
from sinks.kafka.producer import Publisher
from sinks.poller.handle import Poller
from sinks.poller.loop import PollerLoop
from sinks.poller.loop import reader as lookup_reader
from sinks.postgres.migrate import differences as migrations_missing
from sinks.postgres.pool import Database
from sinks.providers.base import Provider
from sinks.providers.credentials import Credential
from sinks.providers.registry import adapter_of
from sinks.providers.registry import build as build_provider
from streams.engine.broadcast import BroadcastReader
from streams.engine.settings import EngineSettings
from streams.worker.app import Worker, build, serve

log = logging.getLogger("backstop")

Fault = Callable[[str], None]  # called by name at durable boundaries, so that a test can die there


def no_fault(_point: str) -> None:
    """What every process runs with."""


def layout(settings: Settings) -> admin.Layout:
    """What a deployment fixes once: names, partition count, replication."""
    return admin.Layout(
        TopicNames(settings.prefix), settings.partitions, settings.replication, settings.min_insync
    )


def preflight(settings: Settings) -> admin.Layout:
    """Templates are as released and topics as the registry wants them; else every difference is named."""
    configuration.templates(settings)
    found = layout(settings)
    differences = admin.verify(settings.kafka, found)
    if differences:
        raise PreflightFailed(differences)
    return found


def refuse_replay(settings: Settings) -> None:
    """Nothing is ever submitted or asked from replayed topics."""
    if settings.prefix.startswith(REPLAY_PREFIX):
        raise SettingsRefused([f"prefix: nothing is dispatched or polled under {REPLAY_PREFIX}"])


def provider_accounts(settings: Settings) -> dict[str, Account]:
    return {name: placed.account for name, placed in configuration.accounts(settings).items()}


def _probed(settings: Settings, meter: PrometheusMeter, look: probes.Look) -> AbstractContextManager[str]:
    """The process answers on its health port until the block ends."""
    return probes.serving(look, meter.exposition, host=settings.health_host, port=settings.health_port)


def worker(settings: Settings, fault: Fault = no_fault, meter: Meter = NO_METER) -> Worker:
    """A worker that has not started."""
    found = preflight(settings)
    session_s = settings.session_timeout_ms / 1000
    engine = EngineSettings(
        app_id=found.names.worker_app_id,
        bootstrap=settings.kafka,
        slot=settings.worker_slot,
        now_ms=SystemClock().now_ms,
        fault=fault,
        session_timeout_s=session_s,
        heartbeat_interval_s=session_s / 6,
        transaction_timeout_ms=settings.transaction_timeout_ms,
        tick_interval_ms=settings.tick_interval_ms,
    )
    return build(
        found.names,
        engine,
        partitions=found.counts(),
        policies=configuration.policies(settings),
        templates=configuration.templates(settings),
        accounts=provider_accounts(settings),
        letter_key=keys.letter_key(settings.keys),
        meter=meter,
    )


def run_worker(settings: Settings, fault: Fault = no_fault) -> int:
    """Until SIGTERM, SIGINT or a failure; the engine's exit code."""
    meter = PrometheusMeter("worker")
    made = worker(settings, fault, meter)
    health, processor = made.app.health, made.processor
    meter.read(PENDING_S, health.pending_s)
    meter.read(PARKED, lambda: processor.parked_in(health.partitions))
    with _probed(settings, meter, health.snapshot):
        return int(serve(made, TopicNames(settings.prefix), bootstrap=settings.kafka))


def credential(placed: ProviderAccount) -> Credential:
    """The account's credential from its file; empty text where the provider needs none."""
    adapter = adapter_of(placed.account.provider)
    file = placed.credential_file
    try:
        return adapter.read_credential("" if file is None else file.read_text("utf-8").strip())
    except (OSError, ValueError):
        where = f"accounts: {placed.account.name}: credential_file"
        refused = SettingsRefused([f"{where} cannot be read or holds no {adapter.credential}"])
        refused.remedy = f"Write the {adapter.credential} on one line of the file that credential_file names."
        raise refused from None


def providers(
    settings: Settings, *, connections_max: int, fingerprints: FingerprintKeys | None = None
) -> dict[str, Provider]:
    """One adapter per configured account."""
    return {
        name: build_provider(
            placed.account,
            base_url=placed.base_url,
            credential=credential(placed),
            options=placed.options,
            fingerprints=fingerprints,
            monotonic=SystemClock().monotonic,
            connections_max=connections_max,
        )
        for name, placed in configuration.accounts(settings).items()
    }


def database_dsn(settings: Settings) -> str:
    """The connection string, which is never guessed from what libpq would take. Raises `SettingsRefused`."""
    dsn = settings.postgres.get_secret_value()
    if not dsn:
        refused = SettingsRefused(["postgres: BACKSTOP_POSTGRES is not set"])
        refused.remedy = (
            "Set it to a libpq connection string; for the local stack: . .backstop/up/environment"
        )
        raise refused
    return dsn


def guard(settings: Settings, *, size_max: int) -> Database:
    """The claim and audit database, migrated; `PreflightFailed` names what is missing."""
    dsn = database_dsn(settings)
    missing = migrations_missing(dsn)
    if missing:
        failed = PreflightFailed(missing)
        failed.remedy = "Run `backstop migrate`."
        raise failed
    return Database(dsn, size_max=size_max)


@contextmanager
def opened(settings: Settings) -> Iterator[Database]:
    """The database for one command. Raises as `guard`."""
    database = guard(settings, size_max=1)
    try:
        yield database
    finally:
        database.close()


def run_dispatcher(settings: Settings, stop: threading.Event, fault: Fault = no_fault) -> None:
    """Until `stop` is set."""
    refuse_replay(settings)
    budgets = configuration.budgets(settings)
    meter = PrometheusMeter("dispatcher", limits=[limit.name for limit in budgets.all()])
    beat = Beat(SystemClock().monotonic)
    with _probed(settings, meter, beat.look):
        _dispatch(settings, stop, fault, budgets=budgets, meter=meter, beat=beat)


def _dispatch(
    settings: Settings, stop: threading.Event, fault: Fault, *, budgets: Budgets, meter: Meter, beat: Beat
) -> None:
    names, clock = preflight(settings).names, SystemClock()
    held, prices = keys.dispatcher_keys(settings.keys), configuration.prices(settings)
    database = guard(settings, size_max=settings.dispatcher_concurrency + 4)
    claims = PostgresClaims(database, budgets, fault=fault)
    board = ControlBoard()
    reader = BroadcastReader(settings.kafka, names[TopicKind.CONTROLS], _take(board), lambda: None)
    facts = FactsReader(settings.kafka, names, claims, session_timeout_ms=settings.session_timeout_ms)
    publisher = Publisher(settings.kafka, client_id="backstop-dispatcher", now_ms=clock.now_ms)
    ports = Ports(
        claims=claims,
        providers=providers(
            settings, connections_max=settings.dispatcher_concurrency, fingerprints=held.fingerprints
        ),
        preparer=Preparer(
            unsealing=held.unsealing,
            fingerprints=held.fingerprints,
            digest_key=held.digest_key,
            templates=configuration.templates(settings),
        ),
        prices=prices,
        clock=clock,
        new_id=random_id,
        controls=lambda: board.controls,
        completions_read=CompletionsRead(
            Ends(settings.kafka),
            names,
            claims,
            wait_s=settings.completions_wait_ms / 1000,
            clock=clock,
        ),
        clock_trusted=ClockGuard(
            claims,
            clock,
            skew_ms_max=settings.clock_skew_ms_max,
            log_apart_ms=lambda: publisher.log_apart_ms,
        ),
    )
    ports.fault, ports.meter = fault, meter
    limits = Limits(settings.lease_ms, settings.call_timeout_ms, settings.clock_skew_ms_max)

    def check() -> None:
        facts.check()
        reader.check()

    reader.start()
    try:
        facts.start()
        DispatcherLoop(
            Dispatcher(ports, limits),
            names,
            bootstrap=settings.kafka,
            publisher=publisher,
            letters=Letters(names, by="dispatcher", key=keys.letter_key(settings.keys)),
            clock=clock,
            concurrency=settings.dispatcher_concurrency,
            session_timeout_ms=settings.session_timeout_ms,
            fault=fault,
            check=check,
            beat=beat,
        ).run(stop)
    finally:
        facts.stop()
        reader.stop()


def run_poller(settings: Settings, stop: threading.Event, fault: Fault = no_fault) -> None:
    """Until `stop` is set."""
    refuse_replay(settings)
    names, clock = preflight(settings).names, SystemClock()
    asked = providers(
        settings,
        connections_max=settings.poller_concurrency,
        fingerprints=keys.publisher_keys(settings.keys).fingerprints,
    )
    meter, beat = PrometheusMeter("poller"), Beat(clock.monotonic)
    with _probed(settings, meter, beat.look):
        PollerLoop(
            Poller(
                asked,
                clock,
                call_timeout_ms=settings.call_timeout_ms,
                concurrency=settings.poller_concurrency,
                meter=meter,
            ),
            names,
            open_reader=lookup_reader(settings.kafka, names, session_timeout_ms=settings.session_timeout_ms),
            publisher=Publisher(settings.kafka, client_id="backstop-poller"),
            letters=Letters(names, by="poller", key=keys.letter_key(settings.keys)),
            clock=clock,
            beat=beat,
            fault=fault,
        ).run(stop)


def run_auditor(settings: Settings, stop: threading.Event, fault: Fault = no_fault) -> None:
    """Until `stop` is set."""
    names = preflight(settings).names
    meter, beat = PrometheusMeter("auditor"), Beat(SystemClock().monotonic)
    with _probed(settings, meter, beat.look):
        AuditorLoop(
            names,
            bootstrap=settings.kafka,
            database=guard(settings, size_max=2),
            letter_key=keys.letter_key(settings.keys),
            session_timeout_ms=settings.session_timeout_ms,
            meter=meter,
            beat=beat,
            fault=fault,
        ).run(stop)


def _take(board: ControlBoard) -> Callable[[bytes | None, bytes | None, int], None]:
    def take(key: bytes | None, value: bytes | None, offset: int) -> None:
        ignored = board.take(key, value, offset)
        if ignored is not None:
            log.error("control at offset %d ignored: %s %s", offset, ignored.reason.value, ignored.pointer)

    return take


def simulator(settings: Settings, *, seed: int, token: str, ledger_file: Path | None) -> Starlette:
    """The simulated provider with the configured accounts."""
    model = Model(provider_accounts(settings), seed=seed, id_shapes=ID_SHAPES)
    return create_app(model, SystemClock(), credential=token, ledger_file=ledger_file)
