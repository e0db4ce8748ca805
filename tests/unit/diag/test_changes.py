"""Lists of the diagnostics have the changes since the last one, and everything once a minute."""

import json
from itertools import pairwise

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.support.core import Bench
from tests.support.fakes import MEMORY, WS_MEMORY, Client, Dial, open_dial
from trio_stomp.broker import BrokerPolicies, DestinationPolicy
from trio_stomp.diag._changes import Changes, destination_mark
from trio_stomp.diag._records import _waiting_record, destination_record

INTERVAL_S = 4.0


# --- selection -----------------------------------------------------------------------------


Figures = dict[str, int]


def listed(changes: Changes, figures: Figures, *, everything: bool = False) -> list[str]:
    """One pass over some things."""
    names = list(figures)
    found = changes.pick(names, names, list(figures.values()), everything=everything)
    changes.end_pass()
    return found


def test_the_first_list_is_everything() -> None:
    assert listed(Changes(60), {"a": 1, "b": 1}) == ["a", "b"]
    assert listed(Changes(60), {}) == []


def test_later_passes_list_changed_and_new_objects() -> None:
    changes = Changes(60)
    listed(changes, {"a": 1, "b": 1})
    assert listed(changes, {"a": 1, "b": 1}) == []
    assert listed(changes, {"a": 1, "b": 2, "c": 1}) == ["b", "c"]
    assert listed(changes, {"a": 1, "b": 2, "c": 1}) == []
    assert listed(changes, {"a": 1, "b": 3, "c": 1}, everything=True) == ["a", "b", "c"]
    assert listed(changes, {"a": 1, "b": 3, "c": 1}) == []


def test_removed_entry_is_forgotten_and_new_if_it_returns() -> None:
    changes = Changes(60)
    listed(changes, {"a": 1, "b": 1})
    assert listed(changes, {"a": 1}) == []
    assert len(changes._before) == 1
    assert listed(changes, {"a": 1, "b": 1}) == ["b"]


def test_a_pass_in_pieces_remembers_objects_that_are_not_due() -> None:
    changes = Changes(60)
    for _ in range(3):
        found = [changes.pick([name], [name], [1], everything=False) for name in "abc"]
        assert found == ([["a"], ["b"], ["c"]] if not changes.passes else [[], [], []])
        changes.end_pass()
    assert changes.passes == 3
    changes.pick(["a"], ["a"], [2], everything=False)
    # The pass is not over: the others are compared with what was told of them in the last one.
    assert changes.pick(["b", "c"], ["b", "c"], [1, 2], everything=False) == ["c"]


@pytest.mark.parametrize("full_s", [0.0, 5.0, 60.0])
def test_everything_comes_as_often_as_it_is_asked_for(full_s: float) -> None:
    changes = Changes(full_s)
    full = [now * 5.0 for now in range(25) if changes.is_full(now * 5.0)]
    assert full == [now * 5.0 for now in range(25) if not full_s or now * 5.0 % full_s == 0]


@pytest.mark.parametrize("name", ["/queue/q", "/topic/t", "#work"])
def test_every_reported_figure_of_a_destination_is_in_its_mark(name: str) -> None:
    """Or news of it would come with the next full list only, perhaps a minute later."""
    bench = Bench(policies=BrokerPolicies(ttl_ms=60_000))
    sender, reader, other = bench.actor(), bench.actor(), bench.actor()
    sender.sends(name, "first")
    destination = bench.broker.destinations.open(name)
    seen = []

    def note() -> None:
        seen.append(
            (
                destination_record(destination, bench.broker.statistics()),
                destination_mark(destination, bench.broker.statistics()),
            )
        )

    for step in (
        lambda: reader.subscribes(name, ack="client-individual", prefetch_count="2"),
        lambda: other.subscribes(name, ack="client-individual", prefetch_count="2"),
        lambda: other.is_gone(),
        lambda: sender.sends(name, *"abcdefgh"),
        lambda: reader.acks(*reader.frames()[-1:]),
        lambda: reader.nacks(*reader.frames()[-1:]),
        lambda: bench.passes(61),
        lambda: reader.is_gone(),
        lambda: bench.passes(1),
    ):
        note()
        step()
        bench.turn()
    note()
    changes = [(one, other) for one, other in pairwise(seen) if one[0] != other[0]]
    assert len(changes) >= 4
    assert [(one, other) for one, other in changes if one[1] == other[1]] == []


