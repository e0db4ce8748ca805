"""Run a broker inside a program of yours, twice: on a TCP port, and without any socket.

python scripts/examples/embed.py
"""

from functools import partial

import trio
from trio.testing import memory_stream_pair

import trio_stomp
from trio_stomp import Settings

CONNECT = b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"
SUBSCRIBE = b"SUBSCRIBE\nid:1\ndestination:/topic/news\n\n\0"
SEND = b"SEND\ndestination:/topic/news\n\nhello\0"


class InMemory(trio.abc.Listener[trio.abc.Stream]):
    """Accepts what ``dial`` connects."""

    def __init__(self) -> None:
        self._arrivals, self._accepted = trio.open_memory_channel[trio.abc.Stream](16)

    async def dial(self) -> trio.abc.Stream:
        """Return the client's end of a new connection."""
        ours, theirs = memory_stream_pair()
        await self._arrivals.send(theirs)
        return ours

    async def accept(self) -> trio.abc.Stream:
        """Return the broker's end of the next one."""
        return await self._accepted.receive()

    async def aclose(self) -> None:
        """Accept no more."""
        await self._accepted.aclose()


async def try_out(stream: trio.abc.Stream) -> None:
    """Subscribe, send, and print what comes."""
    await stream.send_all(CONNECT + SUBSCRIBE + SEND)
    received = b""
    while b"\n\nhello\0" not in received:
        received += await stream.receive_some()
    commands = [frame.lstrip().splitlines()[0].decode() for frame in received.split(b"\0")[:-1]]
    print("received:", ", ".join(commands))
    await stream.aclose()


async def main() -> None:
    """Serve on a port that the system chooses, then in memory."""
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            settings = Settings.of(port=0, ttl_ms=5000)
            handle = await nursery.start(trio_stomp.serve, settings)
            host, port = handle.addresses[0].split(":")
            print(f"listening on {host}")
            await try_out(await trio.open_tcp_stream(host, int(port)))
            handle.stop()  # in order; the nursery ends when it is done

        async with trio.open_nursery() as nursery:
            listener = InMemory()
            handle = await nursery.start(partial(trio_stomp.serve, listeners=[listener]))
            print("listening in memory")
            await try_out(await listener.dial())
            handle.stop()


if __name__ == "__main__":
    trio.run(main)
