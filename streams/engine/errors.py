"""What can go wrong in the engine, and the exit code each leaves behind.

It must not hold failures of the world (a bad record is the processor's) nor any record's bytes.

    EngineError
    ├── SelfCheckFailed      a library is not the one this engine was measured with
    ├── TransactionFailed    a transaction was not committed; nothing of it became visible
    │   ├── Fenced           a twin took this slot's transactional id
    │   └── LeaseLost        the group went on without us: generation or transaction out of date
    ├── RestoreFailed        the state of a partition could not be read back, or is missing
    └── ProcessingFailed     the processor raised; the chunk was not committed
"""

from __future__ import annotations

from enum import IntEnum

from schemas.errors import BackstopError


class ExitCode(IntEnum):
    """How a worker ended; all but STOPPED leave nothing half done, so a restart is always right."""

    STOPPED = 0  # asked to stop, everything submitted was committed
    FAILED = 1  # processing, restore, broker: the log says which; restart
    HARD = 3  # the guard ended it because stopping hung
    FENCED = 4  # another process runs under the same slot: give one of them another slot
    LEASE_LOST = 5  # paused longer than the session or the transaction; restart
    REFUSED = 6  # the self-check refused to start; a restart does not help


class EngineError(BackstopError):
    """Base of every engine failure; each ends the process un-committed."""

    exit_code = ExitCode.FAILED
    remedy = "Restart the worker: nothing was committed, the records will be read again."


class SelfCheckFailed(EngineError):
    """A version, name or effective setting differs from what the engine was built on."""

    exit_code = ExitCode.REFUSED
    remedy = "Install the versions pinned in pyproject.toml; the differences are named above."

    def __init__(self, differences: list[str]) -> None:
        super().__init__(
            "engine self-check failed:\n" + "\n".join(f"  - {d}" for d in differences), code="self_check"
        )
        self.differences = differences


class TransactionFailed(EngineError):
    """A transaction was refused, aborted or timed out."""

    def __init__(self, sentence: str, *, code: str = "transaction_failed") -> None:
        super().__init__(sentence, code=code)


class Fenced(TransactionFailed):
    """The broker knows a younger producer of this slot."""

    exit_code = ExitCode.FENCED
    remedy = "Give every live worker its own slot; end one of the two."

    def __init__(self, slot: str, transactional_id: str) -> None:
        super().__init__(
            f"worker slot {slot!r} was fenced: a twin (another live process with the same slot) "
            f"took its transactional id {transactional_id!r}",
            code="fenced",
        )


class LeaseLost(TransactionFailed):
    """The group or the transaction coordinator gave up on this process while it was paused."""

    exit_code = ExitCode.LEASE_LOST

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, code="lease_lost")


class RestoreFailed(EngineError):
    """A partition's state cannot be used."""

    def __init__(self, sentence: str, *, code: str = "restore_failed") -> None:
        super().__init__(sentence, code=code)


class ProcessingFailed(EngineError):
    """`Processor.process` (or `tick`, `end_of_chunk`, `restored`) raised; it names where, never what."""

    def __init__(self, where: str, cause: BaseException) -> None:
        super().__init__(
            f"the processor failed with {type(cause).__name__} at {where}", code="processing_failed"
        )


def exit_code(failure: BaseException | None) -> ExitCode:
    """The exit code for what ended the process; None means it was asked to stop."""
    if failure is None:
        return ExitCode.STOPPED
    return failure.exit_code if isinstance(failure, EngineError) else ExitCode.FAILED
