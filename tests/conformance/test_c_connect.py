"""CONNECT and CONNECTED (CONFORMANCE.md 2.2)."""

from contextlib import suppress

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.support.fakes import Client, Dial, frame_bytes, until

VERSIONS = ("1.0", "1.1", "1.2")


@pytest.mark.covers("C03", "C06", "C09")
async def test_without_accept_version_it_is_1_0(dial: Dial) -> None:
    client = await dial.open()
    await client.send("CONNECT", {"login": "me", "passcode": "secret"})
    connected = await client.receive()
    assert connected["version"] == "1.0"
    # And the session is one of 1.0: no id needed, nothing unescaped.
    client.version = client.reader.version = "1.0"
    await client.send("SUBSCRIBE", {"destination": "/t"})
    await client.send("SEND", {"destination": "/t", "mark": r"a\b:c\n"}, b"x")
    message = await client.receive()
    assert message["mark"] == r"a\b:c\n"
    assert message.get("subscription") is None


@pytest.mark.covers("C05", "C08", "R08")
@pytest.mark.parametrize("offered", ["2.0", "1.3,2.1", "", "1.20", "12"])
async def test_no_common_version(dial: Dial, offered: str) -> None:
    client = await dial.open()
    await client.send("CONNECT", {"accept-version": offered, "host": "test"})
    error = await client.expect_error("unsupported-version")
    assert error["version"] == "1.0,1.1,1.2"
    assert b"1.2" in error.body


@pytest.mark.covers("C07", "C08")
@pytest.mark.parametrize(("version", "refused"), [("1.0", False), ("1.1", True), ("1.2", True)])
async def test_a_missing_host_may_be_refused(dial: Dial, version: str, refused: bool) -> None:
    dial.use(require_host=True)
    client = await dial.open()
    await client.send("CONNECT", {"accept-version": version})
    if refused:
        error = await client.expect_error("header-missing")
        assert "host" in error["message"]
    else:
        assert (await client.receive()).command == "CONNECTED"


@pytest.mark.covers("C09")
async def test_every_session_has_a_name_of_its_own(dial: Dial) -> None:
    names = set()
    for version in VERSIONS * 3:
        client = await dial.open()
        names.add((await client.connect(version))["session"])
    assert len(names) == 9


@pytest.mark.covers("C10")
@pytest.mark.parametrize("hidden", [False, True])
async def test_the_server_header(dial: Dial, hidden: bool) -> None:
    dial.use(hide_server=hidden)
    client = await dial.open()
    connected = await client.connect()
    if hidden:
        assert connected.get("server") is None
    else:
        name, _, version = connected["server"].partition("/")
        assert name == "trio_stomp"
        assert version


@pytest.mark.covers("C10")
async def test_the_server_header_may_be_another_brokers(dial: Dial) -> None:
    """stomp-php chooses how it speaks by it (S14)."""
    dial.use(server_name="RabbitMQ/3.10.8", hide_server=True)
    client = await dial.open()
    assert (await client.connect())["server"] == "RabbitMQ/3.10.8"


@pytest.mark.covers("C14")
async def test_silent_connection_gets_an_error_and_is_closed(
    timed_dial: Dial, autojump_clock
) -> None:
    timed_dial.use(connect_timeout_s=3.0)
    client = await timed_dial.open()
    before = trio.current_time()
    error = await client.expect_error("connect-timeout")
    assert "connect_timeout_s" in error["message"]
    assert trio.current_time() - before == pytest.approx(3.0, abs=0.1)


@pytest.mark.covers("C14")
async def test_dribbling_does_not_extend_the_time_to_connect(
    timed_dial: Dial, autojump_clock
) -> None:
    timed_dial.use(connect_timeout_s=3.0)
    client = await timed_dial.open()
    before = trio.current_time()

    async def dribble() -> None:
        for letter in "CONNECT\nlogin:abcdefghijklmn":
            await client.send_bytes(letter.encode())
            await trio.sleep(0.5)

    with trio.move_on_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dribble)
            await client.expect_error("connect-timeout")
            nursery.cancel_scope.cancel()
    assert trio.current_time() - before == pytest.approx(3.0, abs=0.1)


