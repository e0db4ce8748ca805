"""The cost of security: the same fan-out through a bare broker and secured ones, in turn.

A pair is one run with each of the settings, in rotating order, each with a fresh broker and the
same generator. All runs of a pair see a similar load of the machine, so their ratio is more
reliable than the absolute figures.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from _bench.guarded import Settings, passcode_of, settings_in, user_names
from _bench.idle import Idle, open_idle
from _bench.load import Load, Shape
from _bench.process import AS_IT_IS, Broker, cpu_of, running_broker
from _bench.wire import Connection, Visitor

Show = Callable[[str], None]

LIMIT_S = 120.0
SUBSCRIBERS = 75
SMALL_BYTES, LARGE_BYTES = 117, 64 * 1024
SHAPES = (
    Shape(1, SUBSCRIBERS, 8000, 16, window=64, lag=256, body_bytes=SMALL_BYTES),
    Shape(1, SUBSCRIBERS, 64, 2, window=4, lag=8, body_bytes=LARGE_BYTES),
)
"""The loads that are repeated until a run is long enough."""
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(1 << 27), "MALLOC_MMAP_THRESHOLD_": str(1 << 27)}
"""The environment of brokers with large bodies. Depending on the layout of the heap, glibc may
return the memory of each write to the kernel and have it zeroed again for the next one. This takes
nearly half of such a broker's time, and is chance, not a cost of the settings."""
QUICK_MESSAGES = 64
NEW_USERS, KNOWN_LOGINS, AT_ONCE = 32, 2000, 16
QUICK_USERS, QUICK_LOGINS = 4, 50


class Measured(NamedTuple):
    """One run with one of the settings.

    Args:
      order: Its position within the pair.
      reads: The number of reads for the messages, which shows how well the broker batched.
    """

    settings: str
    body_bytes: int
    pair: int
    order: int
    deliveries: int
    reads: int
    wall_s: float
    broker_cpu_s: float
    generator_cpu_s: float

    @property
    def million_s(self) -> float:
        """Processor time of the broker for a million deliveries."""
        return self.broker_cpu_s * 1e6 / self.deliveries


class Logins(NamedTuple):
    """Connections that were opened, up to CONNECTED."""

    what: str
    opened: int
    wall_s: float
    broker_cpu_s: float


class Costs(NamedTuple):
    """All that was measured."""

    runs: list[Measured]
    logins: list[Logins]


def measure_costs(
    directory: Path, options: Sequence[str], pairs: int, seconds: float, say: Show, *, quick: bool
) -> Costs:
    """Measure fan-outs of small and large bodies ``pairs`` times, and logins once.

    Args:
      directory: The directory for users, rules and certificate.
      options: The options of every broker.
      seconds: The minimum duration of a run.

    Raises:
      BenchError: a run was wrong, or something is missing for it.
    """
    users = QUICK_USERS if quick else NEW_USERS
    settings = settings_in(directory, users)
    runs: list[Measured] = []
    for number in range(pairs):
        for shape in SHAPES:
            if quick:
                shape = shape._replace(messages=QUICK_MESSAGES)
            turn = number % len(settings)
            for order, each in enumerate((*settings[turn:], *settings[:turn])):
                environment = ALLOCATOR if shape.body_bytes >= LARGE_BYTES else AS_IT_IS
                with running_broker((*options, *each.options), environment) as broker:
                    measured = run_once(broker, each, shape, seconds)._replace(
                        pair=number, order=order
                    )
                say(
                    f"  {number + 1}/{pairs}, {shape.body_bytes} bytes, {each.name}:"
                    f" {measured.million_s:.3f} CPU s/M"
                )
                runs.append(measured)
    say("logins")
    return Costs(runs, list(measure_logins(settings, options, users, quick=quick)))


def run_once(broker: Broker, settings: Settings, shape: Shape, seconds: float) -> Measured:
    """Fan out for some seconds.

    Raises:
      BenchError: as ``Load.run``.
    """
    load = Load(broker, shape, websocket=False, visitors=settings.visitors)
    try:
        load.run(LIMIT_S)  # warm-up: one-time work is done here
        before = load.reads
        runs = [load.run(LIMIT_S)]
        # The kernel's clock of a process may not advance for a few milliseconds.
        while sum(run.wall_s for run in runs) < seconds or not any(
            run.broker.exact for run in runs
        ):
            runs.append(load.run(LIMIT_S))
        return Measured(
            settings.name,
            shape.body_bytes,
            0,
            0,
            sum(run.deliveries for run in runs),
            load.reads - before,
            sum(run.wall_s for run in runs),
            sum(run.broker.exact for run in runs),
            sum(run.generator_s for run in runs),
        )
    finally:
        load.close()


def measure_logins(
    settings: Sequence[Settings], options: Sequence[str], users: int, *, quick: bool
) -> Iterator[Logins]:
    """Yield the cost of opening a session: without login, with a new login, with a cached one.

    Raises:
      BenchError: a login was refused.
    """
    count = QUICK_LOGINS if quick else KNOWN_LOGINS
    plain, guarded, secret = settings
    new = [Visitor(name, passcode_of(name)) for name in user_names(users)]
    with running_broker((*options, *plain.options)) as broker:
        idle = open_idle(broker, count, AT_ONCE, LIMIT_S, websocket=False)
        yield _logins("no login", idle)
    with running_broker((*options, *guarded.options)) as broker:
        idle = open_idle(broker, users, AT_ONCE, LIMIT_S, websocket=False, visitors=new)
        yield _logins("a new login: argon2id", idle)
        idle = open_idle(broker, count, AT_ONCE, LIMIT_S, websocket=False, visitors=new)
        yield _logins("a login that succeeded before", idle)
    with running_broker((*options, *secret.options)) as broker:
        Connection.open(broker.port, websocket=False, visitor=secret.visitors.publisher).close()
        visitor = secret.visitors.publisher
        yield _open_in_turn(broker, "the same over TLS, one after the other", count // 5, visitor)


def _logins(what: str, idle: Idle) -> Logins:
    return Logins(what, idle.connections, idle.wall_s, idle.broker.exact)


def _open_in_turn(broker: Broker, what: str, count: int, visitor: Visitor) -> Logins:
    cpu, start = cpu_of(broker.pid), time.perf_counter()
    opened = [Connection.open(broker.port, websocket=False, visitor=visitor) for _ in range(count)]
    wall_s = time.perf_counter() - start
    used = cpu_of(broker.pid).since(cpu).exact
    for each in opened:
        each.close()
    return Logins(what, count, wall_s, used)
