"""Comparison of this broker with others: the same loads through each of them, in turn.

A round is one run of each scenario with each broker, in an order that rotates from round to round.
Each round has new brokers: one for idle connections, one for durable messages, and one for all
other loads. All runs of a scenario in a round see a similar load of the machine, so their ratio is
more reliable than the absolute figures.

The length of a load depends on the broker: a broker that compiles its code at run time has done so
before a run counts, and one that needs a hundred times as long per message gets fewer messages.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

from _bench.idle import open_idle
from _bench.load import Load, Run, Shape, Visitors
from _bench.others import NotInstalledError
from _bench.peer_brokers import OURS, Peer, Standing, server_of
from _bench.process import BenchError, Broker
from _bench.queues import Place, QueueLoad, QueueShape
from _bench.scenarios import IDLE_AT_ONCE, Scenario
from _bench.stamped import StampedLoad
from _bench.tables import percentile

Show = Callable[[str], None]

RUN_LIMIT_S = 60.0
SIDE_LIMIT_S = 180.0
"""Time limit of one scenario with one broker, with connecting and warm-up, and of a start."""
WARMING = Shape(1, 1, 10_000, 64, window=256, lag=1024)
"""The warm-up before messages one by one, which are too few for a JVM to compile."""
MOST_GROWTH = 8.0
"""Maximum growth of the number of messages from one run to the next."""
SKIPPED = 1000
"""Messages at the beginning whose latency does not count."""
REST_S = 0.25
REST_SHARE = 0.05
REST_LIMIT_S = 10.0
"""Limit of the time until a broker that closes connections or compiles is at rest."""


class Plan(NamedTuple):
    """The loads and brokers of a comparison.

    Args:
      seconds: The approximate duration of a run.
      connections: The number of idle connections.
    """

    peers: Sequence[Peer]
    scenarios: Sequence[Scenario]
    rounds: int
    seconds: float
    connections: int
    quick: bool


class Measurement(NamedTuple):
    """One run of one scenario with one broker.

    Args:
      order: Its position within its round.
      figures: The figures, by their names in the table.
    """

    scenario: str
    peer: str
    round: int
    order: int
    figures: dict[str, float]


class Report:
    """The measurements so far, and those that failed."""

    def __init__(self) -> None:
        self.runs: list[Measurement] = []
        self.servers: dict[str, str] = {}
        """The ``server`` header of each broker."""
        self.absent: dict[str, str] = {}
        """Brokers that take no part, and why."""
        self.failures: dict[tuple[str, str], str] = {}
        """Why a broker has no figures for a scenario: by its name and the scenario's."""


class _Side:
    """A broker that is started when it is first needed, and again after a failure."""

    def __init__(self, peer: Peer, *, durable: bool) -> None:
        self.name = peer.name
        self._peer = peer
        self._durable = durable
        self._stack = ExitStack()
        self._standing: Standing | None = None

    def standing(self) -> Standing:
        """Return the broker, running.

        Raises:
          BenchError, OSError: it does not start.
        """
        if self._standing is None:
            with limited(SIDE_LIMIT_S):
                self._standing = self._stack.enter_context(self._peer.start(self._durable))
        return self._standing

    def close(self) -> None:
        """Stop the broker. One that does not end is killed."""
        self._standing = None
        stack, self._stack = self._stack, ExitStack()
        try:
            stack.close()
        except (BenchError, OSError, subprocess.SubprocessError):
            return


def measure_peers(plan: Plan, say: Show) -> Report:
    """Run all scenarios with all brokers, round by round.

    A broker that is missing or does not start is left out of all later rounds. One that fails in a
    scenario is left out of that scenario.

    Raises:
      BenchError: our own broker does not start.
    """
    report = Report()
    for number in range(plan.rounds):
        for durable, group in _groups(plan.scenarios):
            with ExitStack() as stack:
                sides = [
                    stack.enter_context(closing(_Side(peer, durable=durable)))
                    for peer in plan.peers
                ]
                for scenario in group:
                    say(f"{scenario.name}, {number + 1}/{plan.rounds}: {scenario.what}")
                    turn = number % len(sides)
                    for order, side in enumerate((*sides[turn:], *sides[:turn])):
                        _measure(
                            plan,
                            report,
                            side,
                            scenario=scenario,
                            number=number,
                            order=order,
                            say=say,
                        )
    return report


def _groups(scenarios: Sequence[Scenario]) -> Iterator[tuple[bool, list[Scenario]]]:
    """Yield the groups of scenarios that share a broker, with whether it stores messages."""
    idle = [each for each in scenarios if each.shape is None]
    # Memory left over from a load would make connections look cheaper.
    yield False, idle
    yield False, [each for each in scenarios if each.shape is not None and not each.durable]
    yield True, [each for each in scenarios if each.durable]


def _measure(
    plan: Plan,
    report: Report,
    side: _Side,
    *,
    scenario: Scenario,
    number: int,
    order: int,
    say: Show,
) -> None:
    """Run one scenario with one broker, and add the result to the report."""
    key = side.name, scenario.name
    if side.name in report.absent or key in report.failures:
        return
    try:
        standing = side.standing()
    except (BenchError, OSError) as error:
        side.close()
        if side.name == OURS:
            raise
        known = isinstance(error, NotInstalledError)
        report.absent[side.name] = _line(error) if known else f"{side.name}: {_line(error)}"
        say(f"  {side.name} IS MISSING: {error}")
        return
    report.servers[side.name] = standing.server
    try:
        with limited(SIDE_LIMIT_S):
            figures = _figures(plan, standing, scenario, f"{scenario.name}.{number}")
    except (BenchError, OSError) as error:
        report.failures[key] = _line(error)
        say(f"  {side.name} FAILED: {error}")
        side.close()
        return
    text = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
    say(f"  {side.name}: {text}")
    report.runs.append(Measurement(scenario.name, side.name, number, order, figures))