@pytest.mark.covers("C14")
async def test_connected_client_may_stay_silent(timed_dial: Dial, autojump_clock) -> None:
    timed_dial.use(connect_timeout_s=3.0, websocket_ping_s=0.0)
    client = await timed_dial.connect()
    await trio.sleep(3600)
    assert await client.fence() == []


@pytest.mark.covers("C14", "W24")
@pytest.mark.parametrize("start", [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\n", b"CONN"])
async def test_half_an_opening_is_closed_in_time(
    timed_dial: Dial, autojump_clock, start: bytes
) -> None:
    timed_dial.use(connect_timeout_s=3.0, linger_s=1.0)
    stream = await timed_dial.stream()
    await stream.send_all(start)
    before = trio.current_time()
    with trio.fail_after(10):
        while await stream.receive_some():
            pass
    assert trio.current_time() - before == pytest.approx(3.0, abs=0.1)


@pytest.mark.covers("C15", "F41")
@pytest.mark.parametrize(
    "flood", [b"\n" * 1000, b"CONNECT\n" + b"a:b\n" * 250, b"\0" * 1000], ids=["lf", "head", "nul"]
)
async def test_too_much_before_connect(dial: Dial, flood: bytes) -> None:
    dial.use(max_opening_bytes=4096)
    client = await dial.open()
    with trio.move_on_after(5):
        with suppress(trio.BrokenResourceError):
            for _ in range(20):
                await client.send_bytes(flood)
                await trio.lowlevel.checkpoint()
    error = await client.receive()
    assert error.command == "ERROR"
    assert error["code"] in ("opening-too-large", "too-many-headers")
    await client.expect_closed()


@pytest.mark.covers("C15")
async def test_the_opening_limit_ends_with_the_opening(dial: Dial) -> None:
    dial.use(max_opening_bytes=1024)
    client = await dial.connect()
    await client.subscribe("/t")
    await client.publish("/t", b"x" * 5000, receipt=False)
    assert len((await client.receive()).body) == 5000


@pytest.mark.covers("C11", "R12")
async def test_many_connect_and_leave_rapidly(raw_dial: Dial) -> None:
    rounds = 2000 if not raw_dial.is_tcp else 200
    await raw_dial.start()
    await wait_all_tasks_blocked()
    base = trio.lowlevel.current_statistics().tasks_living
    hello = frame_bytes("CONNECT", {"accept-version": "1.2", "host": "x"})
    for number in range(rounds):
        stream = await raw_dial.stream()
        if number % 3:
            await stream.send_all(hello)
        if number % 3 == 2:
            await stream.send_all(frame_bytes("SUBSCRIBE", {"destination": "/t", "id": "1"}))
        await trio.aclose_forcefully(stream)
    raw_dial._streams.clear()
    last = await raw_dial.connect()
    await last.disconnect()
    await until(lambda: not raw_dial.server.connections)
    await wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living == base
    assert raw_dial.server.accepted == rounds + 1
    raw_dial.assert_nothing_left()


async def test_refused_client_gets_the_reason(dial: Dial) -> None:
    if dial.is_websocket:
        return  # refused before the upgrade: see the HTTP tests
    dial.use(max_connections=2)
    first, second = await dial.connect(), await dial.connect()
    third = await dial.open()
    await third.send("CONNECT", {"accept-version": "1.2", "host": "test"})
    error = await third.expect_error("too-many-connections")
    assert "max_connections" in error["message"]
    assert await first.fence() == []
    await second.disconnect()
    while len(dial.server.connections) > 1:
        third.abort()
        await trio.lowlevel.checkpoint()
    fourth: Client = await dial.connect()
    assert await fourth.fence() == []
