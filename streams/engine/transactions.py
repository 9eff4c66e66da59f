"""One librdkafka transactional producer per worker process.

Steps are submitted (outputs, changes of state, consumed offsets). While one transaction commits in the
writer thread, the next steps pile up and become the next transaction. Memory already holds what was
submitted, so any failure is final: it must never be retried or rolled back here, the process ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from mode import Service

from streams.engine.chunk import Lease
from streams.engine.errors import Fenced, LeaseLost, TransactionFailed
from streams.engine.health import Health
from streams.engine.logs import librdkafka_logger
from streams.engine.processor import Output, Step
from streams.engine.settings import EngineSettings

INIT_TIMEOUT_S = 30.0  # the coordinator may first have to end what a dead predecessor left open
ABORT_TIMEOUT_S = 2.0  # frees readers at once when it succeeds; the broker does it later otherwise
RETRY_PAUSE_S = 0.1
FULL_QUEUE_POLL_S = 0.05
ACCUMULATE_POLL_S = 0.01
RECORD_BYTES_MAX = 8 * 1024 * 1024  # the topic's own limit decides; librdkafka's 1 MB must not
QUEUE_RECORDS_MAX = 1_000_000

_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_LEASE_LOST = frozenset(
    {KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_INSTANCE_ID}
)


@dataclass(slots=True, eq=False)
class _Pending:
    """What the next transaction will hold."""

    outputs: list[Output] = field(default_factory=list)
    changes: dict[tuple[str, int], dict[bytes, bytes | None]] = field(default_factory=dict)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)  # last wins
    lease: Lease | None = None
    inputs: int = 0
    size: int = 0  # outputs and changes submitted; changes of one key count each time


class TransactionWriter(Service):
    """Group commit: `submit` is synchronous and on the event loop, committing is in one thread."""

    def __init__(
        self,
        settings: EngineSettings,
        health: Health,
        *,
        on_failure: Callable[[BaseException], Awaitable[None]],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._settings, self._health, self._on_failure = settings, health, on_failure
        self._call_timeout_s = settings.transaction_timeout_ms / 1000.0
        # librdkafka calls were seen to outlive their own timeout (broker restart).
        self._hard_limit_s = 2 * self._call_timeout_s
        self._producer: Any = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="transactions")
        self._wake, self._room, self._idle = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._room.set()
        self._idle.set()
        self._flushing = False
        self._pending = _Pending()
        self.failure: BaseException | None = None

    async def on_start(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, self._open)

    def _open(self) -> None:
        self._producer = Producer(
            producer_options(self._settings), logger=librdkafka_logger()
        )  # the same id: the broker ends a dead predecessor's transaction now
        _repeat(self._producer.init_transactions, INIT_TIMEOUT_S)

    # called by the processing loop

    async def room(self) -> bool:
        """Wait until another step fits; False when stopping. Raises what ended the writer."""
        while not self._room.is_set():
            await self._room.wait()
        if self.failure is not None:
            raise self.failure
        return not self.should_stop

    @property
    def has_room(self) -> bool:
        """Whether a step may be submitted now."""
        return self._room.is_set() and self.failure is None and not self.should_stop

    def submit(
        self,
        lease: Lease,
        step: Step,
        *,
        offsets: dict[tuple[str, int], int],
        changelogs: dict[str, tuple[str, int]],
        inputs: int = 0,
    ) -> None:
        """Queue one step; nothing awaits, so no rebalance can tear it. `changelogs`: table -> where."""
        if self.failure is not None:
            raise self.failure
        pending = self._pending
        if pending.lease is None:
            pending.lease = lease
        elif pending.lease is not lease:
            raise AssertionError("steps of two generations in one transaction")
        pending.offsets.update(offsets)
        pending.outputs += step.outputs
        pending.inputs += inputs
        pending.size += len(step.outputs)
        for table, changed in step.changes.items():
            where = changelogs[table]
            pending.size += len(changed)
            if where in pending.changes:
                pending.changes[where].update(changed)
            else:
                pending.changes[where] = changed
        self._idle.clear()
        self._health.submitted()
        if pending.size >= self._settings.pending_records_max:
            self._room.clear()
        self._wake.set()

    async def flush(self) -> None:
        """Wait until all that was submitted is committed. Raises what ended the writer."""
        if self.failure is None:
            self._flushing = True
            try:
                await self._idle.wait()
            finally:
                self._flushing = False
        if self.failure is not None:
            raise self.failure

    def refuse(self, cause: BaseException) -> None:
        """Accept and commit nothing more: memory is ahead of what may be committed."""
        if self.failure is None:
            self.failure = cause
        self._idle.set()
        self._room.set()
        self._wake.set()

    # background

    @Service.task  # type: ignore[untyped-decorator]
    async def _commit_loop(self) -> None:
        while not self.should_stop:
            await self.wait_for_stopped(self._wake)
            if not self._wake.is_set() or self.failure is not None:
                break
            if self._settings.commit_interval_ms and not self._flushing and self._room.is_set():
                await self._accumulate()
                if self.failure is not None:
                    break
            await self._commit_pending()
        self.refuse(TransactionFailed("the writer was stopped"))  # releases who still waits

    async def _commit_pending(self) -> None:
        self._wake.clear()
        pending, self._pending = self._pending, _Pending()
        self._room.set()
        started = time.monotonic()
        try:
            call = asyncio.get_running_loop().run_in_executor(self._executor, self._transact, pending)
            await asyncio.wait_for(call, self._hard_limit_s)
        except BaseException as exc:
            failure = exc
            if isinstance(exc, TimeoutError):
                failure = TransactionFailed(f"no answer from the broker within {self._hard_limit_s:.0f} s")
            self.refuse(failure)
            if not isinstance(exc, asyncio.CancelledError):
                await self._on_failure(failure)
            raise failure from exc
        self._count(pending, time.monotonic() - started)
        is_idle = not self._wake.is_set()
        self._health.committed(is_idle=is_idle)
        if is_idle:
            self._idle.set()

    def _count(self, pending: _Pending, took_s: float) -> None:
        counters = self._health.counters
        counters.transactions += 1
        counters.inputs += pending.inputs
        counters.outputs += len(pending.outputs)
        counters.changes += sum(map(len, pending.changes.values()))
        counters.commit_ms_max = max(counters.commit_ms_max, int(took_s * 1000))

    async def _accumulate(self) -> None:
        """Let steps pile up for the commit interval; cut short by flush, back-pressure or the end."""
        until = time.monotonic() + self._settings.commit_interval_ms / 1000.0
        while (left := until - time.monotonic()) > 0:
            if self._flushing or not self._room.is_set() or self.should_stop or self.failure is not None:
                return
            await asyncio.sleep(min(left, ACCUMULATE_POLL_S))

    # writer thread

    def _transact(self, pending: _Pending) -> None:
        producer, started, fault = self._producer, time.monotonic(), self._settings.fault
        try:
            fault("before_transaction")
            producer.begin_transaction()
            _produce_all(producer, pending)
            # Accepted offsets must imply that the state they cover is in the changelog.
            if producer.flush(self._call_timeout_s):
                raise TransactionFailed("records were not delivered in time")
            fault("in_transaction")
            if pending.offsets and pending.lease is not None:
                positions = [TopicPartition(t, p, o) for (t, p), o in pending.offsets.items()]
                _repeat(
                    producer.send_offsets_to_transaction,
                    positions, pending.lease.metadata, self._call_timeout_s,
                )  # fmt: skip
            fault("before_commit")
            _repeat(producer.commit_transaction, self._call_timeout_s)
            fault("after_commit")
        except Exception as exc:
            self._abort()
            raise self._named(exc, time.monotonic() - started) from exc

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(ABORT_TIMEOUT_S)
        except KafkaException as again:
            self.log.warning("the transaction was not aborted: %s", again.args[0].name())

    def _named(self, exc: Exception, took_s: float) -> TransactionFailed:
        """What a refusal means for this process."""
        if isinstance(exc, TransactionFailed):
            return exc
        if not isinstance(exc, KafkaException):
            return TransactionFailed(f"{type(exc).__name__}: the transaction could not be built")
        error = exc.args[0]
        if error.code() in _LEASE_LOST:
            return LeaseLost(f"the group went on without this worker ({error.name()})")
        if error.code() in _FENCED:
            # Frozen longer than its transaction may live, the broker gave up on it: no twin needed.
            if took_s >= self._call_timeout_s:
                return LeaseLost(f"paused for {took_s:.0f} s within a transaction ({error.name()})")
            return Fenced(self._settings.slot, self._settings.transactional_id)
        return TransactionFailed(f"the transaction failed: {error.name()}: {error.str()}")

    async def on_shutdown(self) -> None:
        self._executor.shutdown(wait=False)


def producer_options(settings: EngineSettings) -> dict[str, Any]:
    """librdkafka's settings; `transactional.id` implies idempotence and acks from all in-sync replicas."""
    return {
        "bootstrap.servers": settings.bootstrap,
        "client.id": settings.transactional_id,
        "transactional.id": settings.transactional_id,
        "transaction.timeout.ms": settings.transaction_timeout_ms,
        "partitioner": "murmur2_random",  # the partitioner of Faust and Java
        "linger.ms": 5,
        # A transaction right after another one meets CONCURRENT_TRANSACTIONS while the broker writes
        # markers; the default of 100 ms would be the pace of everything.
        "retry.backoff.ms": 2,
        "retry.backoff.max.ms": 1000,
        "batch.num.messages": 10_000,
        "message.max.bytes": RECORD_BYTES_MAX,
        "queue.buffering.max.messages": QUEUE_RECORDS_MAX,
        "compression.type": "lz4",
    }


def _produce_all(producer: Any, pending: _Pending) -> None:
    produce = producer.produce
    for topic, partition, key, value, headers in pending.outputs:
        while True:
            try:
                if headers:
                    produce(topic, value, key, partition, headers=headers)
                else:
                    produce(topic, value, key, partition)
                break
            except BufferError:
                producer.poll(FULL_QUEUE_POLL_S)
    for (topic, partition), changed in pending.changes.items():
        for key, value in changed.items():
            while True:
                try:
                    produce(topic, value, key, partition)
                    break
                except BufferError:
                    producer.poll(FULL_QUEUE_POLL_S)


def _repeat(call: Callable[..., Any], *args: Any) -> Any:
    """Call again while the broker says so. A timeout is final: repeating after one got stuck for good."""
    while True:
        try:
            return call(*args)
        except KafkaException as exc:
            error = exc.args[0]
            if not error.retriable() or error.code() == KafkaError._TIMED_OUT:
                raise
            time.sleep(RETRY_PAUSE_S)
