"""Heart-beats (CONFORMANCE.md 2.3), in virtual time."""

import pytest
import trio
from trio.testing import memory_stream_pair
from wsproto.events import Ping

from tests.support.fakes import Client, Dial, StreamPipe, frame_bytes, gaps_between, open_dial

SILENT_WEBSOCKETS = {"websocket_ping_s": 0.0}


async def seconds_of_arrival(client: Client, until: float) -> list[float]:
    """Return the times at which bytes arrived, up to a time of the clock."""
    times = []
    with trio.move_on_at(until):
        while await client.pipe.receive_bytes():
            times.append(trio.current_time())
    return times


async def time_of_death(client: Client) -> float:
    """How long the broker bears with the client's silence."""
    before = trio.current_time()
    with trio.fail_after(3600):
        while not client.is_ended:
            await client._read()
            frame = client.reader.next()
            if frame is not None and frame.command == "ERROR":
                assert frame["code"] == "heart-beat-timeout"
                return trio.current_time() - before
    raise AssertionError("closed without an ERROR")


@pytest.mark.covers("H01", "H03", "H04")
@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("0,0", "0,0"),
        ("500,500", "1000,1000"),
        ("5000,7000", "7000,5000"),
        ("0,7000", "7000,0"),
        ("5000,0", "0,5000"),
    ],
)
async def test_negotiated_intervals(dial: Dial, asked: str, answered: str) -> None:
    client = await dial.open()
    connected = await client.connect("1.2", {"heart-beat": asked})
    assert connected["heart-beat"] == answered


@pytest.mark.covers("H02", "H12")
async def test_none_asked_none_given(timed_dial: Dial, autojump_clock) -> None:
    timed_dial.use(**SILENT_WEBSOCKETS)
    client = await timed_dial.open()
    connected = await client.connect("1.2")
    assert connected["heart-beat"] == "0,0"
    assert await seconds_of_arrival(client, trio.current_time() + 3600) == []
    assert await client.fence() == []


@pytest.mark.covers("H03", "H04")
@pytest.mark.parametrize("options", [{"heartbeat_send_ms": 0}, {"heartbeat_expect_ms": 0}])
async def test_a_broker_that_does_not_want_them(
    timed_dial: Dial, autojump_clock, options: dict[str, object]
) -> None:
    timed_dial.use(**SILENT_WEBSOCKETS, **options)
    client = await timed_dial.open()
    connected = await client.connect("1.2", {"heart-beat": "1000,1000"})
    if "heartbeat_send_ms" in options:
        assert connected["heart-beat"] == "0,1000"
        assert await time_of_death(client) == pytest.approx(2.0, abs=0.01)
        assert client.reader.heartbeats == 0
    else:
        assert connected["heart-beat"] == "1000,0"
        times = await seconds_of_arrival(client, trio.current_time() + 100)
        assert 100 <= len(times) <= 150


@pytest.mark.covers("H04", "H05", "H06")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize(("wanted_ms", "every_s"), [(1, 1.0), (1000, 1.0), (10_000, 10.0)])
async def test_no_gap_is_longer_than_agreed(
    timed_dial: Dial, autojump_clock, version: str, wanted_ms: int, every_s: float
) -> None:
    client = await timed_dial.open()
    await client.connect(version, {"heart-beat": f"0,{wanted_ms}"})
    start = trio.current_time()
    times = [start, *await seconds_of_arrival(client, start + 50 * every_s)]
    gaps = gaps_between(times)
    assert max(gaps) <= every_s
    assert len(gaps) <= 50 / 0.8 + 1 + 50 * every_s / 20  # and no flood: some go with a ping


@pytest.mark.covers("H06")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
async def test_a_heart_beat_is_one_line_feed(
    timed_dial: Dial, autojump_clock, version: str
) -> None:
    client = await timed_dial.open()
    await client.connect(version, {"heart-beat": "0,1000"})
    for _ in range(3):
        assert await client.pipe.receive_bytes() == b"\n"


