"""Is this worker ready, is it live, what has it done: facts for probes and metrics.

It must not act: whoever asks decides. Written on the event loop, read from anywhere.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field


@dataclass(slots=True)
class Counters:
    """Since the start of the process."""

    transactions: int = 0
    inputs: int = 0  # records processed and committed
    outputs: int = 0  # records written besides changelogs
    changes: int = 0  # changelog records written
    ticks: int = 0
    restored: int = 0  # changelog records read back
    restores: int = 0  # generations this worker has taken part in
    commit_ms_max: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look; `reasons` says in plain words what is not well."""

    ready: bool
    live: bool
    reasons: tuple[str, ...]
    partitions: tuple[int, ...]
    counters: dict[str, int]


@dataclass(slots=True)
class Health:
    """What the engine notes about itself. Instants are monotonic seconds."""

    stuck_after_s: float
    partitions: tuple[int, ...] = ()
    is_restored: bool = False
    failure: str = ""  # type of what ended the processing
    blocked: str = ""  # what a restore waits for
    pending_since: float | None = None  # submitted work without a commit
    progressed_at: float = 0.0  # last commit, or all that was in the logs has been processed
    counters: Counters = field(default_factory=Counters)

    def begin_rebalance(self) -> None:
        """The lease ended."""
        self.is_restored = False

    def finish_restore(self, partitions: tuple[int, ...]) -> None:
        """The owned partitions' state is in memory and records may come."""
        self.partitions, self.is_restored, self.blocked = partitions, True, ""
        self.counters.restores += 1
        self.progressed()

    def submitted(self) -> None:
        """Work waits for a commit."""
        if self.pending_since is None:
            self.pending_since = time.monotonic()

    def committed(self, *, is_idle: bool) -> None:
        """A transaction went through; `is_idle` when nothing is waiting behind it."""
        self.progressed_at = time.monotonic()
        self.pending_since = None if is_idle else self.progressed_at

    def pending_s(self, now: float | None = None) -> float:
        """How long work has waited without a commit; 0 when none waits."""
        since = self.pending_since
        return 0.0 if since is None else max(0.0, (time.monotonic() if now is None else now) - since)

    def progressed(self) -> None:
        """Everything that was in the input logs has been processed."""
        self.progressed_at = time.monotonic()

    def snapshot(self, now: float | None = None) -> Snapshot:
        """Readiness and liveness at `now` (monotonic seconds, default: this moment)."""
        now = time.monotonic() if now is None else now
        reasons, live = [], True
        if self.failure:
            live = False
            reasons.append(f"failed: {self.failure}")
        if self.pending_since is not None and now - self.pending_since > self.stuck_after_s:
            live = False
            reasons.append(f"work pending for {now - self.pending_since:.0f} s without a commit")
        elif self._is_behind(now):
            live = False
            reasons.append(f"records unread for {now - self.progressed_at:.0f} s without a commit")
        if not self.is_restored:
            reasons.append("rebalancing or restoring")
        if self.blocked:
            reasons.append(self.blocked)
        ready = live and self.is_restored
        return Snapshot(ready, live, tuple(reasons), self.partitions, asdict(self.counters))

    def _is_behind(self, now: float) -> bool:
        # Without partitions nothing is read, and while restoring the restore has its own time limit.
        owns = self.is_restored and bool(self.partitions)
        return owns and now - self.progressed_at > self.stuck_after_s
