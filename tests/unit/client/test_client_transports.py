"""The client over TCP, TLS and WebSocket on the loopback interface, with their errors."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
import trio_websocket
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage

from tests.support.client_fakes import just_open, open_broker
from tests.support.fakes import TCP, TLS, WS_TCP, WSS
from tests.support.files import save
from tests.support.tls import authority
from trio_stomp.client import AuthenticationError, ConnectFailed, open_client
from trio_stomp.client._websocket import WebSocketPipe, upgrade

SCHEMES = {TCP: "stomp", WS_TCP: "ws", TLS: "stomps", WSS: "wss"}


@pytest.mark.parametrize("transport", SCHEMES)
@pytest.mark.parametrize("version", ["1.1", "1.2"])
async def test_a_message_over_each_transport(transport: str, version: str) -> None:
    context = authority().client_context()
    body = bytes(range(256)) * 1000
    with trio.fail_after(30):
        async with open_broker(transport) as dial:
            path = "/ws" if dial.is_websocket else ""
            where = f"{SCHEMES[transport]}://{dial.handle.addresses[0]}{path}"
            async with (
                open_client(where, ssl_context=context, versions=(version,)) as client,
                client.subscribe("/topic/a") as messages,
            ):
                assert client.connected_headers["version"] == version
                for _ in range(20):
                    await client.send("/topic/a", body, receipt=False)
                await client.send("/topic/a", b"end")
                for _ in range(20):
                    assert (await messages.receive()).body == body
                assert (await messages.receive()).body == b"end"


async def test_an_untrusted_certificate_fails_the_connection() -> None:
    with trio.fail_after(30):
        async with open_broker(TLS) as dial:
            with pytest.raises(ConnectFailed, match="its certificate is not trusted: "):
                await just_open(
                    f"stomps://{dial.handle.addresses[0]}", ssl_context=ssl.create_default_context()
                )


async def test_a_server_without_websocket_is_an_error() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, serve, listeners)
            port = listeners[0].socket.getsockname()[1]
            with pytest.raises(ConnectFailed, match="it answered 404") as caught:
                await just_open(f"ws://127.0.0.1:{port}/x?token=secret")
            assert "secret" not in str(caught.value)
            nursery.cancel_scope.cancel()


async def test_a_refusal_over_websocket_comes_out_as_it_is(tmp_path: Path) -> None:
    users = save(tmp_path / "users", "alice:right\n")
    with trio.fail_after(30):
        async with open_broker(WS_TCP, passwd_file=users) as dial:
            with pytest.raises(AuthenticationError):
                await just_open(
                    f"ws://{dial.handle.addresses[0]}/ws", login="alice", passcode="wrong"
                )


async def test_messages_of_a_websocket_and_its_end() -> None:
    async with open_websocket() as (pipe, peer, _):
        await peer.send_message(b"")  # neither STOMP nor the end
        await peer.send_message("t\u00e9xt")
        assert await pipe.receive() == "t\u00e9xt".encode()
        await peer.send_message(b"bytes")
        assert await pipe.receive() == b"bytes"
        await pipe.send(b"there")
        assert await peer.get_message() == b"there"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.aclose)  # waits for the pipe's answer
            assert await pipe.receive() == b""
        with pytest.raises(OSError, match="closed the WebSocket"):
            await pipe.send(b"too late")


async def test_a_ping_is_answered_with_the_next_bytes() -> None:
    """Even if many arrive while the writer is stuck, one answer waits and asks once to be sent."""
    asked: list[str] = []
    async with open_websocket() as (pipe, peer, _), trio.open_nursery() as nursery:
        pipe.on_reply = lambda: asked.append("reply")
        nursery.start_soon(peer.ping, b"1")
        nursery.start_soon(peer.ping, b"2")
        await trio.testing.wait_all_tasks_blocked()
        await peer.send_message(b"data")
        assert await pipe.receive() == b"data"
        assert asked == ["reply"]
        assert len(nursery.child_tasks) == 2
        await pipe.send(b"\n")  # the nursery ends: a PONG answers all earlier PINGs


async def test_an_invalid_websocket_frame_ends_the_connection_after_earlier_data() -> None:
    async with open_websocket() as (pipe, peer, theirs):
        await theirs.send_all(b"\x82\x04data\x83\x00")  # 3 is no opcode
        assert await pipe.receive() == b"data"
        assert await pipe.receive() == b""
        with pytest.raises(trio_websocket.ConnectionClosed, match="opcode"):
            await peer.get_message()


async def test_bytes_that_come_with_the_handshake_are_received() -> None:
    ours, theirs = trio.testing.memory_stream_pair()

    async def accept() -> None:
        server = WSConnection(ConnectionType.SERVER)
        server.receive_data(bytes(await theirs.receive_some()))
        assert len(list(server.events())) == 1
        early = server.send(AcceptConnection()) + server.send(BytesMessage(b"early"))
        await theirs.send_all(early)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            pipe = await upgrade(ours, "localhost", "/", [])
        assert await pipe.receive() == b"early"


@asynccontextmanager
async def open_websocket() -> AsyncIterator[
    tuple[WebSocketPipe, trio_websocket.WebSocketConnection, trio.abc.Stream]
]:
    """The client's pipe, its peer by another implementation, and the peer's stream."""
    ours, theirs = trio.testing.memory_stream_pair()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            peers: list[trio_websocket.WebSocketConnection] = []

            async def accept() -> None:
                request = await trio_websocket.wrap_server_stream(
                    nursery,
                    theirs,  # type: ignore[arg-type]
                )
                peers.append(await request.accept())

            nursery.start_soon(accept)
            pipe = await upgrade(ours, "localhost", "/", [])
            await trio.testing.wait_all_tasks_blocked()
            yield pipe, peers[0], theirs
            nursery.cancel_scope.cancel()
