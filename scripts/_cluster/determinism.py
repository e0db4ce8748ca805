"""One seed, one run: Trio's schedule, threads, clocks and random numbers made repeatable.

This is the only module that touches private parts of Trio. ``Rules.checked`` fails if they differ
from those it was written for.
"""

import contextlib
import random
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol
from unittest import mock

import outcome
import trio
import trio.testing
from attrs import define, field


class Killed(BaseException):
    """Raised in the threads of a process that was killed, so that they end."""


class Process(Protocol):
    """A process, as far as its tasks and threads are concerned."""

    is_dead: bool
    scopes: dict[trio.CancelScope, None]
    """The state of its threads' waits."""

    def lease_time(self) -> float:
        """Return the time of its machine's clock."""

    def disk_s(self) -> float:
        """Return how long the next piece of work in a thread takes to begin."""


PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)
"""The process that a task belongs to; None = the simulation itself."""


@define
class Call:
    """A thread's request to Trio's thread, for which it waits."""

    function: Callable[..., Awaitable[Any]]
    arguments: tuple[Any, ...]


class Worker:
    """A thread that takes turns with Trio's thread: one of the two waits for the other."""

    def __init__(self) -> None:
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._given: Any = None
        self._found: Any = None
        threading.Thread(target=self._run, daemon=True).start()

    def step(self, given: Any) -> "Call | outcome.Outcome[Any]":  # noqa: ANN401
        """Let the thread work until it has a result or a call for Trio."""
        self._given = given
        self._go.release()
        self._back.acquire()
        found, self._found = self._found, None
        assert isinstance(found, Call | outcome.Value | outcome.Error)
        return found

    def end(self) -> None:
        """End the idle thread."""
        self._given = None
        self._go.release()

    def call(self, call: Call) -> Any:  # noqa: ANN401
        """Have Trio's thread do something. In this worker's thread."""
        self._found = call
        self._back.release()
        self._go.acquire()
        return self._given.unwrap()

    def _run(self) -> None:
        _WORKERS.mine = self
        while True:
            self._go.acquire()
            if self._given is None:
                return
            self._found = outcome.capture(self._given)
            self._back.release()


_WORKERS = threading.local()


@define(eq=False)
class Job:
    """A function that runs in a worker on behalf of a task."""

    function: Callable[[], Any]
    context: Context
    process: Process | None
    result: "outcome.Outcome[Any] | None" = None
    done: trio.Event = field(factory=trio.Event)


@define(eq=False)
class Rules:
    """The repeatable environment of a run, and the paused processes."""

    chance: random.Random
    clock: trio.testing.MockClock = field(
        factory=lambda: trio.testing.MockClock(autojump_threshold=0)
    )
    _paused: dict[Process, list[Any]] = field(factory=dict)
    """The tasks of paused processes that would run."""
    _idle: list[Worker] = field(factory=list)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Replace everything that is not repeatable while the block runs."""
        run, entropy = _private_parts(), random.Random(self.chance.random())
        run._r.seed(self.chance.random())
        schedule = run.Runner.reschedule

        def reschedule(runner: Any, task: Any, *args: Any) -> None:  # noqa: ANN401
            schedule(runner, task, *args)
            held = self._paused.get(task.context.get(PROCESS))
            if held is not None:
                held.append(runner.runq.pop())

        parts = [
            (run, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
            (run.Runner, "reschedule", reschedule),
            (trio.to_thread, "run_sync", self._run_sync),
            (trio.from_thread, "run", _run_in_trio),
            (random, "SystemRandom", lambda: random.Random(entropy.random())),
            (secrets, "randbits", entropy.getrandbits),
            (secrets, "token_bytes", entropy.randbytes),
            (secrets, "token_hex", lambda size: entropy.randbytes(size).hex()),
        ]
        try:
            with contextlib.ExitStack() as stack:
                for owner, name, value in parts:
                    stack.enter_context(mock.patch.object(owner, name, value))
                yield
        finally:
            for worker in self._idle:
                worker.end()

    # --- pauses -----------------------------------------------------------------------------------

    def pause(self, process: Process) -> None:
        """Let no task of a process run until ``go_on``, as SIGSTOP does."""
        self._paused.setdefault(process, [])

    def go_on(self, process: Process) -> None:
        """Let the tasks of a process run again."""
        runner = _private_parts().GLOBAL_RUN_CONTEXT.runner
        runner.runq.extend(self._paused.pop(process, ()))

    # --- threads ----------------------------------------------------------------------------------

    async def _run_sync(
        self,
        function: Callable[..., Any],
        *args: Any,  # noqa: ANN401
        abandon_on_cancel: bool = False,
        limiter: object = None,  # noqa: ARG002
    ) -> Any:  # noqa: ANN401
        """Stand for ``trio.to_thread.run_sync``."""
        await trio.lowlevel.checkpoint_if_cancelled()
        context = copy_context()
        job = Job(lambda: function(*args), context, PROCESS.get())
        trio.lowlevel.spawn_system_task(self._drive, job, context=context)
        with trio.CancelScope(shield=not abandon_on_cancel):
            await job.done.wait()
        assert job.result is not None
        return job.result.unwrap()

    async def _drive(self, job: Job) -> None:
        """Run a job in a worker, and serve its calls. Runs in a system task."""
        worker = self._idle.pop() if self._idle else Worker()
        found: Call | outcome.Outcome[Any]
        delay = 0.0 if job.process is None else job.process.disk_s()
        found = await _answered(Call(trio.sleep, (delay,)), job.process)
        if isinstance(found, outcome.Value):
            found = worker.step(lambda: job.context.copy().run(job.function))
        while isinstance(found, Call):
            found = worker.step(await _answered(found, job.process))
        self._idle.append(worker)
        job.result = found
        job.done.set()


async def _answered(call: Call, process: Process | None) -> "outcome.Outcome[Any]":
    """Return the outcome of a call, or ``Killed`` if its process was killed."""
    found: outcome.Outcome[Any]
    if process is None:
        found = await outcome.acapture(call.function, *call.arguments)
        return found
    with trio.CancelScope() as scope:
        if process.is_dead:
            return outcome.Error(Killed())
        process.scopes[scope] = None
        found = await outcome.acapture(call.function, *call.arguments)
        del process.scopes[scope]
    return outcome.Error(Killed()) if process.is_dead else found


def _run_in_trio(
    function: Callable[..., Awaitable[Any]],
    *args: Any,  # noqa: ANN401
    trio_token: object = None,  # noqa: ARG001
) -> Any:  # noqa: ANN401
    """Stand for ``trio.from_thread.run``."""
    worker: Worker = _WORKERS.mine
    return worker.call(Call(function, args))


def _private_parts() -> Any:  # noqa: ANN401
    """Return Trio's private module of the event loop.

    Raises:
      RuntimeError: It is not what this module was written for.
    """
    from trio._core import _run

    needed = ("_ALLOW_DETERMINISTIC_SCHEDULING", "_r", "GLOBAL_RUN_CONTEXT", "Runner")
    if not all(hasattr(_run, name) for name in needed) or not hasattr(_run.Runner, "reschedule"):
        raise RuntimeError(
            f"Trio {trio.__version__} schedules in another way: adapt {__name__} to it"
        )
    return _run
