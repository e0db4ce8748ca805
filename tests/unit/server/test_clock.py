"""The broker's clock, and whole brokers while the wall clock is set and the machine sleeps."""

import logging
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from attrs import define, field

from tests.support.fakes import TCP, bodies, open_dial
from tests.support.foreign import LISTENING, ROOT, PythonPeer
from tests.support.hostile import QUIET
from trio_stomp.broker import WallTime
from trio_stomp.server import Clock

HOUR = 3600.0


@define(eq=False)
class Clocks:
    """The clocks of a machine, which run as the test says."""

    ran_s: float = 500.0
    slept_s: float = 0.0
    day_s: float = 1e9
    held_up_s: float = 0.0
    """The time that passes at each look."""
    clock: Clock = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.clock = Clock(WallTime(7.0), self.elapsed, lambda: self.ran_s, self.day)

    def read(self) -> float | None:
        """Follow the clocks as a turn does, and return the new offset of the wall clock, if any."""
        differences = self.clock.look()
        return None if differences is None else self.clock.follow(*differences)

    def elapsed(self) -> float:
        return self.ran_s + self.slept_s

    def day(self) -> float:
        self.passes(self.held_up_s)
        return self.day_s

    def passes(self, seconds: float) -> None:
        self.ran_s += seconds
        self.day_s += seconds

    def sleeps(self, seconds: float) -> None:
        self.slept_s += seconds
        self.day_s += seconds


async def test_a_clock_that_is_not_set_reports_nothing(autojump_clock) -> None:
    clocks = Clocks()
    for _ in range(10):
        clocks.passes(1000)
        assert clocks.clock.look() is None
        assert clocks.read() is None
    assert clocks.clock.now() == trio.current_time()
    assert clocks.clock.wall_s() == clocks.clock.now() + 7


@pytest.mark.parametrize("step_s", [HOUR, -HOUR, 0.1, -0.1])
def test_clock_step_is_reported_once(step_s: float) -> None:
    clocks = Clocks()
    clocks.passes(10)
    clocks.day_s += step_s
    assert clocks.clock.look() is not None
    offset_s = clocks.read()
    assert offset_s == pytest.approx(7 + step_s)
    clocks.clock.wall.offset_s = offset_s or 0
    assert clocks.clock.look() is None
    assert clocks.read() is None
    assert clocks.clock.slept_s == 0


def test_slew_counts_once_it_is_large_enough() -> None:
    clocks, offset_s, values = Clocks(), 7.0, 0
    for _ in range(100):
        clocks.passes(10)
        clocks.day_s += 0.004
        found = clocks.read()
        if found is not None:
            offset_s, values = found, values + 1
            clocks.clock.wall.offset_s = found
    assert offset_s == pytest.approx(7.4, abs=0.06)
    assert values <= 8


async def test_time_of_a_suspended_machine_has_passed(autojump_clock) -> None:
    clocks = Clocks()
    before = clocks.clock.now()
    clocks.sleeps(HOUR)
    assert clocks.clock.look() is not None
    assert clocks.read() is None  # the wall clock was not set
    assert clocks.clock.now() == before + HOUR
    assert clocks.clock.wall_s() == before + HOUR + 7
    clocks.sleeps(HOUR)
    clocks.day_s += 5
    assert clocks.read() == pytest.approx(12)
    assert clocks.clock.now() == before + 2 * HOUR
    assert not clocks.clock.slept_s % HOUR


def test_a_process_that_was_held_up_between_two_looks_believes_neither() -> None:
    clocks = Clocks(held_up_s=3.0)
    clocks.clock = Clock(WallTime(7.0), clocks.elapsed, lambda: clocks.ran_s, clocks.day)
    clocks.held_up_s = 9.0
    assert clocks.read() is None
    clocks.held_up_s = 0.0
    assert clocks.clock.wall.offset_s == 7.0


# --- whole brokers --------------------------------------------------------------------------------


@define(eq=False)
class Machine:
    """Replaces the system's clocks."""

    set_s: float = 0.0
    slept_s: float = 0.0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found, day, get = Machine(), time.time, time.clock_gettime

    def elapsed(clock: int) -> float:
        return get(clock) + found.slept_s

    monkeypatch.setattr(time, "time", lambda: day() + found.set_s + found.slept_s)
    monkeypatch.setattr(time, "clock_gettime", elapsed)
    return found


