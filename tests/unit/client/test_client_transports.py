"""The client over TCP, TLS and WebSocket on the loopback interface, and what goes wrong there."""

import ssl
import sys
from pathlib import Path

import pytest
import trio
import trio.testing
import trio_websocket

from tests.support.client_fakes import just_open, open_broker
from tests.support.fakes import TCP, TLS, WS_TCP, WSS
from tests.support.files import save
from tests.support.tls import authority
from trio_stomp import OptionError
from trio_stomp.client import AuthenticationError, ConnectFailed, open_client
from trio_stomp.client._pipe import WebSocketPipe

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


async def test_a_certificate_that_nobody_trusts() -> None:
    with trio.fail_after(30):
        async with open_broker(TLS) as dial:
            with pytest.raises(ConnectFailed, match="its certificate is not trusted: "):
                await just_open(
                    f"stomps://{dial.handle.addresses[0]}", ssl_context=ssl.create_default_context()
                )


async def test_no_websocket_there() -> None:
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
    async with trio.open_nursery() as nursery:
        ours, theirs = trio.testing.memory_stream_pair()
        peers: list[trio_websocket.WebSocketConnection] = []

        async def accept() -> None:
            request = await trio_websocket.wrap_server_stream(nursery, theirs)
            peers.append(await request.accept())

        nursery.start_soon(accept)
        connection = await trio_websocket.wrap_client_stream(
            nursery,
            ours,  # type: ignore[arg-type]
            "localhost",
            "/",
        )
        pipe = WebSocketPipe(connection, trio_websocket.ConnectionClosed)
        await trio.testing.wait_all_tasks_blocked()
        (peer,) = peers
        await peer.send_message(b"")  # neither STOMP nor the end
        await peer.send_message("t\u00e9xt")
        await peer.send_message(b"bytes")
        assert [await pipe.receive(), await pipe.receive()] == ["t\u00e9xt".encode(), b"bytes"]
        await pipe.send(b"there")
        assert await peer.get_message() == b"there"
        await peer.aclose()
        assert await pipe.receive() == b""
        with pytest.raises(trio.BrokenResourceError):
            await pipe.send(b"too late")


async def test_what_is_missing_for_websockets_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trio_websocket", None)
    with trio.fail_after(30):
        async with open_broker(WS_TCP) as dial:
            with pytest.raises(OptionError, match="trio-websocket"):
                await just_open(f"ws://{dial.handle.addresses[0]}/")
