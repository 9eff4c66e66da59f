"""One worker process: the engine, the processor on it, the controls it obeys.

It must not read the environment or a file; `compose.wiring` hands everything over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from schemas.accounts import Account
from schemas.control_board import ControlBoard
from schemas.errors import TemplateUnknown
from schemas.metrics import NO_METER, Meter
from schemas.policy import Policy
from schemas.reasons import Reason
from schemas.record import TopicKind
from schemas.templates.registry import Catalogue, names_problem
from schemas.topics import TopicNames
from streams.engine.app import EngineApp, build_app
from streams.engine.broadcast import BroadcastReader
from streams.engine.errors import ExitCode
from streams.engine.run import run
from streams.engine.settings import EngineSettings
from streams.worker.processor import IntentProcessor

log = logging.getLogger("backstop.worker")

PROBLEMS_KEPT = 4_096  # (template, names) pairs: a handful per purpose in practice


@dataclass(frozen=True, slots=True)
class Worker:
    """Everything a worker is made of."""

    app: EngineApp
    processor: IntentProcessor


def template_problems(templates: Catalogue) -> Callable[[str, tuple[str, ...]], Reason | None]:
    """Says why a template of this catalogue cannot take these variables; None when it can."""

    @lru_cache(PROBLEMS_KEPT)
    def problem(template: str, names: tuple[str, ...]) -> Reason | None:
        try:
            return (
                None if names_problem(templates.find(template), names) is None else Reason.INVALID_VARIABLES
            )
        except TemplateUnknown:
            return Reason.TEMPLATE_UNKNOWN

    return problem


def build(
    names: TopicNames,
    engine: EngineSettings,
    *,
    partitions: Mapping[str, int],
    policies: Mapping[str, Policy],
    accounts: Mapping[str, Account],
    templates: Catalogue,
    letter_key: bytes,
    meter: Meter = NO_METER,
) -> Worker:
    """A worker that has not started."""
    processor = IntentProcessor(
        names,
        partitions=partitions,
        policies=policies,
        accounts=accounts,
        template_problem=template_problems(templates),
        letter_key=letter_key,
        meter=meter,
    )
    return Worker(build_app(processor, engine), processor)


def serve(worker: Worker, names: TopicNames, *, bootstrap: str) -> ExitCode:
    """Run until SIGTERM, SIGINT or a failure. Controls are read before the first record."""
    app, processor = worker.app, worker.processor
    board, seen = ControlBoard(), threading.Event()

    def take(key: bytes | None, value: bytes | None, offset: int) -> None:
        ignored = board.take(key, value, offset)
        if ignored is not None:
            log.error("control at offset %d ignored: %s %s", offset, ignored.reason.value, ignored.pointer)

    def obey() -> None:
        """In the reader's thread; ticks are asked for on the event loop, once the app runs."""
        processor.use_controls(board.controls)
        if seen.is_set():
            log.info("controls up to offset %d are in force", board.controls.offset)
            app.loop.call_soon_threadsafe(lambda: app.retick(processor.held_keys()))
        seen.set()

    def fail(exc: BaseException) -> None:
        """Without the controls nobody would see a kill switch: the process ends."""
        if seen.is_set():
            app.loop.call_soon_threadsafe(lambda: app.loop.create_task(app.crash(exc)))

    reader = BroadcastReader(bootstrap, names[TopicKind.CONTROLS], take, obey, fail)
    reader.start()
    try:
        return run(app)
    finally:
        reader.stop()