@pytest.mark.parametrize("hears_of", ["set_s", "slept_s"])
async def test_a_quiet_broker_sends_due_messages_after_a_step_of_the_clock(
    machine: Machine, hears_of: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Only its own checks of the clocks wake it."""
    day_ms = round((time.time() + HOUR) * 1000)
    headers = {"AMQ_SCHEDULED_TIME": str(day_ms)}
    async with open_dial(TCP, **QUIET) as dial:
        client = await dial.connect()
        await client.subscribe("/queue/q")
        await client.publish("/queue/q", b"a", headers=headers, receipt=True)
        with caplog.at_level(logging.WARNING, "trio_stomp"):
            setattr(machine, hears_of, HOUR)
            with trio.fail_after(10):
                frame = await client.receive()
        assert frame.body == b"a"
        assert ("was set by +3600" in caplog.text) is (hears_of == "set_s")


async def test_a_delay_and_a_ttl_pass_while_the_machine_sleeps(machine: Machine) -> None:
    async with open_dial(TCP, **QUIET) as dial:
        client = await dial.connect()
        await client.publish("/queue/q", b"a", headers={"ttl": "60000"}, receipt=True)
        await client.publish("/queue/q", b"b", headers={"ttl": "90000"}, receipt=True)
        delay = {"AMQ_SCHEDULED_DELAY": "70000"}
        await client.publish("/queue/later", b"c", headers=delay, receipt=True)
        await client.subscribe("/queue/later", "later")
        machine.slept_s = 71.0
        with trio.fail_after(10):
            assert (await client.receive()).body == b"c"
        await client.publish("/queue/q", b"d", headers={"ttl": "5000"}, receipt=True)
        await client.subscribe("/queue/q", "q")
        with trio.fail_after(10):
            assert bodies([await client.receive(), await client.receive()]) == [b"b", b"d"]
        # The expiry is measured by the same clock.
        (destination,) = [
            each for each in dial.server.broker.destinations if each.name == "/queue/q"
        ]
        assert destination.expired == 1


async def test_a_machine_that_slept_ends_no_connection(machine: Machine) -> None:
    """Bytes that a client sent during the sleep have not been read yet."""
    async with open_dial(TCP, **QUIET) as dial:
        client = await dial.connect("1.2", {"heart-beat": "4000,0"})
        machine.slept_s = HOUR
        await trio.sleep(1.5)
        assert dial.server.clock.slept_s == pytest.approx(HOUR, abs=1)
        await client.fence()


BROKER = """
import sys, time
day, place = time.time, sys.argv.pop(1)
def told():
    with open(place) as file:
        return day() + float(file.read())
time.time = told
from trio_stomp.cli import main
sys.exit(main(sys.argv[1:]))
"""


@define(eq=False)
class Child:
    """A broker in its own process, whose wall clock can be set."""

    tmp_path: Path
    data: str

    def sets(self, seconds: float) -> None:
        place = self.tmp_path / "clock"
        (self.tmp_path / "new").write_text(str(seconds))
        (self.tmp_path / "new").rename(place)

    @contextmanager
    def runs(self) -> Iterator[int]:
        """Return its port; it is killed at the end."""
        command = [sys.executable, "-c", BROKER, str(self.tmp_path / "clock"), "--port", "0"]
        data = ["--store-url" if "://" in self.data else "--data-dir", self.data]
        with subprocess.Popen(
            [*command, *data], cwd=ROOT, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            try:
                line = process.stderr.readline()
                while not (found := re.search(LISTENING, line)):
                    assert line, "it ended"
                    line = process.stderr.readline()
                yield int(found[1])
            finally:
                process.kill()


@contextmanager
def joined(port: int) -> Iterator[PythonPeer]:
    peer = PythonPeer(port, "1.2", {})
    try:
        yield peer
    finally:
        peer.leave()


@pytest.mark.parametrize("store", ["journal", "sqlite"])
def test_a_real_broker_whose_wall_clock_is_set(tmp_path: Path, store: str) -> None:
    """With a wrong clock at boot, corrected later, a durable message was never delivered (V5)."""
    if store == "sqlite":
        pytest.importorskip("sqlalchemy")
        (tmp_path / "data").mkdir()
    data = str(tmp_path / "data")
    child = Child(tmp_path, f"sqlite:///{data}/x.db" if store == "sqlite" else data)
    child.sets(HOUR)  # the clock is an hour ahead at boot
    with child.runs() as port, joined(port) as client:

        def sends(name: str, **headers: object) -> None:
            pairs = {name: str(value) for name, value in headers.items()}
            receipt = client.send("/queue/q", name, {"persistent": "true", **pairs})
            assert receipt.get("stored", receipt.get("dropped")) == {"dies": "expired"}.get(
                name, store
            )

        sends("old ttl", ttl=600_000)
        sends("old end", expires=round((time.time() + HOUR + 600) * 1000))
        child.sets(0.0)
        time.sleep(1.2)
        now_ms = round(time.time() * 1000)
        sends("lives", expires=now_ms + 600_000)
        sends("dies", expires=now_ms - 1000)
        sends("longer", expires=now_ms + 1800_000)
        sends("long ttl", ttl=1800_000)
        with joined(port) as reader:
            reader.subscribe("/queue/q", ack="client-individual")
            assert reader.bodies(5) == ["old ttl", "old end", "lives", "longer", "long ttl"]
            assert reader.is_quiet()
    child.sets(900.0)  # by the wall clock, it was down for a quarter of an hour
    with child.runs() as port, joined(port) as reader:
        reader.subscribe("/queue/q", ack="client-individual")
        assert reader.bodies(3) == ["old end", "longer", "long ttl"]
        assert reader.is_quiet()
