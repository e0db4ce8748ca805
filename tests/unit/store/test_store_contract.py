"""The contract of all stores: one suite for memory, SQL and journal."""

import threading
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.loops import bare_loops
from tests.support.stores import KINDS, Message, Opened, Place, make_place
from tests.support.stores import numbers as numbers
from tests.support.stores import postgres as postgres
from trio_stomp.store import (
    Append,
    Atomic,
    Begin,
    Delivered,
    Done,
    DropPlace,
    DropStream,
    Forget,
    Keep,
    PlaceState,
    Put,
    Recovered,
    StaleSequence,
    Turn,
    stored_cost,
)

HEAD = b"destination:/queue/a\ncontent-type:text/plain\n"
ENDINGS = ["restart", "crash"]
MIB = 1 << 20


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return make_place(request.param, tmp_path, request)


@pytest.fixture
def opened(place: Place) -> Iterator[Opened]:
    found = Opened(place)
    yield found
    found.store.close()


def put(first: int, *bodies: bytes, place: str = "queue:/queue/a", **options) -> Put:
    return Put(place, first, options.pop("head", HEAD), bodies, **options)


def end(opened: Opened, how: str):
    return opened.restart() if how == "restart" else opened.crash()


def test_an_empty_store_says_so(opened: Opened) -> None:
    recovered = opened.recovered
    assert recovered.commit == 0
    assert recovered.next_id >= 1
    assert not recovered.places
    assert not recovered.settings
    assert not recovered.deliveries
    assert not recovered.streams
    assert not recovered.damage
    assert opened.read("queue:/queue/a") == {}
    assert opened.store.read_stream("/stream/x", 0, 100) == []
    assert opened.store.stream_state("/stream/x") is None
    assert opened.store.find_offset("/stream/x", 0) == 0
    assert opened.store.statistics().live_messages == 0


def test_recovery_reports_its_progress(opened: Opened) -> None:
    opened.append(put(1, b"x" * 1000))
    opened.store.close()
    reported = []
    store = opened.store = opened.place.make()
    store.recover(lambda done, size: reported.append((done, size)))
    assert reported == sorted(reported)
    assert all(0 <= done <= size for done, size in reported)
    assert reported[-1][0] == reported[-1][1] > 0


@pytest.mark.parametrize(
    "body",
    [b"", b"\0", b"a\0b\0", bytes(range(256)), b"\xff\xfe", b"\x1a0", "žluť".encode()],
    ids=repr,
)
def test_any_body_and_head_is_read_back(opened: Opened, body: bytes) -> None:
    head = b"h:" + body + b"\n"
    opened.append(put(1, body, head=head), Begin("s", "e"), Append("s", 0, head, [body], 1))
    opened.restart()
    assert opened.read("queue:/queue/a") == {1: Message(body, head, 0, 0, 0)}
    assert opened.read_stream("s") == {0: (body, head, 1)}


@pytest.mark.parametrize("how", ENDINGS)
def test_large_bodies_come_back(opened: Opened, how: str) -> None:
    bodies = [bytes([number]) * (4 * MIB) for number in range(3)]
    opened.append(put(1, *bodies), Begin("s", "e"), Append("s", 0, HEAD, bodies, 1))
    end(opened, how)
    assert opened.bodies("queue:/queue/a") == dict(enumerate(bodies, 1))
    assert [body for body, *_ in opened.read_stream("s").values()] == bodies
    page = opened.store.read("queue:/queue/a", 4, 0, MIB)
    assert [run.ids for run in page.runs] == [[1]]
    assert not page.is_last


@pytest.mark.parametrize(
    "name",
    [
        "queue:/queue/ž/日本/🐘",
        "queue:/queue/a\0b",
        "queue:a\x1a0\x1a1\x1a",
        "queue:/queue/" + "x" * 4000,
        "durable:" + "😀" * 1000,
        "k" * 4000,
        "k" * 300 + ":" + "d" * 300,
        ":" + "d" * 500,
        "scheduled:",
        "no colon",
        "a/b\\c'd\"e%20;--..",
        "../../x",
    ],
    ids=lambda name: ascii(name[:20]),
)
def test_any_place_stream_and_setting_can_be_named(opened: Opened, name: str) -> None:
    other = name + "x"
    opened.append(put(1, b"1", place=name), put(2, b"2", place=other), Keep(name, name))
    opened.append(Keep(other, ""), Begin(name, name[:9]), Append(name, 0, HEAD, [b"3"], 1))
    recovered = opened.restart()
    assert recovered.places == {(name, 4): PlaceState(1, 1, 1), (other, 4): PlaceState(1, 1, 2)}
    assert recovered.settings == {name: name, other: ""}
    assert recovered.streams.keys() == {name}
    assert recovered.streams[name].epoch == name[:9]
    assert opened.bodies(name) == {1: b"1"}
    assert opened.read_stream(name)[0][0] == b"3"
    opened.append(DropPlace(name), Forget(name), DropStream(name))
    recovered = opened.restart()
    assert recovered.places.keys() == {(other, 4)}
    assert recovered.settings == {other: ""}
    assert recovered.streams == {}