# --- on the wire ----------------------------------------------------------------------------------


Listed = list[tuple[list[str], bool]]


async def ticks(client: Client, topic: str, key: str, count: int) -> Listed:
    """The next lists: names of what is in them, and whether they say that they are full."""
    found: Listed = []
    while len(found) < count:
        with trio.fail_after(10 * INTERVAL_S):
            frame = await client.receive()
        if frame["destination"] == topic:
            body = json.loads(frame.body)
            found.append(([item[key] for item in body["items"]], body["full"]))
    return found


async def watching(dial: Dial, topic: str) -> Client:
    client = await dial.connect()
    await client.subscribe(topic)
    return client


async def test_destinations_are_reported_after_a_change(autojump_clock) -> None:
    async with open_dial(diag_interval_s=INTERVAL_S, diag_stream=False) as dial:
        topic = "DIAG/destinations"
        watcher, other = await watching(dial, topic), await dial.connect()
        for name in "ab":
            await other.subscribe(f"/topic/{name}", id=name)
        assert await ticks(watcher, topic, "destination", 1) == [(["/topic/a", "/topic/b"], True)]
        assert await ticks(watcher, topic, "destination", 2) == [([], False)] * 2
        await other.publish("/topic/b", b"x")
        assert await ticks(watcher, topic, "destination", 2) == [(["/topic/b"], False), ([], False)]
        await other.send("UNSUBSCRIBE", {"id": "a"})
        assert await ticks(watcher, topic, "destination", 1) == [(["/topic/a"], False)]
        rest = await ticks(watcher, topic, "destination", 10)
        assert [full for _, full in rest] == [False] * 9 + [True]  # 15 intervals are a minute
        assert "/topic/b" in rest[-1][0]


@pytest.mark.parametrize("transport", [MEMORY, WS_MEMORY])
async def test_heart_beats_alone_are_no_news_of_a_connection(
    autojump_clock, transport: str
) -> None:
    async with open_dial(
        transport, diag_interval_s=INTERVAL_S, diag_stream=False, websocket_ping_s=0.0
    ) as dial:
        topic = "DIAG/connections"
        watcher = await watching(dial, topic)
        quiet = await dial.connect("1.2", {"heart-beat": "1000,1000"})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(beat, quiet)
            (everybody, full), *_ = await ticks(watcher, topic, "session_id", 1)
            assert full
            assert len(everybody) == 2
            (own, full), (again, _) = await ticks(watcher, topic, "session_id", 2)
            # Whoever watches gets MESSAGEs, which is news each time.
            assert (own, again, full) == (own, own, False)
            assert len(own) == 1
            await quiet.send("SEND", {"destination": "/topic/t"}, b"x")
            ((both, _),) = await ticks(watcher, topic, "session_id", 1)
            assert sorted(both) == sorted(everybody)
            nursery.cancel_scope.cancel()
        quiet.abort()
        await wait_all_tasks_blocked()
        ((left, _),) = await ticks(watcher, topic, "session_id", 1)
        assert left == own


async def beat(client: Client) -> None:
    while True:
        await trio.sleep(0.9)
        await client.send_bytes(b"\n")


def test_no_figure_of_a_queue_stands_still() -> None:
    """One that nobody sets would be 0 whatever happens."""
    policy = DestinationPolicy(overflow="drop-newest", max_messages=3)
    bench = Bench(book={"/queue/q": policy})
    sender, reader = bench.actor(), bench.actor()
    sender.sends("/queue/q", "early", ttl="10")
    bench.passes(1)
    reader.subscribes("/queue/q", ack="client-individual", prefetch_count="1")
    sender.sends("/queue/q", *"abcd")
    reader.nacks(*reader.frames())
    bench.passes(5)  # it is delivered again
    reader.acks(reader.frames()[0])
    bench.passes(5)  # the next one is delivered
    bench.passes(5)
    record = _waiting_record(bench.queue("/queue/q"), bench.now)
    known_nothing = {"stale_depth", "subscription_id"}  # of what is parked, and of nobody
    assert {name for name, figure in record.items() if not figure} == known_nothing