@pytest.mark.covers("H05")
async def test_connected_comes_before_the_first_heart_beat(
    timed_dial: Dial, autojump_clock
) -> None:
    client = await timed_dial.open()
    pairs = {"accept-version": "1.2", "host": "x", "heart-beat": "1000,1000"}
    await client.send("CONNECT", pairs)
    assert (await client.pipe.receive_bytes()).startswith(b"CONNECTED\n")


@pytest.mark.covers("H05")
async def test_messages_count_as_heart_beats_and_gaps_stay_short(
    timed_dial: Dial, autojump_clock
) -> None:
    client = await timed_dial.open()
    await client.connect("1.2", {"heart-beat": "0,1000"})
    await client.subscribe("/t")
    publisher = await timed_dial.connect()
    times = [trio.current_time()]
    beats = 0
    with trio.move_on_after(30):
        async with trio.open_nursery() as nursery:

            async def publish() -> None:
                for pause in (0.1, 0.79, 0.81, 0.3, 1.7, 0.5, 0.99, 3.0, 0.05) * 10:
                    await trio.sleep(pause)
                    await publisher.publish("/t", b"x")

            nursery.start_soon(publish)
            while True:
                beats += await client.pipe.receive_bytes() == b"\n"
                times.append(trio.current_time())
    gaps = gaps_between(times)
    assert max(gaps) <= 1.0
    assert beats < 30  # not one for every 0.8 s: messages took their place


@pytest.mark.covers("H03", "H07", "H08")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize(("promised_ms", "dead_after_s"), [(10, 2.0), (1000, 2.0), (8000, 16.0)])
async def test_a_silent_client_is_dead_after_twice_its_interval(
    timed_dial: Dial, autojump_clock, version: str, promised_ms: int, dead_after_s: float
) -> None:
    timed_dial.use(**SILENT_WEBSOCKETS)
    client = await timed_dial.open()
    await client.connect(version, {"heart-beat": f"{promised_ms},0"})
    assert await time_of_death(client) == pytest.approx(dead_after_s, abs=0.01)
    await client.expect_closed()


@pytest.mark.covers("H08")
async def test_the_error_margin_can_be_chosen(timed_dial: Dial, autojump_clock) -> None:
    timed_dial.use(heartbeat_tolerance=5.0, heartbeat_margin_s=0.0, **SILENT_WEBSOCKETS)
    client = await timed_dial.open()
    await client.connect("1.2", {"heart-beat": "2000,0"})
    assert await time_of_death(client) == pytest.approx(10.0, abs=0.01)


@pytest.mark.covers("H07", "H08", "X08")
async def test_a_client_that_keeps_its_promise_lives(timed_dial: Dial, autojump_clock) -> None:
    client = await timed_dial.open()
    await client.connect("1.2", {"heart-beat": "1000,0"})
    for _ in range(100):
        await trio.sleep(1.9)
        await client.send_bytes(b"\n")
    assert await client.fence() == []


@pytest.mark.covers("H07", "H09")
async def test_half_a_frame_is_life_enough(timed_dial: Dial, autojump_clock) -> None:
    client = await timed_dial.open()
    await client.connect("1.2", {"heart-beat": "1000,0"})
    await client.subscribe("/t")
    upload = frame_bytes("SEND", {"destination": "/t"}, b"x" * 40)
    for place in range(len(upload)):
        await trio.sleep(1.9)
        await client.send_bytes(upload[place : place + 1])
    assert (await client.receive()).body == b"x" * 40


@pytest.mark.covers("H09")
async def test_a_websocket_ping_is_life_enough(autojump_clock) -> None:
    async with open_dial("ws-memory", **SILENT_WEBSOCKETS) as dial:
        client = await dial.open()
        await client.connect("1.2", {"heart-beat": "1000,0"})
        for _ in range(20):
            await trio.sleep(1.9)
            await client.websocket.send_event(Ping(payload=b"p"))
        assert await client.fence() == []


