"""Builds each process from settings: the only place that knows all the parts.

It must not decide anything, and each function hands a process only what it needs: the worker and the
auditor never see a private key.
"""

from __future__ import annotations

from compose import keys
from compose import settings as configuration
from compose.clock import SystemClock
from compose.settings import REPLAY_PREFIX, Settings
from schemas.accounts import Account
from schemas.errors import PreflightFailed, SettingsRefused
from schemas.topics import TopicNames
from sinks.kafka import admin
from streams.engine.settings import EngineSettings
from streams.worker.app import Worker, build, serve


def layout(settings: Settings) -> admin.Layout:
    """What a deployment fixes once: names, partition count, replication."""
    return admin.Layout(
        TopicNames(settings.prefix), settings.partitions, settings.replication, settings.min_insync
    )


def preflight(settings: Settings) -> admin.Layout:
    """The topics are as the registry wants them, or `PreflightFailed` names every difference."""
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


def worker(settings: Settings) -> Worker:
    """A worker that has not started."""
    found = preflight(settings)
    session_s = settings.session_timeout_ms / 1000
    engine = EngineSettings(
        app_id=found.names.worker_app_id,
        bootstrap=settings.kafka,
        slot=settings.worker_slot,
        now_ms=SystemClock().now_ms,
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
        accounts=provider_accounts(settings),
        letter_key=keys.letter_key(settings.keys),
    )


def run_worker(settings: Settings) -> int:
    """Until SIGTERM, SIGINT or a failure; the engine's exit code."""
    made = worker(settings)
    return int(
        serve(
            made,
            TopicNames(settings.prefix),
            bootstrap=settings.kafka,
            health_host=settings.health_host,
            health_port=settings.health_port,
        )
    )