def _line(error: Exception) -> str:
    """Return the first line of an error. The rest was printed before."""
    return (str(error) or type(error).__name__).splitlines()[0]


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Limit the time of the block, including blocking calls. Only for the main thread.

    Raises:
      BenchError: it took longer.
    """

    def late(*_: object) -> None:
        raise BenchError(f"it was not done within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _figures(plan: Plan, standing: Standing, scenario: Scenario, tag: str) -> dict[str, float]:
    if scenario.shape is None:
        return _idle_figures(plan, standing, scenario)
    if scenario.name.startswith("latency"):
        return _latency_figures(plan, standing, scenario, tag)
    load = _open(standing, scenario, tag)
    try:
        if plan.quick:
            run = load.run(RUN_LIMIT_S)
        else:
            rest(load.broker)
            run = warm_run(load, plan.seconds)
    finally:
        load.close()
    return {"million_s": million_s(run), "per_s": run.deliveries / run.wall_s}


def _open(standing: Standing, scenario: Scenario, tag: str) -> Load | QueueLoad:
    """Open the connections of a scenario, and warm up with a few messages."""
    shape, visitor = scenario.quick, standing.visitor
    # A dot, and no slash: RabbitMQ takes none in a name.
    if isinstance(shape, QueueShape):
        return QueueLoad(
            standing.broker,
            shape,
            place=Place(f"/queue/bench.{tag}"),
            visitor=visitor,
            # RabbitMQ confirms in whatever order it stored them.
            in_order=not shape.persistent,
        )
    broker = standing.web if scenario.websocket else standing.broker
    if broker is None:
        raise BenchError("it has no WebSocket transport")
    assert isinstance(shape, Shape)
    return Load(
        broker,
        shape,
        websocket=scenario.websocket,
        visitors=Visitors(visitor, visitor),
        topics=f"/topic/bench.{tag}.",
    )


def warm_run(load: Load | QueueLoad, seconds: float) -> Run:
    """Run a load in growing runs until one is long enough, then the one that counts.

    Raises:
      BenchError: a run failed.
    """
    run = load.run(RUN_LIMIT_S)
    while run.wall_s < seconds / 2:
        _grow(load, min(MOST_GROWTH, seconds / run.wall_s))
        run = load.run(RUN_LIMIT_S)
    _grow(load, seconds / run.wall_s)
    return load.run(RUN_LIMIT_S)


def _grow(load: Load | QueueLoad, times: float) -> None:
    shape = load.shape
    at_once = shape.at_once if isinstance(shape, QueueShape) else shape.receipt_every
    load.resize(max(1, int(shape.messages * times / at_once)) * at_once)


def rest(broker: Broker) -> None:
    """Wait until a broker has little to do, or for REST_LIMIT_S."""
    until = time.monotonic() + REST_LIMIT_S
    while time.monotonic() < until:
        before = broker.cpu()
        time.sleep(REST_S)
        if broker.cpu().since(before).exact < REST_S * REST_SHARE:
            return


def million_s(run: Run) -> float:
    """Return the broker's processor time for a million deliveries, in seconds."""
    return run.broker.exact * 1e6 / run.deliveries


def _latency_figures(
    plan: Plan, standing: Standing, scenario: Scenario, tag: str
) -> dict[str, float]:
    shape, skipped = scenario.quick, 0
    assert isinstance(shape, Shape)
    if not plan.quick:
        skipped = SKIPPED
        shape = shape._replace(messages=skipped + max(1, round(plan.seconds * shape.rate)))
    broker, visitors = standing.broker, Visitors(standing.visitor, standing.visitor)
    topics = f"/topic/bench.{tag}."
    if not plan.quick:
        with closing(
            Load(broker, WARMING, websocket=False, visitors=visitors, topics=topics)
        ) as warming:
            warm_run(warming, plan.seconds)
    load = StampedLoad(broker, shape, skipped, visitors=visitors, topics=topics)
    try:
        if not plan.quick:
            rest(broker)
            load.run(RUN_LIMIT_S)
        run = load.run(RUN_LIMIT_S)
    finally:
        load.close()
    return {
        "million_s": million_s(run),
        "p50_us": percentile(load.between, 0.5) * 1e6,
        "p99_us": percentile(load.between, 0.99) * 1e6,
    }


def _idle_figures(plan: Plan, standing: Standing, scenario: Scenario) -> dict[str, float]:
    broker, visitor = standing.broker, standing.visitor
    count = scenario.quick_idle if plan.quick else plan.connections
    server_of(broker.port, visitor)  # a passcode that is checked for the first time costs more
    if not plan.quick:
        rest(broker)
    idle = open_idle(broker, count, IDLE_AT_ONCE, RUN_LIMIT_S, websocket=False, visitors=(visitor,))
    return {
        "kib": idle.rss_bytes / 1024 / count,
        "connects_per_s": count / idle.wall_s,
        "connect_us": idle.broker.exact * 1e6 / count,
    }
