"""Settings of the engine, handed over once.

They tune; none of them may switch off a guarantee. Nothing here reads the environment.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.errors import SettingsRefused

MS = 0.001


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something an operator should know; `code` is stable, the sentence holds no record bytes."""

    code: str  # unstable_partition | restore_blocked
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """One worker process. Seconds end in `_s`, milliseconds in `_ms`."""

    # Consumer group and prefix of the changelogs.
    app_id: str
    # `host:port,host:port`
    bootstrap: str
    # Names this worker's transactional id. Two live processes never share one.
    slot: str
    # The wall clock, ms since the epoch (compose.clock). Only timers and evidence marks use it.
    now_ms: Callable[[], int]
    # Called on the event loop when something needs an operator's eye.
    on_alarm: Callable[[Alarm], None] | None = None
    # Called by name at the boundaries of a transaction; crash tests only, no setting reaches it.
    fault: Callable[[str], None] = lambda _point: None

    # A worker silent for this long loses its partitions.
    session_timeout_s: float = 30.0
    # Three heartbeats may be lost before half a session has gone.
    heartbeat_interval_s: float = 3.0
    # How long the others wait for a member to finish its work and rejoin.
    rebalance_timeout_s: float = 60.0
    # A dead worker's transaction blocks readers for at most this plus the broker's scan interval.
    transaction_timeout_ms: int = 10_000
    # How often due keys are looked for.
    tick_interval_ms: int = 1_000
    # Ticks asked for by `retick` per partition and second, and how long they wait for their evidence.
    reticks_per_s_max: int = 500
    retick_hold_ms_max: int = 10_000
    # A chunk is cut by count and by time: 500 records cost 7 ms in the engine, the rest is the processor's.
    chunk_records_max: int = 500
    step_s_max: float = 0.05
    # Outputs and changes that may wait for the next transaction before processing pauses.
    pending_records_max: int = 5_000
    # Least time between two commits; 0 commits back to back.
    commit_interval_ms: int = 0
    # Reading state back: when to say what it waits for, and when to give up.
    restore_report_s: float = 60.0
    restore_timeout_s: float = 300.0
    # Readers held back by an open transaction for this long raise an alarm.
    unstable_after_s: float = 30.0
    # Pending work or unread records without a commit for this long: not live.
    stuck_after_s: float = 60.0
    # From SIGTERM or a failure to a hard exit.
    stop_within_s: float = 8.0

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be larger than 0"
            for name in _POSITIVE
            if not getattr(self, name) > 0
        ]  # fmt: skip
        problems += [f"{name} must not be empty" for name in ("app_id", "bootstrap", "slot")
                     if not getattr(self, name)]  # fmt: skip
        if self.heartbeat_interval_s * 2 > self.session_timeout_s:
            problems.append("heartbeat_interval_s must fit into session_timeout_s at least twice")
        if problems:
            raise SettingsRefused(problems)

    @property
    def transactional_id(self) -> str:
        """The same after a restart of the slot: the broker then ends what the dead one left open."""
        return f"{self.app_id}-{self.slot}"

    def alarm(self, code: str, sentence: str) -> None:
        """Tell the operator, if somebody listens."""
        if self.on_alarm is not None:
            self.on_alarm(Alarm(code, sentence))

    def faust_options(self) -> dict[str, Any]:
        """What Faust is told. Each of GUARANTEES is compared with the effective value at start."""
        return {
            **GUARANTEES,
            "env": {},  # Faust lets variables override arguments; it is shown an empty environment
            "env_prefix": "BACKSTOP_NOT_FROM_THE_ENVIRONMENT",
            "broker": ";".join(f"engine://{part.strip()}" for part in self.bootstrap.split(",")),
            "broker_client_id": self.transactional_id,
            "broker_session_timeout": self.session_timeout_s,
            "broker_heartbeat_interval": self.heartbeat_interval_s,
            "broker_request_timeout": max(_REQUEST_TIMEOUT_S, self.session_timeout_s + 10.0),
            "broker_rebalance_timeout": self.rebalance_timeout_s,
            "broker_max_poll_interval": _MAX_POLL_INTERVAL_S,
            "stream_recovery_delay": 0.0,
            # Faust makes this folder and our store never uses it: not in the user's working folder.
            "datadir": str(Path(tempfile.gettempdir()) / f"{self.app_id}-faust"),
        }


_REQUEST_TIMEOUT_S = 40.0
# An idle worker (no partitions) never fetches and would leave the group for good after this time; a
# hung one is found by the liveness check. Ten years: 10 x 365 x 86 400 s.
_MAX_POLL_INTERVAL_S = 315_360_000.0
_POSITIVE = (
    "session_timeout_s", "heartbeat_interval_s", "rebalance_timeout_s", "transaction_timeout_ms",
    "tick_interval_ms", "reticks_per_s_max", "retick_hold_ms_max", "chunk_records_max", "step_s_max",
    "pending_records_max", "restore_report_s", "restore_timeout_s", "unstable_after_s", "stuck_after_s",
    "stop_within_s",
)  # fmt: skip

# Effective Faust settings without which the engine is not exact.
GUARANTEES: dict[str, Any] = {
    "processing_guarantee": "at_least_once",  # Faust's own transactions stay off: the engine has better
    "consumer_auto_offset_reset": "earliest",
    "consumer_group_instance_id": None,  # "" would make all workers one static member
    "broker_check_crcs": True,
    "stream_wait_empty": True,
    "table_standby_replicas": 0,
    "topic_allow_declare": False,
    "topic_disable_leader": True,
    "stream_buffer_maxsize": 8,  # chunks, not records
    "autodiscover": False,
    "debug": False,
    "web_enabled": False,
    "web_tables_enabled": False,
    "web_router_enabled": False,
}
