"""Actions of clients that crash, hang, flood, or speak something else."""

import trio

from _proof.actor import Actor
from _proof.peer import dialled, noise

WRONG = (
    "SEND\n\nno destination",
    "SEND\ndestination:nonsense:\\q\n\n",
    "NONSENSE\n\n",
    "ACK\nid:never\n\n",
    "SUBSCRIBE\ndestination:/topic/x\n\n",
    "UNSUBSCRIBE\nid:none\n\n",
    "COMMIT\ntransaction:none\n\n",
    "CONNECT\naccept-version:1.2\nhost:again\n\n",
    "SEND\ndestination:DIAG/process\n\nno",
    "SEND\ndestination:/queue/monitor\n\nno",
    "SEND\ndestination:/topic/a\ncontent-length:99999999\n\n",
    "SEND\ndestination:/topic/a\ncontent-length:-1\n\n",
    "SEND\ndestination:/topic/" + "y" * 5000 + "\n\n",
    "SEND\ndestination:/topic/a\n" + "z" * 20_000 + ":1\n\n",
    "SEND\ndestination:/topic/a\n" + "".join(f"h{n}:1\n" for n in range(300)) + "\n",
    "SUBSCRIBE\nid:1\ndestination:/topic/a\nack:whatever\n\n",
    "SUBSCRIBE\nid:1\ndestination:/stream/topic/none\nx-stream-offset:first\n\n",
)
HTTP = (
    b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /readyz HTTP/1.0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
    b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20_000,
)
BAD_WEBSOCKET = (
    b"\x81\x05hello",
    b"\xf1\x80\0\0\0\0",
    b"\x89\xfe\x01\x00\0\0\0\0",
    b"\x88\x81\0\0\0\0x",
)
OPENINGS = (b"", b"CONN", b"GET /ws HT", b"\x16\x03\x01", b"\n\n")


class Unruly(Actor):
    """Actions of one or two connections each."""

    async def abrupt(self) -> None:
        """Crash a client that has subscriptions, messages and a transaction."""
        async with self.peer() as peer:
            await peer.connect("client-id:abrupt\n")
            await peer.say(
                f"SUBSCRIBE\nid:1\ndestination:/topic/soak.{self.few()}\n\n",
                f"SUBSCRIBE\nid:2\ndestination:/queue/soak.kept.{self.few()}\nack:client\n\n",
                "SUBSCRIBE\nid:3\ndestination:/topic/soak.*\nack:client-individual\n\n",
                f"SEND\ndestination:/topic/soak.{self.few()}\n\nlast words",
            )
            await trio.sleep(self.dice.uniform(0, 0.2))
            if self.dice.random() < 0.5:
                peer.reset()

    async def silent(self) -> None:
        """Connect, and send nothing, or only a part of a frame."""
        async with dialled(self.port, websocket=False) as peer:
            await peer.bare(self.dice.choice(OPENINGS))
            await peer.hear_end(6.0)

    async def cut(self) -> None:
        """Close in the middle of a frame."""
        async with self.peer() as peer:
            await peer.connect()
            frame = b"SEND\ndestination:/topic/soak.1\ncontent-length:90000\n\n" + noise(50_000)
            if self.dice.random() < 0.5:
                await peer.raw(frame[: self.dice.randrange(1, len(frame))])
            else:
                await peer.bare(b"\x81\xfe\xff\xff" if peer.websocket else frame[:30])
            await trio.sleep(self.dice.uniform(0, 0.5))
            if self.dice.random() < 0.5:
                peer.reset()

    async def dead(self) -> None:
        """Promise heart-beats and send none, like a half-open connection."""
        async with self.peer() as peer:
            await peer.connect("heart-beat:500,500\n")
            await peer.say(f"SUBSCRIBE\nid:1\ndestination:/queue/soak.kept.{self.few()}\n\n")
            await peer.hear_end(6.0)

    async def wrong(self) -> None:
        """Send a frame that causes an ERROR."""
        async with self.peer() as peer:
            version = self.dice.choice(["1.2", "1.0", "1.1", "9.9"])
            await peer.connect("", version)
            await peer.say(self.dice.choice(WRONG))
            await peer.hear(b"ERROR\n", 1.0)
            if self.dice.random() < 0.5:
                await peer.hear_end()

    async def slow(self) -> None:
        """Subscribe and do not read until disconnected, or leave."""
        async with self.peer(small=True) as sleeper, self.peer() as peer:
            topic = f"/topic/soak.slow.{self.few()}"
            await sleeper.connect()
            await sleeper.say(f"SUBSCRIBE\nid:1\ndestination:{topic}\nreceipt:s\n\n")
            await sleeper.hear(b"receipt-id:s")
            await peer.connect()
            for _ in range(self.dice.randrange(1, 30)):
                await peer.say(f"SEND\ndestination:{topic}\n\n{'s' * 60_000}")
            await trio.sleep(self.dice.uniform(0, 4))
            if self.dice.random() < 0.5:
                sleeper.reset()

    async def full(self) -> None:
        """Send more than a queue accepts, and leave while refused or blocked."""
        async with self.peer() as peer:
            await peer.connect()
            queue = self.dice.choice(["/queue/soak.block", "/queue/soak.reject"])
            await peer.say(*[f"SEND\ndestination:{queue}\n\n{n}" for n in range(60)])
            await peer.hear(b"ERROR\n", 0.5)

    async def http(self) -> None:
        """Send valid and invalid HTTP requests."""
        async with dialled(self.port, websocket=False) as peer:
            await peer.bare(self.dice.choice(HTTP))
            await peer.hear(b"\r\n\r\n", 1.0)

    async def bad_websocket(self) -> None:
        """Send invalid WebSocket frames, or Close and ping."""
        async with dialled(self.port, websocket=True) as peer:
            if self.dice.random() < 0.5:
                await peer.connect()
            await peer.bare(self.dice.choice(BAD_WEBSOCKET))
            await peer.hear_end(3.0)

    async def garbage(self) -> None:
        """Send random bytes."""
        async with self.peer() as peer:
            await peer.bare(noise(self.dice.randrange(1, 5000)))
            await peer.hear_end(3.0)
