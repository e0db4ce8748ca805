"""Real sockets that pause and continue, and frames that arrive one segment at a time.

``scripts/torture.py`` found three faults that no test with streams in memory could find, since
there bytes arrive when the test says so. Each has a regression test here:

- frames of one connection overtook each other while another task put items into the input queue;
- TLS lost ciphertext when a connection sent much after a pause;
- after some seconds of pause, a WebSocket's Close or a violation of RFC 6455 was not answered.
"""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest
import trio

from tests.support.fakes import TCP, Received, frame_bytes, open_dial
from tests.support.hostile import close_body, request, split_server_frames, ws
from tests.support.tls import authority
from trio_stomp.testing import threaded_broker

PATIENCE_S = 8.0
HELLO = frame_bytes("CONNECT", {"accept-version": "1.2", "host": "x"})
TEXT, RESERVED, CLOSE = 1, 3, 8
TLS_QUIET_S = (2.1, 2.2, 2.3, 2.4)
"""Pauses around two seconds, since the broker looks at quiet sockets once a second."""
WEBSOCKET_QUIET_S = 3.0
APART_S = 0.13
"""The time between their starts: if all ended their pauses at once, some would wake others."""
LARGE_BYTES = 200_000

# --- order --------------------------------------------------------------------------------------


class Gate:
    """Holds tasks, while it is shut, after they have put an item into a channel.

    Trio's ``send`` puts the item, then yields to other tasks for an unspecified time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open: trio.Event | None = None
        self.held = 0
        whole = trio.MemorySendChannel.send

        async def send(channel: "trio.MemorySendChannel[object]", item: object) -> None:
            gate = self._open
            if gate is None:
                await whole(channel, item)
                return
            with trio.CancelScope(shield=True):
                try:
                    channel.send_nowait(item)
                except trio.WouldBlock:
                    await whole(channel, item)
                self.held += 1
                await gate.wait()

        monkeypatch.setattr(trio.MemorySendChannel, "send", send)

    def shut(self) -> None:
        self._open = trio.Event()

    def open(self) -> None:
        assert self._open is not None
        self._open.set()
        self._open = None


@pytest.mark.parametrize("who", ["a connection that ends", "a timer"])
async def test_frames_in_segments_of_their_own_are_carried_out_in_order(
    who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another task that puts items into the broker's input and is held there."""
    gate = Gate(monkeypatch)
    ticks_s = 0.05 if who == "a timer" else 0.0
    async with open_dial(TCP, diag_interval_s=ticks_s) as dial:
        leaver = await dial.connect()
        client = await dial.open()
        gate.shut()
        if not ticks_s:
            leaver.abort()
        await trio.sleep(0.2)
        await client.send_bytes(HELLO)
        for command, headers, body in (
            ("SUBSCRIBE", {"id": "0", "destination": "/topic/a", "receipt": "1"}, b""),
            ("SEND", {"destination": "/topic/a", "receipt": "2"}, b"a"),
            ("SEND", {"destination": "/topic/a", "receipt": "3"}, b"b"),
        ):
            await trio.sleep(0.05)  # a segment, and a read, of its own
            await client.send(command, headers, body)
        await trio.sleep(0.05)
        gate.open()
        with trio.fail_after(PATIENCE_S):
            found = [await client.receive() for _ in range(6)]
    answers = [_told(each) for each in found if each.command != "MESSAGE"]
    assert answers == ["CONNECTED", "1", "2", "3"]
    assert [each.body for each in found if each.command == "MESSAGE"] == [b"a", b"b"]


def _told(frame: Received) -> str:
    return frame.get("receipt-id") or frame.command


# --- quiet --------------------------------------------------------------------------------------


def open_link(port: int, first: bytes) -> socket.socket:
    """Return a connected socket that has sent its first bytes."""
    link = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.sendall(first)
    return link


def read_until(link: socket.socket, word: bytes) -> bytes:
    """Receive until ``word``, the end of the connection or a timeout."""
    received = b""
    with suppress(TimeoutError):
        while word not in received and (data := link.recv(65536)):
            received += data
    return received


def say_much_after_quiet(port: int, quiet_s: float) -> str:
    """Send six small frames over TLS 20 ms apart, pause, send a large one; return its answer."""
    plain = open_link(port, b"")
    with authority().client_context().wrap_socket(plain, server_hostname="127.0.0.1") as link:
        link.sendall(HELLO)
        read_until(link, b"\0")
        for number in range(6):
            headers = {"destination": "/queue/a", "receipt": f"{number}"}
            link.sendall(frame_bytes("SEND", headers, b"small"))
            read_until(link, b"\0")
            time.sleep(0.02)
        time.sleep(quiet_s)
        headers = {"destination": "/queue/a", "receipt": "large"}
        try:
            link.sendall(frame_bytes("SEND", headers, b"x" * LARGE_BYTES))
            result = read_until(link, b"\0")
        except (OSError, ssl.SSLError) as error:
            return repr(error)
    return result.partition(b"\n")[0].decode() or "nothing"


def break_off_after_quiet(port: int, frame: bytes) -> int:
    """Open a WebSocket and a session, pause, send ``frame``; return the code of the Close."""
    with open_link(port, request()) as link:
        read_until(link, b"\r\n\r\n")
        link.sendall(ws(TEXT, HELLO))
        read_until(link, b"\0")
        for number in range(3):
            beside = {"destination": "/topic/a", "receipt": f"{number}"}
            link.sendall(ws(TEXT, frame_bytes("SEND", beside)))
            read_until(link, b"\0")
            time.sleep(0.02)
        time.sleep(WEBSOCKET_QUIET_S)
        link.sendall(frame)
        result = read_until(link, b"nothing that comes")
    frames, _ = split_server_frames(result)
    return next(
        (int.from_bytes(reported[:2], "big") for first, reported in frames if first == 0x88), 0
    )


LAST_FRAMES = {
    "close": (ws(CLOSE, close_body(1000)), 1000),
    "unmasked": (ws(TEXT, b"\n", mask=None), 1002),
    "reserved opcode": (ws(RESERVED, b"\n"), 1002),
    "bad utf-8": (ws(TEXT, b"\xff\xff"), 1007),
}
"""The bytes that a client sends after the pause, and the expected code of the Close."""


class Waits:
    """All waits of this module, at the same time: a test that needs one result waits for all."""

    def __init__(self, port: int, executor: ThreadPoolExecutor) -> None:
        submit: Callable[..., Future[object]] = executor.submit
        self.large = {each: submit(say_much_after_quiet, port, each) for each in TLS_QUIET_S}
        self.last = {}
        for name, (frame, _) in LAST_FRAMES.items():
            time.sleep(APART_S)
            self.last[name] = submit(break_off_after_quiet, port, frame)


@pytest.fixture(scope="module")
def waits() -> Iterator[Waits]:
    with (
        threaded_broker(tls_cert=authority().certificate, linger_s=0.5) as broker,
        ThreadPoolExecutor(len(TLS_QUIET_S) + len(LAST_FRAMES)) as executor,
    ):
        yield Waits(broker.port, executor)


@pytest.mark.parametrize("quiet_s", TLS_QUIET_S)
def test_a_large_frame_over_tls_after_quiet_is_answered(waits: Waits, quiet_s: float) -> None:
    assert waits.large[quiet_s].result() == "RECEIPT"


@pytest.mark.parametrize("name", LAST_FRAMES)
def test_a_websocket_is_closed_in_order_after_quiet(waits: Waits, name: str) -> None:
    assert waits.last[name].result() == LAST_FRAMES[name][1]