def test_a_put_of_nothing_is_harmless(opened: Opened) -> None:
    opened.append(put(5), Begin("s", "e"), Append("s", 0, HEAD, [], 1), Done([]), Atomic([put(5)]))
    assert opened.read("queue:/queue/a") == {}
    assert opened.restart().places == {}
    assert opened.read_stream("s") == {}
    opened.append(Atomic([put(5), put(5, b"x")]))
    assert opened.restart().places.keys() == {("queue:/queue/a", 4)}
    assert opened.bodies("queue:/queue/a") == {5: b"x"}


def test_ids_may_come_to_places_out_of_turn(opened: Opened) -> None:
    opened.append(put(10, b"late", place="queue:b"))
    opened.append(put(3, b"early"), put(5, b"next"))
    assert opened.restart().next_id > 10
    assert list(opened.read("queue:/queue/a")) == [3, 5]


def test_reading_continues_after_an_id(opened: Opened) -> None:
    opened.append(put(1, b"1", b"2", b"3"), put(4, b"4", head=b""))
    opened.append(Done([2]))
    assert opened.read("queue:/queue/a")[4].head == b""
    assert list(opened.read("queue:/queue/a", after=1)) == [3, 4]
    assert list(opened.read("queue:/queue/a", after=2)) == [3, 4]
    assert list(opened.read("queue:/queue/a", after=4)) == []
    assert list(opened.read("queue:/queue/a", after=1000)) == []


@pytest.mark.parametrize("limit_bytes", [0, 1, 10, 99, 1000])
def test_pages_are_about_as_large_as_asked_for(opened: Opened, limit_bytes: int) -> None:
    opened.append(*[put(1 + 10 * turn, *[b"x" * 10] * 10) for turn in range(5)])
    page = opened.store.read("queue:/queue/a", 4, 0, limit_bytes)
    size = sum(len(body) for run in page.runs for body in run.bodies)
    assert 10 <= size <= limit_bytes + 10
    assert list(opened.read("queue:/queue/a", limit_bytes=limit_bytes)) == list(range(1, 51))


def test_the_end_after_done_messages_is_found(opened: Opened) -> None:
    opened.append(put(1, *[b"x"] * 3000))
    opened.append(Done(range(2, 3001)))
    assert list(opened.read("queue:/queue/a", limit_bytes=1)) == [1]


@pytest.mark.parametrize("ids", [[1], [2, 3, 4], [4, 1, 2, 2]])
def test_ids_may_come_in_an_array(opened: Opened, ids: list[int]) -> None:
    opened.append(put(1, b"1", b"2", b"3", b"4", b"5"))
    opened.append(Delivered(array("Q", [5, 3, 5])))
    opened.append(Done(array("Q", ids)))
    for _ in range(2):
        left = opened.read("queue:/queue/a")
        assert left.keys() == {1, 2, 3, 4, 5} - {*ids}
        assert left[5].deliveries == 2
        opened.restart()


