"""Count the functions that one warm frame runs in the broker, their files and their lines.

    python -m _check.ways            # in scripts/; --functions SEND-topic lists them

A way begins in ``ServerSession.receive_data`` and ends when the last outbox that the frame has
filled is published. The functions of the package that run meanwhile are counted once each, with
the housekeeping of the turn; a coroutine or generator that goes on counts as its function. Frames
come through memory links, one at a time, from warm connections. The counts do not depend on the
machine, but on the interpreter: the bars are of CPython 3.11, not compiled.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import trio

import trio_stomp
from trio_stomp.testing import open_test_broker

PACKAGE = f"{Path(trio_stomp.__file__).parent}/"
NOT_THE_BROKER = tuple(PACKAGE + name for name in ("client/", "testing/"))
"""The code of the links' other ends."""
BARS = {
    "SEND-topic": (79, 34),
    "SEND-queue": (128, 41),
    "ACK": (85, 34),
    "SUBSCRIBE": (141, 56),
}
"""The most functions and files of a way. They fall."""
WARM = 8
QUIET_S = 0.05
"""The broker has nothing more to say after this time."""
BYTES = 65_536


class Way(NamedTuple):
    """The functions that run for one frame."""

    functions: frozenset[CodeType]

    @property
    def files(self) -> frozenset[str]:
        """Return the files of the functions."""
        return frozenset(code.co_filename for code in self.functions)

    @property
    def lines(self) -> int:
        """Return the sum of the lines of text of the functions, nested ones once."""
        spans: dict[str, set[int]] = {}
        for code in self.functions:
            numbers = {line for _, _, line in code.co_lines() if line}
            spans.setdefault(code.co_filename, set()).update(range(min(numbers), max(numbers) + 1))
        return sum(map(len, spans.values()))


class Recorder:
    """Records the functions from ``receive_data`` to the last published outbox."""

    def __init__(self) -> None:
        self._ran: list[CodeType] = []
        self._begun = False
        self._published = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Take a call of ``sys.setprofile``."""
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or code.co_filename.startswith(NOT_THE_BROKER):
            return
        if event == "call":
            self._begun = self._begun or code.co_qualname == "ServerSession.receive_data"
            if self._begun:
                self._ran.append(code)
        elif event == "return" and code.co_qualname == "Outbox.publish":
            self._published = len(self._ran)

    def way(self) -> Way:
        """Return what was recorded."""
        return Way(frozenset(code for code in self._ran[: self._published] if _is_whole(code)))


def _is_whole(code: CodeType) -> bool:
    """Return whether code is a function, and no comprehension or lambda in one."""
    return not code.co_name.startswith("<")


@contextmanager
def recording() -> Iterator[Recorder]:
    """Record the block."""
    recorder = Recorder()
    sys.setprofile(recorder)
    try:
        yield recorder
    finally:
        sys.setprofile(None)


class Peer:
    """A connection that writes frames, and reads until the broker has nothing more to say."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def says(self, text: str) -> str:
        """Write a frame, without its NUL, and return the frames that come back."""
        await self._stream.send_all(f"{text}\0".encode())
        return await self.hears()

    async def hears(self) -> str:
        """Return the frames that have come."""
        got = b""
        while True:
            with trio.move_on_after(QUIET_S) as waiting:
                got += await self._stream.receive_some(BYTES)
            if waiting.cancelled_caught:
                return got.decode()


def ack_of(message: str) -> str:
    """Return the value of a MESSAGE's header ``ack``."""
    (line,) = (each for each in message.split("\n") if each.startswith("ack:"))
    return line.removeprefix("ack:")


CONNECT = "CONNECT\naccept-version:1.2\nhost:x\n\n"
SUBSCRIBE = "SUBSCRIBE\nid:{n}\ndestination:{name}\nack:{ack}\nreceipt:s{n}\n\n"
SEND = "SEND\ndestination:{name}\n\nbody"


async def measure() -> dict[str, Way]:
    """Return the ways, by name."""
    ways: dict[str, Way] = {}
    async with open_test_broker() as broker:

        async def opens() -> Peer:
            peer = Peer(await broker.connect())
            await peer.says(CONNECT)
            return peer

        async def warm(name: str, peer: Peer, other: Peer, text: Callable[[int], str]) -> list[str]:
            """Write a frame again and again, and return what another peer gets each time.

            The shortest way counts: the others were cold, or a timer ran meanwhile.
            """
            heard = []
            for n in range(WARM):
                with recording() as recorder:
                    await peer.says(text(n))
                    heard.append(await other.hears())
                way = recorder.way()
                ways[name] = min(ways.get(name, way), way, key=lambda each: len(each.functions))
            return heard

        sender, reader, worker = await opens(), await opens(), await opens()
        await reader.says(SUBSCRIBE.format(n=0, name="/topic/a", ack="auto"))
        await worker.says(SUBSCRIBE.format(n=0, name="/queue/a", ack="client-individual"))
        await warm("SEND-topic", sender, reader, lambda _: SEND.format(name="/topic/a"))
        got = await warm("SEND-queue", sender, worker, lambda _: SEND.format(name="/queue/a"))
        names = [ack_of(message) for message in got]
        await warm("ACK", worker, sender, lambda n: f"ACK\nid:{names[n]}\nreceipt:a{n}\n\n")
        texts = [SUBSCRIBE.format(n=n + 1, name=f"/topic/{n}", ack="auto") for n in range(WARM)]
        await warm("SUBSCRIBE", reader, sender, texts.__getitem__)
    return ways


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each way, or the functions of one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--functions", metavar="WAY", help="list the functions of a way")
    parser.add_argument("--check", action="store_true", help="fail if a way is longer than its bar")
    given = parser.parse_args(arguments)
    ways = trio.run(measure)
    if given.functions:
        for code in sorted(ways[given.functions].functions, key=lambda each: each.co_filename):
            print(f"{code.co_filename.removeprefix(PACKAGE)}  {code.co_qualname}")
        return
    print(f"{'way':<12}{'functions':>16}{'files':>12}{'lines':>7}")
    longer = []
    for name, way in ways.items():
        counts, bars = (len(way.functions), len(way.files)), BARS[name]
        functions, files = (f"{each} of {bar}" for each, bar in zip(counts, bars, strict=True))
        print(f"{name:<12}{functions:>16}{files:>12}{way.lines:>7}")
        longer += [name] * (counts[0] > bars[0] or counts[1] > bars[1])
    if longer and given.check:
        raise SystemExit(f"longer than the bars of {Path(__file__).name}: {', '.join(longer)}")


if __name__ == "__main__":
    main()
