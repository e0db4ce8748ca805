"""The garbage collector: what is young is collected before it is large."""

import gc
import sys
from collections.abc import Iterator

import pytest

from tests.support.fakes import TCP, open_dial
from tests.support.share_fakes import Clocked
from tests.support.startup import composition

collect_young, young_generation = composition.collect_young, composition.young_generation


@pytest.fixture
def collector() -> Iterator[None]:
    """A collector that comes when it is called, put back as it was."""
    is_enabled, threshold = gc.isenabled(), gc.get_threshold()
    gc.enable()
    gc.set_threshold(1 << 30)
    yield
    gc.set_threshold(*threshold)
    if not is_enabled:
        gc.disable()


def is_young(thing: object) -> bool:
    newest = young_generation()
    assert newest is not None
    return any(thing is each for n in range(newest + 1) for each in gc.get_objects(generation=n))


@pytest.mark.usefixtures("collector")
def test_surviving_objects_are_old_however_many_there_are():
    container: list[object] = [[]]
    assert is_young(container)
    collect_young()
    container += [[] for _ in range(10_000)]
    assert not is_young(container)


@pytest.mark.usefixtures("collector")
def test_garbage_is_collected():
    cycle: list[object] = []
    cycle.append(cycle)
    place = id(cycle)
    del cycle
    collect_young()
    assert not any(id(each) == place and each == [each] for each in gc.get_objects())


@pytest.mark.usefixtures("collector")
def test_a_long_list_of_queues_is_not_traversed_by_young_collections():
    desk = Clocked()
    desk.broker.turns.collect_young = collect_young
    desk.queues(512)
    few, many = desk.actor(), desk.actor()
    many.subscribes("/queue/z*", ack="client")
    desk.settles()
    few.subscribes("/queue/z0000*", ack="client")
    desk.settles()
    assert len(many.consumer().queues) == 512
    assert not is_young(many.consumer().queues)
    assert len(few.consumer().queues) == 10
    assert is_young(few.consumer().queues), "for a few nothing is collected"


@pytest.mark.usefixtures("collector")
def test_a_program_without_collections_has_none(monkeypatch: pytest.MonkeyPatch):
    called: list[int] = []
    monkeypatch.setattr(gc, "collect", called.append)
    collect_young()
    assert called == [young_generation()]
    gc.disable()
    collect_young()
    assert len(called) == 1


@pytest.mark.parametrize(
    ("version", "name", "has_lock", "generation"),
    [
        ((3, 11), "cpython", None, 1),
        ((3, 13), "cpython", True, 1),
        ((3, 13), "cpython", False, None),
        ((3, 14), "cpython", True, 0),
        ((3, 11), "pypy", None, None),
    ],
)
def test_collector_does_nothing_without_generations(
    monkeypatch: pytest.MonkeyPatch,
    version: tuple[int, int],
    name: str,
    has_lock: bool | None,
    generation: int | None,
):
    monkeypatch.setattr(sys, "version_info", version)
    monkeypatch.setattr(sys.implementation, "name", name)
    if has_lock is None:
        monkeypatch.delattr(sys, "_is_gil_enabled", raising=False)
    else:
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda: has_lock, raising=False)
    assert young_generation() == generation
    monkeypatch.undo()


async def test_a_broker_has_it() -> None:
    async with open_dial(TCP) as dial:
        await dial.start()
        assert dial.server.broker.turns.collect_young is collect_young