@pytest.mark.parametrize("how", ENDINGS)
def test_atomic_records_are_all_there(opened: Opened, how: str) -> None:
    opened.append(put(1, b"1", b"2"))
    opened.append(
        Atomic([Done([1]), put(3, b"1", place="queue:dead"), Keep("a", "1")]),
        Atomic([]),
        Atomic([Delivered([2, 3]), Begin("s", "e"), Append("s", 0, HEAD, [b"x"], 1)]),
    )
    recovered = end(opened, how)
    assert recovered.places.keys() == {("queue:/queue/a", 4), ("queue:dead", 4)}
    assert recovered.settings == {"a": "1"}
    assert recovered.deliveries == {2: 1, 3: 1}
    assert recovered.streams["s"].next == 1
    assert opened.bodies("queue:/queue/a") == {2: b"2"}


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.parametrize("limit_bytes", [1, 1000])
def test_record_before_a_transaction_may_have_a_later_id(
    opened: Opened, how: str, limit_bytes: int
) -> None:
    """Dead letters of a full queue are kept even if the transaction that displaced them is not."""
    opened.append(put(1, b"1"))
    opened.append(put(3, b"3"), Atomic([put(2, b"2"), put(4, b"4"), Keep("a", "1")]))
    opened.append(put(5, b"5"))
    assert list(opened.read("queue:/queue/a", limit_bytes=limit_bytes)) == [1, 2, 3, 4, 5]
    assert end(opened, how).places["queue:/queue/a", 4] == PlaceState(5, 5, 1)
    assert list(opened.read("queue:/queue/a", limit_bytes=limit_bytes)) == [1, 2, 3, 4, 5]
    opened.append(Done([1, 3]))
    assert list(opened.read("queue:/queue/a", limit_bytes=limit_bytes)) == [2, 4, 5]


def test_records_that_are_not_urgent_are_stored_by_close(opened: Opened) -> None:
    opened.append(put(1, b"1"), Keep("a", "1"), is_urgent=False)
    opened.append(Begin("s", "e"), Append("s", 0, HEAD, [b"x"], 1), is_urgent=False)
    assert opened.bodies("queue:/queue/a") == {1: b"1"}
    recovered = opened.restart()
    assert recovered.commit == 2
    assert recovered.settings == {"a": "1"}
    assert opened.bodies("queue:/queue/a") == {1: b"1"}
    assert opened.read_stream("s").keys() == {0}


def test_turns_are_counted(opened: Opened) -> None:
    turns = [Turn([put(id, b"x")], id % 2 == 0) for id in range(1, 8)]
    assert opened.store.append(turns[:3], 0) == 3
    assert opened.store.append(turns[3:4], 3) == 4
    assert opened.store.append([], 4) == 4
    assert opened.store.append([Turn([])], 4) == 5
    assert opened.store.statistics().commits == 5
    assert opened.restart().commit == 5
    assert opened.store.append(turns[4:], 5) == 8
    assert opened.crash().commit in {7, 8}


@pytest.mark.parametrize("expected", [0, 1, 3, 1000])
def test_another_commit_than_the_last_is_refused(opened: Opened, expected: int) -> None:
    opened.append(put(1, b"1"))
    opened.append(put(2, b"2"))
    with pytest.raises(StaleSequence):
        opened.store.append([Turn([put(3, b"3"), Done([1]), Keep("a", "1")])], expected)
    assert list(opened.read("queue:/queue/a")) == [1, 2]
    opened.append(put(3, b"3"))
    recovered = opened.restart()
    assert recovered.commit == 3
    assert recovered.settings == {}


def test_a_page_of_a_stream_is_about_as_large_as_asked_for(opened: Opened) -> None:
    runs_of_10 = (Append("s", first, HEAD, [b"x" * 10] * 10, first) for first in range(0, 100, 10))
    opened.append(Begin("s", "e"), *runs_of_10)
    for limit_bytes in (0, 1, 10, 95, 100):
        runs = opened.store.read_stream("s", 7, limit_bytes)
        size = sum(len(body) for run in runs for body in run.bodies)
        assert 10 <= size <= limit_bytes + 100
        assert runs[0].first == 7
    assert opened.store.read_stream("s", 100, 1000) == []
    assert opened.store.read_stream("s", 101, 1000) == []


def test_a_store_may_be_closed_twice(opened: Opened) -> None:
    opened.append(put(1, b"1"))
    opened.store.close()
    opened.store.close()
    opened.open()
    assert opened.bodies("queue:/queue/a") == {1: b"1"}


def test_the_cost_of_many_messages_is_not_quadratic(opened: Opened) -> None:
    """For a hundred thousand messages, quadratic work would take 100,000 bare loops."""
    assert bare_loops(lambda: _many_messages(opened), rounds=1) < 40_000


