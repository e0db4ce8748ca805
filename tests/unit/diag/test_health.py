"""/healthz: each check alone, the worst of them, and a disk that hangs."""

import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from attrs import define, evolve, field

from tests.support.durable_dial import dialled
from tests.support.fakes import Dial
from tests.support.site import add_all, ask
from tests.support.site import dial as dial
from trio_stomp.broker import Histogram
from trio_stomp.diag import Reporter
from trio_stomp.store import StoreStatistics
from trio_stomp.web._health import (
    DEGRADED,
    DISK_PATIENCE_S,
    FAILING,
    LAST_DISK_BYTES,
    LOW_DISK_BYTES,
    OK,
    Check,
    Disk,
    Health,
)

NAMES = ["draining", "store", "memory", "input_queue", "event_loop_lag", "descriptors", "disk"]


@define(eq=False)
class Threads:
    """Threads that end when the test says so."""

    waiting: list[tuple[Callable[[], int], Callable[[int], None]]] = field(factory=list)

    def start(self, look: Callable[[], int], tell: Callable[[int], None]) -> None:
        self.waiting.append((look, tell))

    def finish(self) -> None:
        look, tell = self.waiting.pop()
        tell(look())


def health_of(dial: Dial, disk: Disk | None = None) -> Health:
    diagnostics = dial.server.diagnostics
    assert isinstance(diagnostics, Reporter)
    return Health(dial.server, diagnostics.figures, disk or Disk(""))


def check(health: Health, name: str, now: float = 0.0) -> Check:
    return next(each for each in health.checks(now) if each.name == name)


async def test_a_broker_that_is_well(dial: Dial) -> None:
    reply = ask(dial, "/healthz")
    assert reply.status == 200
    record = reply.json
    assert record["status"] == OK
    assert [each["name"] for each in record["checks"]] == NAMES
    assert {each["status"] for each in record["checks"]} == {OK}
    assert set(record["checks"][0]) == {"name", "status", "value", "limit", "detail"}
    assert ask(dial, "/healthz", "HEAD").body == b""
    assert ask(dial, "/healthz?verbose").status == 400


async def test_stopping_broker_accepts_no_connections(dial: Dial) -> None:
    await dial.connect()
    dial.server._is_stopping = True
    reply = ask(dial, "/healthz")
    assert reply.status == 503
    assert reply.json["status"] == FAILING
    assert check(health_of(dial), "draining").detail == dial.server.why_unready() != ""
    dial.server._is_stopping = False


@pytest.mark.parametrize(
    ("share", "status", "code"),
    [
        (0.0, OK, 200),
        (0.89, OK, 200),
        (0.9, DEGRADED, 200),
        (0.98, DEGRADED, 200),
        (0.99, FAILING, 503),
        (1.2, FAILING, 503),
    ],
)
async def test_health_of_memory_depends_on_its_use(
    dial: Dial, share: float, status: str, code: int
) -> None:
    memory = dial.server.memory
    taken = math.ceil(memory.limit_bytes * share)
    memory.used_bytes += taken
    assert ask(dial, "/healthz").status == code
    assert check(health_of(dial), "memory").status == status
    memory.used_bytes -= taken


async def test_memory_that_queues_have_nearly_filled(dial: Dial) -> None:
    memory = dial.server.memory
    taken = int(memory.limit_bytes * memory.kept_share * 0.95)
    assert taken < memory.limit_bytes * 0.9
    assert memory.take_kept(taken)
    found = check(health_of(dial), "memory")
    assert found.status == DEGRADED
    assert str(taken) in found.detail
    memory.give_kept(taken)


@pytest.mark.parametrize("kind", ["frames", "bytes"])
async def test_a_full_input_queue_degrades_health(dial: Dial, kind: str) -> None:
    inbox, limits = dial.server.inbox, dial.server.limits
    bound = {"frames": limits.max_input_queue_size, "bytes": limits.max_input_queue_bytes}[kind]
    setattr(inbox, kind, int(bound * 0.89))
    assert check(health_of(dial), "input_queue").status == OK
    setattr(inbox, kind, bound)
    found = check(health_of(dial), "input_queue")
    assert (found.status, found.value) == (DEGRADED, 1.0)
    setattr(inbox, kind, 0)


async def test_a_long_turn_of_this_interval_or_the_last(dial: Dial) -> None:
    health = health_of(dial)
    figures = health.figures
    long = Histogram()
    long.observe(1.5, 1)
    figures.end_interval(long)
    assert check(health, "event_loop_lag") == Check(
        "event_loop_lag",
        DEGRADED,
        1.5,
        1.0,
        "longest turn of the dispatcher in the last interval, in seconds",
    )
    figures.end_interval(Histogram())
    assert check(health, "event_loop_lag").status == OK
    dial.server.dispatcher.turn_times.observe(1.0, 1)
    assert check(health, "event_loop_lag").status == DEGRADED


