"""Blocking code on a virtual clock: one call runs at a time, and only the agenda says which.

The dispatcher's and the poller's handlers block on databases and providers. Here each call has a stack of its
own (a greenlet) that hands control back whenever it would wait, so that anything may happen in between: a
crash, a rebalance, another dispatcher. The order depends on the agenda alone. All is done in one thread,
which must not wait for real. Whoever makes `Fibers` must `close` them: calls that wait would stay.
"""

from __future__ import annotations

from collections.abc import Callable

from greenlet import getcurrent, greenlet

from compose.scenario.log import Agenda


class Killed(BaseException):
    """The process ends here, in the middle of whatever it does."""


class Fiber:
    """One call. `pause` is for the code in it; `resume` and `kill` for everybody else."""

    def __init__(self, fibers: Fibers, work: Callable[[], None]) -> None:
        self._fibers, self._work = fibers, work
        self._stack = greenlet(self._run)
        self._resumed_by: greenlet = getcurrent()
        self.is_killed = self.is_done = False
        self.failure: BaseException | None = None
        self.taken_up_ms = 0  # since when the logs count for what it does; for checkers
        self.frozen_until: Callable[[], int] = lambda: 0  # a frozen process goes on no earlier

    def pause(self, ms: int) -> None:
        """Wait; whatever is due meanwhile happens. Raises `Killed` when the process has ended."""
        agenda = self._fibers.agenda
        agenda.at(agenda.now_ms + ms, self.resume)
        self._wait()

    def _wait(self) -> None:
        assert getcurrent() is self._stack, "a call waits for itself only"
        self._resumed_by.switch()
        if self.is_killed:
            raise Killed

    def resume(self) -> None:
        """Run it until it waits again or ends. For the agenda only."""
        if self.is_done:
            return
        until_ms = 0 if self.is_killed else self.frozen_until()
        if until_ms > self._fibers.agenda.now_ms:
            self._fibers.agenda.at(until_ms, self.resume)
            return
        self._fibers.hand_over(self)

    def kill(self) -> None:
        """End it where it stands."""
        self.is_killed = True
        self.resume()

    def _run(self) -> None:
        try:
            if not self.is_killed:
                self._work()
        except Killed:
            pass
        except BaseException as exc:
            self.failure = exc
        self.is_done = True

    def step(self) -> None:
        """Go on in it until it gives back."""
        self._resumed_by = self._stack.parent = getcurrent()
        self._stack.switch()


class Fibers:
    """All calls of one world."""

    def __init__(self, agenda: Agenda) -> None:
        self.agenda = agenda
        self.current: Fiber | None = None
        self._alive: list[Fiber] = []

    def spawn(self, work: Callable[[], None], *, frozen_until: Callable[[], int] | None = None) -> Fiber:
        """Start a call now; it runs until its first pause before this returns."""
        fiber = Fiber(self, work)
        if frozen_until is not None:
            fiber.frozen_until = frozen_until
        self._alive = [f for f in self._alive if not f.is_done]
        self._alive.append(fiber)
        fiber.resume()
        return fiber

    def pause(self, ms: int) -> None:
        """The call that runs now waits. Outside of a call nothing waits."""
        if self.current is not None:
            self.current.pause(ms)

    def hand_over(self, fiber: Fiber) -> None:
        before, self.current = self.current, fiber
        fiber.step()
        self.current = before
        if fiber.failure is not None:
            failure, fiber.failure = fiber.failure, None
            raise failure

    @property
    def waiting(self) -> int:
        """Calls that have not ended."""
        return sum(not fiber.is_done for fiber in self._alive)

    def close(self) -> None:
        """End every call that still waits."""
        for fiber in self._alive:
            if not fiber.is_done:
                fiber.kill()