def _many_messages(opened: Opened) -> None:
    total, batch = 100_000, 2000
    for first in range(1, total, batch):
        opened.append(put(first, *[b"%d" % id for id in range(first, first + batch)]))
    assert opened.restart().places == {
        ("queue:/queue/a", 4): PlaceState(total, sum(len(str(n)) for n in range(1, total + 1)), 1)
    }
    found = opened.bodies("queue:/queue/a")
    assert found == {id: b"%d" % id for id in range(1, total + 1)}
    for first in range(1, total, batch):
        opened.append(Done(range(first, first + batch, 2)), Delivered(range(first, first + batch)))
    recovered = opened.restart()
    assert recovered.places[("queue:/queue/a", 4)].count == total // 2
    assert len(recovered.deliveries) == total // 2


def test_others_read_while_one_appends(opened: Opened) -> None:
    """In each round one thread appends while three read; they see all earlier records."""
    rounds, readers, each = 10, 3, 5
    opened.append(Begin("s", "e"))
    barrier = threading.Barrier(readers + 1, timeout=60)
    failures: list[BaseException] = []

    def read(number: int) -> None:
        for done in range(rounds):
            barrier.wait()
            ids = list(opened.read("queue:/queue/a", limit_bytes=60 * number))
            offsets = list(opened.read_stream("s", 0, 60 * number))
            assert ids == list(range(1, len(ids) + 1))
            assert offsets == list(range(len(offsets)))
            assert each * done <= min(len(ids), len(offsets))
            assert max(len(ids), len(offsets)) <= each * (done + 1)
            assert opened.store.stream_state("s") is not None
            barrier.wait()

    def guarded(number: int) -> None:
        try:
            read(number)
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(readers)]
    for thread in threads:
        thread.start()
    try:
        for done in range(rounds):
            bodies = [b"x" * 50] * each
            barrier.wait()
            opened.append(
                put(1 + each * done, *bodies), Append("s", each * done, HEAD, bodies, done)
            )
            barrier.wait()
    except threading.BrokenBarrierError:
        pass
    finally:
        for thread in threads:
            thread.join()
    assert not failures, failures[0]
    assert len(opened.read("queue:/queue/a")) == rounds * each


# Charges of users.

ALICE, BOB = b"x-trio-stomp-charged:user alice\n", b"x-trio-stomp-charged:network 192.0.2.1\n"


def charges(recovered: Recovered, place: str = "queue:/queue/a") -> dict[bytes, int]:
    return dict(recovered.places[place, 4].charged)


@pytest.mark.parametrize("how", ENDINGS)
def test_charged_users_of_live_messages_are_reported(opened: Opened, how: str) -> None:
    heads = [ALICE + HEAD, BOB + HEAD, HEAD, ALICE + b"a:\xc3\xa4\n" + HEAD]
    bodies = [b"x" * 100, b"y" * 50]
    first = 1
    for _ in range(3):
        for head in heads:
            opened.append(put(first, *bodies, head=head))
            first += 2
    opened.append(put(first, b"z", place="queue:/queue/b", head=BOB + HEAD))
    opened.append(Done([2, 3, 4]))
    recovered = end(opened, how)
    cost = {head: stored_cost(len(head), 1, 0) for head in heads}
    alice = 3 * 150 - 50 + 5 * cost[heads[0]] + 3 * 150 + 6 * cost[heads[3]]
    # Some stores do not check message by message which ones of a page are done.
    found = charges(recovered)
    assert found == {ALICE: pytest.approx(alice, rel=0.02), BOB: 2 * 150 + 4 * cost[heads[1]]}
    assert charges(recovered, "queue:/queue/b") == {BOB: 1 + cost[heads[1]]}


@pytest.mark.parametrize("how", ENDINGS)
def test_messages_dropped_with_their_queue_are_charged_to_no_user(opened: Opened, how: str) -> None:
    opened.append(put(1, b"x", b"y", head=ALICE + HEAD), put(3, b"z", level=9, head=ALICE + HEAD))
    opened.append(DropPlace("queue:/queue/a"))
    opened.append(put(4, b"new", head=BOB + HEAD))
    assert charges(end(opened, how)) == {BOB: stored_cost(len(BOB + HEAD), 1, 3)}


@pytest.mark.parametrize("how", ENDINGS)
def test_charged_user_is_found_in_a_header_block_that_is_not_text(opened: Opened, how: str) -> None:
    head = ALICE + b"a:\x00\n" + HEAD
    opened.append(put(1, b"x", head=head), put(2, b"y", head=b"a:\x00\n"))
    assert charges(end(opened, how)) == {ALICE: stored_cost(len(head), 1, 1)}


def test_capacity_of_the_store_is_reported_or_unknown(opened: Opened) -> None:
    assert opened.store.capacity() >= 0