@pytest.mark.parametrize(
    ("used", "limit", "status"),
    [
        (5, 1024, OK),
        (960, 1024, OK),
        (961, 1024, DEGRADED),
        (1016, 1024, DEGRADED),
        (1017, 1024, FAILING),
        (2000, 1024, FAILING),
        (5, 0, OK),
        (0, 0, OK),
    ],
)
async def test_health_of_descriptors_depends_on_their_use(
    dial: Dial, used: int, limit: int, status: str
) -> None:
    health = health_of(dial)
    health.files = lambda: (used, limit)
    assert check(health, "descriptors").status == status


async def test_descriptors_of_this_process(dial: Dial, monkeypatch: pytest.MonkeyPatch) -> None:
    files = health_of(dial).files
    assert files()[0] > 0
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (77, 99))
    assert files()[1] == 77
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, 99))
    assert files()[1] == 0
    monkeypatch.setattr(sys, "platform", "win32")
    assert files()[1] == 0
    monkeypatch.setattr("trio_stomp.diag._process._FILES", "/nowhere")
    assert files()[0] == 0


@pytest.mark.parametrize(
    ("free", "status"),
    [
        (LOW_DISK_BYTES, OK),
        (LOW_DISK_BYTES - 1, DEGRADED),
        (LAST_DISK_BYTES, DEGRADED),
        (LAST_DISK_BYTES - 1, FAILING),
        (0, FAILING),
    ],
)
async def test_health_of_the_disk_depends_on_its_free_space(
    dial: Dial, free: int, status: str, tmp_path: Path
) -> None:
    threads = Threads()
    disk = Disk(str(tmp_path), threads.start)
    assert disk.free_bytes > 0
    health = health_of(dial, disk)
    disk.free_bytes = free
    assert check(health, "disk").status == status


async def test_a_hanging_disk_fails_its_check_without_blocking(dial: Dial, tmp_path: Path) -> None:
    threads = Threads()
    disk = Disk(str(tmp_path), threads.start)
    health = health_of(dial, disk)
    assert check(health, "disk", 100.0).status == OK
    assert len(threads.waiting) == 1
    assert check(health, "disk", 100.0 + DISK_PATIENCE_S - 0.1).status == OK
    assert check(health, "disk", 100.0 + DISK_PATIENCE_S).status == FAILING
    assert len(threads.waiting) == 1
    disk.free_bytes = -1
    threads.finish()
    assert disk.free_bytes > 0
    assert check(health, "disk", 200.0).status == OK
    assert len(threads.waiting) == 1


async def test_a_disk_that_has_gone_has_no_room(tmp_path: Path) -> None:
    threads = Threads()
    disk = Disk(str(tmp_path / "gone"), threads.start)
    assert disk.free_bytes == 0


async def test_a_thread_looks_at_the_disk(tmp_path: Path) -> None:
    disk = Disk(str(tmp_path))
    disk.free_bytes = -1
    disk.ask(0.0)
    with trio.fail_after(5):
        while disk.free_bytes < 0:  # noqa: ASYNC110
            await trio.sleep(0.001)
    assert not disk.is_silent(math.inf)


@define(eq=False)
class Scales:
    """A store that reports the figures of the test."""

    figures: StoreStatistics = field(factory=StoreStatistics)

    def statistics(self) -> StoreStatistics:
        return self.figures


async def test_health_of_the_store_depends_on_size_damage_and_failure() -> None:
    async with dialled(monitor_interval_s=0.0) as dial:
        await dial.start()
        add_all(dial)
        health, committer = health_of(dial), dial.server.committer
        assert committer is not None
        assert check(health, "store").status == OK
        scales = Scales()
        real, committer.store = committer.store, scales  # type: ignore[assignment]
        for size, status in ((89, OK), (90, DEGRADED), (99, FAILING)):
            scales.figures = StoreStatistics(bytes=size, limit_bytes=100)
            assert check(health, "store").status == status
        assert "max_store_bytes" in check(health, "store").detail
        scales.figures = evolve(scales.figures, limit_bytes=0, damaged=3)
        assert check(health, "store") == Check(
            "store", DEGRADED, 99, None, "3 records were found damaged"
        )
        committer.store = real
        committer.error = "the store cannot be written to"
        answer = ask(dial, "/healthz")
        assert answer.status == 503
        by_name = {each["name"]: each["status"] for each in answer.json["checks"]}
        assert (by_name["store"], by_name["draining"]) == (FAILING, OK)
        committer.error = ""