@pytest.mark.covers("H09")
async def test_the_brokers_pings_keep_a_background_tab_alive(autojump_clock) -> None:
    """A tab in the background runs no JavaScript, but its browser answers pings."""
    async with open_dial("ws-memory") as dial:
        client = await dial.open()
        await client.connect("1.2", {"heart-beat": "10000,0"})
        assert await seconds_of_arrival(client, trio.current_time() + 3600) == []
        assert client.websocket.pings > 3600 / 20
        assert await client.fence() == []


@pytest.mark.covers("H07")
async def test_a_websocket_that_answers_no_ping_is_dead(autojump_clock) -> None:
    async with open_dial("ws-memory") as dial:
        client = await dial.open()
        await client.connect("1.2", {"heart-beat": "10000,0"})
        client.websocket.answers = False
        assert await time_of_death(client) == pytest.approx(20.0, abs=0.01)


@pytest.mark.covers("H10")
async def test_1_0_has_no_heart_beats(timed_dial: Dial, autojump_clock) -> None:
    timed_dial.use(**SILENT_WEBSOCKETS)
    client = await timed_dial.open()
    connected = await client.connect("1.0", {"heart-beat": "1000,1000"})
    assert connected.get("heart-beat") in (None, "0,0")
    assert await seconds_of_arrival(client, trio.current_time() + 3600) == []
    nonsense = await timed_dial.open()
    await nonsense.connect("1.0", {"heart-beat": "nonsense"})


@pytest.mark.covers("H11")
@pytest.mark.parametrize("margin_s", [0.0, 1.0])
async def test_client_that_is_not_read_from_is_not_considered_dead(
    timed_dial: Dial, autojump_clock, margin_s: float
) -> None:
    """Memory is nearly full, so readers pause. The client's heart-beats are in time, but are not
    read."""
    timed_dial.use(
        heartbeat_expect_ms=100,
        heartbeat_tolerance=1.5,
        heartbeat_margin_s=margin_s,
        **SILENT_WEBSOCKETS,
    )
    client = await timed_dial.open()
    await client.connect("1.2", {"heart-beat": "500,0"})
    memory = timed_dial.server.memory
    memory.used_bytes += memory.limit_bytes
    for _ in range(100):
        await client.send_bytes(b"\n")
        await trio.sleep(0.3)
    memory.used_bytes -= memory.limit_bytes
    await trio.sleep(0.3)
    assert await client.fence() == []
    # And once it is read from again, its silence counts again.
    assert await time_of_death(client) < 3


@pytest.mark.covers("H13")
async def test_a_client_that_does_not_read_is_sent_no_flood_of_heart_beats(autojump_clock) -> None:
    async with open_dial(write_stall_s=1000.0) as dial:
        await dial.start()
        stream = dial.listener.connect_narrow()
        hello = {"accept-version": "1.2", "host": "x", "heart-beat": "0,1000"}
        await stream.send_all(frame_bytes("CONNECT", hello))
        await trio.sleep(500)
        with trio.move_on_after(2.5):
            data = b""
            while True:
                data += await stream.receive_some()
        assert data.startswith(b"CONNECTED\n")
        assert data.count(b"\0\n") == 1
        assert len(data.partition(b"\0")[2]) <= 4  # 0.8 s apart, none from before
        await stream.aclose()


@pytest.mark.covers("H13")
async def test_a_slow_reader_gets_something_in_every_interval(autojump_clock) -> None:
    """It gets the waiting bytes: a line feed after them would not arrive sooner."""
    async with open_dial() as dial:
        await dial.start()
        ours, theirs = memory_stream_pair()
        dial.listener.hand_over(theirs)
        client = Client(StreamPipe(ours))
        await client.connect("1.2", {"heart-beat": "0,1000"})
        await client.subscribe("/t")
        await client.publish("/t", *[b"x" * 50_000] * 20)
        for _ in range(20):
            await trio.sleep(0.9)
            assert (await client.receive()).body == b"x" * 50_000
