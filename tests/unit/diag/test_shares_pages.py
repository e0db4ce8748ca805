"""Large pages are made in pieces: others are served in between, and nothing appears twice."""

import heapq

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as plain

from tests.support.fakes import TCP, Dial, open_dial, until
from tests.support.site import add_all, ask_over_wire, empty_queues, parse, whole
from trio_stomp import CloseReason
from trio_stomp.base import LOOKS, RECORDS, Greatest, Pieces, greatest
from trio_stomp.broker import MemoryBudget
from trio_stomp.server.connection import _pages
from trio_stomp.server.connection._web_share import WebShare
from trio_stomp.transport import HttpRequest

QUIET = {"diag_interval_s": 0.0, "monitor_interval_s": 0.0, "websocket_ping_s": 0.0}
QUEUES = 2_000
CLIENTS = 2 * RECORDS
LONG = (
    ("/metrics", QUEUES // LOOKS),
    ("/queuez?limit=1000", QUEUES // LOOKS + 1000 // RECORDS),
    ("/queuez?state=waiting&sort=bytes&offset=1990", 2 * QUEUES // LOOKS),
    ("/queuez?state=parked&limit=100", 100 // RECORDS),
    ("/connz?sort=idle&state=open", CLIENTS // RECORDS),
    ("/subsz", CLIENTS // RECORDS),
    ("/subsz?state=durable", CLIENTS // RECORDS),
)


def send(destination: str) -> bytes:
    return f"SEND\ndestination:{destination}\n\nx\0".encode()


async def fill(dial: Dial) -> None:
    """Make much of all that pages tell of."""
    sender = await dial.connect()
    await sender.send_bytes(b"".join(send(f"/queue/z{n}") for n in range(QUEUES)))
    await sender.send_bytes(b"".join(send(f"/topic/parked.{n}") for n in range(100)))
    for number in range(CLIENTS):
        client = await dial.connect()
        await client.send_bytes(
            f"SUBSCRIBE\nid:1\nack:client\ndestination:/topic/{number}\n"
            f"durable-subscription-name:d{number}\n\n\0".encode()
        )
        await client.fence()
    await sender.fence()
    add_all(dial, limit=600)


@pytest.mark.parametrize(("target", "least"), LONG)
async def test_each_piece_of_a_page_looks_at_few(target: str, least: int) -> None:
    async with open_dial(TCP, **QUIET, ttl_ms=60_000) as dial:
        await fill(dial)
        making = dial.server.pages.respond(HttpRequest("GET", target, ()))
        assert sum(1 for _ in making) >= least
        empty_queues(dial)


async def test_others_are_answered_while_a_page_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_dial(TCP, **QUIET) as dial:
        await fill(dial)
        other = await dial.connect()
        answers = 0
        monkeypatch.setattr(_pages, "SHARE_S", 0.0)

        async def ping() -> None:
            nonlocal answers
            while True:
                await other.publish("/topic/ping", b"x", receipt=True)
                answers += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ping)
            for target, least in LONG:
                before = answers
                reply = await ask_over_wire(await dial.stream(), target)
                assert reply.status == 200
                assert answers > before or least < 10
            nursery.cancel_scope.cancel()
        await other.aclose()
        empty_queues(dial)


async def test_one_page_that_takes_long_is_made_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pages, "SHARE_S", 0.0)
    log: list[str] = []

    def page(name: str) -> Pieces[bytes]:
        yield
        for _ in range(3):
            log.append(name)
            yield
        return name.encode()

    one, made = WebShare(MemoryBudget()), list[bytes]()

    async def make(name: str) -> None:
        made.append(await _pages._made(page(name), one))

    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(make, name)
    assert sorted(made) == [b"a", b"b", b"c"]
    assert log == [each for each in dict.fromkeys(log) for _ in range(3)]


async def test_client_that_leaves_frees_the_page_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_pages, "SHARE_S", 0.0)
    ended: list[str] = []

    def endless() -> Pieces[bytes]:
        try:
            while True:
                yield
        finally:
            ended.append("page")

    one = WebShare(MemoryBudget())
    with trio.move_on_after(0.01):
        await _pages._made(endless(), one)
    assert ended == ["page"]
    assert not one.one_page.locked()
    assert one.memory.used_bytes == 0


def samples(answer: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in plain(parse(answer).text)
        for sample in family.samples
    }


async def test_totals_include_objects_that_leave_while_metrics_are_made() -> None:
    async with open_dial(TCP, **QUIET) as dial:
        await fill(dial)
        broker, request = dial.server.broker, HttpRequest("GET", "/metrics", ())
        leaver = await dial.connect()
        before = samples(whole(dial.server.pages.respond(request)))
        making = dial.server.pages.respond(request)
        for _ in range(5):  # beyond the connections
            next(making)
        empty_queues(dial)
        for destination in list(broker.destinations)[:QUEUES]:
            broker.destinations._remove(destination)
        await leaver.aclose()
        await until(lambda: CloseReason.CLIENT_CLOSED in dial.server.ended)
        after = samples(whole(making))
        later = samples(whole(dial.server.pages.respond(request)))
        for one, other in ((before, after), (after, later)):
            for key, value in other.items():
                if key[0].endswith("_total") and "process" not in key[0]:
                    assert value >= one.get(key, 0.0), key
        total = "trio_stomp_destination_messages_received_total"
        sums = [
            sum(value for key, value in each.items() if key[0] == total) for each in (after, later)
        ]
        assert sums[1] == sums[0]


@given(st.lists(st.integers(0, 9)), st.integers(0, 30), st.integers(1, 7))
def test_the_greatest_are_found_as_heapq_does(figures: list[int], count: int, size: int) -> None:
    things = list(enumerate(figures))
    best = Greatest[tuple[int, int]](count)
    for place in range(0, len(things), size):
        best.add([(each[1], each) for each in things[place : place + size]])
    expected = heapq.nlargest(count, things, key=lambda each: each[1])
    assert whole(best.found()) == expected
    assert whole(greatest(things, lambda each: each[1], count)) == expected
