"""Rounds: a broker with some scenarios side by side, which share its restarts and pauses."""

import os
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from _crash.link import Gone
from _crash.ports import free_port
from _proof.watched import ProofError, Watched, watched_broker

from _combinations.policy import as_toml
from _combinations.scenario import do, drain
from _combinations.scene import Scene
from _combinations.steps import KILL, WAIT, Plan, deep_plan, events, plan
from _combinations.wire import Finding, manage

STORES = ("journal", "journal", "sqlite", "")
DEEP = ("--max-memory-bytes", f"{2 << 20}")
"""So little memory that queues of a thousand messages leave some in the store."""
SCENARIOS = 20
WAIT_S = 2.2
"""All short lifetimes and delays are surely over after it."""
TRIES = 5
STORED_S = 1.2
"""The counts of deliveries and failures are stored within a second."""


@dataclass(frozen=True)
class Setup:
    """The broker of a round: its store, options and checkout, and what happens between phases."""

    store: str
    between: Sequence[str]
    options: Sequence[str]
    tree: Path


class Host:
    """The broker of a round, which is ended and started again."""

    def __init__(self, work: Path, setup: Setup) -> None:
        self.port, self._work, self._tree, self._starts = free_port(), work, setup.tree, 0
        stored = {
            "journal": ["--data-dir", f"{work / 'data'}"],
            "sqlite": ["--store-url", f"sqlite:///{work / 'store.db'}"],
        }.get(setup.store, [])
        self._options = ["--config", f"{work / 'settings.toml'}", *stored, *setup.options]
        self.process = ExitStack()
        self._watched: Watched

    def start(self) -> None:
        """Start it, the first time on a port that nobody else has taken meanwhile."""
        self._starts += 1
        log = self._work / f"{self._starts}.log"
        for _ in range(TRIES):
            options = [*self._options, "--port", f"{self.port}"]
            try:
                running = watched_broker(options, log, tree=self._tree)
                self._watched = self.process.enter_context(running)
            except ProofError:
                if self._starts > 1 or "in use" not in log.read_text():
                    raise
                self.port = free_port()
            else:
                return

    def end(self, *, is_kill: bool = False) -> None:
        """End it, and look at its log.

        Raises:
          Finding: the log has an unexpected line, or it did not end as told.
        """
        if is_kill:
            os.kill(self._watched.pid, signal.SIGKILL)
        try:
            self.process.close()
        except ProofError as error:
            if not is_kill:
                raise Finding(f"{error}") from error
        if bad := self._watched.bad_lines():
            raise Finding(f"the log: {bad[0][:3000]}")

    def depths(self) -> dict[str, tuple[int, int]]:
        """Return waiting and unacknowledged messages of queues and durable subscriptions."""
        found: dict[str, tuple[int, int]] = {}
        queues, durables = (
            manage(self.port, f"GET {what}", limit="1000") for what in ("queues", "durables")
        )
        for each in queues["queues"]:
            found[each["destination"]] = each["input_depth"], each["ack_depth"]
        for each in durables["durables"]:
            key = f"{each['name']}|{each['destination']}"
            found[key] = each["waiting"], each["unacked"]
        return found


class Failed(Exception):
    """A scenario of a round failed."""

    def __init__(self, plan: Plan, scene: Scene, text: str) -> None:
        super().__init__(text)
        self.plan, self.scene = plan, scene


def run(plans: list[Plan], setup: Setup) -> None:
    """Run scenarios on a broker.

    Raises:
      Failed: one found something.
    """
    with tempfile.TemporaryDirectory(prefix="combinations-") as name, ExitStack() as stack:
        work = Path(name)
        settings = "".join(as_toml(each.policies) for each in plans)
        (work / "settings.toml").write_text(settings)
        host = Host(work, setup)
        stack.enter_context(host.process)
        host.start()
        scenarios = [
            Scene(f"s{each.number}", each.policies, host.port, setup.store) for each in plans
        ]
        for phase in range(len(setup.between) + 1):
            for each, scenario in zip(plans, scenarios, strict=True):
                with Judged(each, scenario):
                    for step in each.phases[phase]:
                        do(scenario, step)
            if phase < len(setup.between):
                happen(setup.between[phase], host, plans, scenarios)
        for each, scenario in zip(plans, scenarios, strict=True):
            with Judged(each, scenario):
                drain(scenario)
        with Judged(plans[0], scenarios[0]):
            host.end()


def happen(event: str, host: Host, plans: list[Plan], scenarios: list[Scene]) -> None:
    """Wait, or restart the broker, and compare the depths."""
    for scenario in scenarios:
        scenario.log.append(f"--- {event}")
    if event == WAIT:
        time.sleep(WAIT_S)
    else:
        time.sleep(STORED_S if event == KILL else 0)
        while any(scenario.model.must_wait() for scenario in scenarios):
            for each, scenario in zip(plans, scenarios, strict=True):
                with Judged(each, scenario):
                    scenario.settle()  # a dead letter may come meanwhile
            time.sleep(0.05)
        with Judged(plans[0], scenarios[0]):
            host.end(is_kill=event == KILL)
        for each, scenario in zip(plans, scenarios, strict=True):
            with Judged(each, scenario):
                scenario.ended()
        host.start()
        for scenario in scenarios:
            scenario.restarted()
    for each, scenario in zip(plans, scenarios, strict=True):
        with Judged(each, scenario):
            scenario.settle()
    deadline = time.monotonic() + WAIT_S
    while True:
        depths = host.depths()
        wrong = [scenario.differs(depths) for scenario in scenarios]
        if not any(wrong):
            for scenario in scenarios:
                scenario.resolve(depths)
            return
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    for each, scenario, text in zip(plans, scenarios, wrong, strict=True):
        if text:
            raise Failed(each, scenario, text)


class Judged:
    """Turns what a scenario found into ``Failed``."""

    def __init__(self, plan: Plan, scenario: Scene) -> None:
        self.plan, self.scenario = plan, scenario

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (Finding, Gone)):
            text = str(error) or "the broker closed a connection"
            raise Failed(self.plan, self.scenario, text) from error


def draw(seed: str, count: int, tree: Path, *, is_deep: bool) -> tuple[list[Plan], Setup]:
    """Return the scenarios of a round and its broker."""
    dice = Random(seed)
    between, store = events(dice), dice.choice(STORES[:3] if is_deep else STORES)
    if is_deep:
        between = between[:2]
    make = deep_plan if is_deep else plan
    plans = [make(dice, n, len(between) + 1) for n in range(1 if is_deep else count)]
    return plans, Setup(store, between, DEEP if is_deep else (), tree)


def shrink(failed: Failed, setup: Setup, until: float) -> tuple[Failed, bool]:
    """Return the failure with fewer steps, as far as it repeats, and whether it does."""

    def fails(candidate: Plan) -> Failed | None:
        try:
            run([candidate], setup)
        except Failed as error:
            return error
        return None

    best = fails(failed.plan)
    if best is None:
        return failed, False
    size = max(map(len, best.plan.phases))
    while size and time.monotonic() < until:
        is_smaller = False
        for phase in range(len(best.plan.phases)):
            start = 0
            while start < len(best.plan.phases[phase]) and time.monotonic() < until:
                steps = best.plan.phases[phase]
                phases = list(best.plan.phases)
                phases[phase] = steps[:start] + steps[start + size :]
                found = fails(replace(best.plan, phases=phases))
                if found is not None:
                    best, is_smaller = found, True
                else:
                    start += size
        size = size if is_smaller and size == 1 else size // 2
    return best, True
