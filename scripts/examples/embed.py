"""Run a broker inside a program of yours, twice: on a TCP port, and without any socket.

python scripts/examples/embed.py
"""

from functools import partial

import trio

import trio_stomp
from trio_stomp import ServerEvent, Settings
from trio_stomp.peer import frames


async def try_out(stream: trio.abc.Stream) -> None:
    """Subscribe, send, and print the received message."""
    async with trio_stomp.open_peer(stream) as peer:
        await peer.send.send(frames.connect())
        await peer.send.send(frames.subscribe("/topic/news", id="1"))
        await peer.send.send(frames.send_string("/topic/news", "hello"))
        commands = [(await peer.receive.receive()).command for _ in range(2)]
        print("received:", ", ".join(commands))
        await peer.send_and_shutdown(frames.disconnect())


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

        events, reported = trio.open_memory_channel[ServerEvent](100)
        async with trio.open_nursery() as nursery:
            serve = partial(trio_stomp.serve, listeners=[], events=events)
            handle = await nursery.start(serve)
            print("listening in memory")
            await try_out(await handle.connect())
            handle.stop()
        kinds = {event.kind async for event in reported}
        assert kinds == {
            "connect",
            "subscription-start",
            "subscription-stop",
            "disconnect",
            "stop",
        }


if __name__ == "__main__":
    trio.run(main)
