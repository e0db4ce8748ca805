"""Clients that log in: with a WebSocket's upgrade, from where a proxy says, or in vain."""

from base64 import b64encode

from tests.support.fakes import Client, Dial, Received, StreamPipe, WebSocketPipe


def basic(login: str, passcode: str) -> tuple[str, str]:
    """Return the header of HTTP that carries a login."""
    return "Authorization", "Basic " + b64encode(f"{login}:{passcode}".encode()).decode()


def proxy_line(address: str) -> bytes:
    """Return the PROXY header for a client of an address."""
    family, ours = ("TCP6", "::1") if ":" in address else ("TCP4", "127.0.0.1")
    return f"PROXY {family} {address} {ours} 5555 61613\r\n".encode()


async def introduced(dial: Dial, header: bytes) -> Client:
    """Return a client whose connection begins with a proxy's header."""
    stream = await dial.stream()
    await stream.send_all(header)
    return Client(StreamPipe(stream))


async def upgraded(
    dial: Dial,
    *headers: tuple[str, str],
    path: str = "/ws",
    host: str = "broker",
    proxied: bytes = b"",
) -> Client:
    """Return a client over a WebSocket, opened with these headers of HTTP.

    Args:
      proxied: A proxy's header, which the connection begins with.
    """
    stream = await dial.stream()
    await stream.send_all(proxied)
    pipe = WebSocketPipe(stream)
    await pipe.shake_hands(path=path, headers=headers, host=host)
    return Client(pipe)


async def refused(client: Client, code: str, **headers: str) -> Received:
    """Return the ERROR with this code that answers a CONNECT with these headers."""
    await client.send("CONNECT", {"accept-version": "1.2", "host": "x", **headers})
    return await client.expect_error(code)
