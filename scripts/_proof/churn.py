"""The churn: what clients do, in order or not. Each act is one connection, or a few."""

import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import trio

from _proof.peer import Peer, dialled, noise

FEW = 20
MANY = 100_000
"""Names of which each is used about once: the broker forgets the oldest."""
BIG_BYTES = 3 * 1024 * 1024
POLICIES = """
["/topic/soak.stream.>"]
stream = true
stream_max_bytes = 1048576
stream_max_age_ms = 60000
["/topic/soak.durable.>"]
max_messages = 100
overflow = "drop-oldest"
["/queue/soak.many.>"]
ttl_ms = 2000
["/queue/soak.kept.>"]
persistent = "always"
max_messages = 200
overflow = "drop-oldest"
backoff_s = [0.1]
["/queue/soak.block"]
max_messages = 50
overflow = "block"
["/queue/soak.reject"]
max_messages = 50
["/queue/DLQ.>"]
ttl_ms = 2000
"""
DRAINED = [f"/queue/soak.kept.{n}" for n in range(FEW)] + ["/queue/soak.block", "/queue/soak.reject"]
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
BAD_WEBSOCKET = (b"\x81\x05hello", b"\xf1\x80\0\0\0\0", b"\x89\xfe\x01\x00\0\0\0\0", b"\x88\x81\0\0\0\0x")


class Churn:
    """Acts at random, from a seed.

    Args:
      port: Of the broker, on the loopback interface.
      dice: Decides.
    """

    def __init__(self, port: int, dice: random.Random) -> None:
        self.port = port
        self.dice = dice
        self.done: dict[str, int] = {}
        self.refused = 0
        """Acts that the broker, or the system, ended early: many of them ask for it."""

    def acts(self) -> list[Callable[[], Awaitable[None]]]:
        """All that may happen."""
        return [
            self.orderly,
            self.orderly,
            self.abrupt,
            self.silent,
            self.cut,
            self.dead,
            self.unacked,
            self.durable,
            self.shared_durable,
            self.temporary,
            self.stream,
            self.transaction,
            self.big,
            self.wrong,
            self.wrong,
            self.many_names,
            self.many_names,
            self.wildcards,
            self.last_value,
            self.scheduled,
            self.slow,
            self.full,
            self.browse,
            self.http,
            self.bad_websocket,
            self.garbage,
            self.ask,
            self.work_queue,
            self.parked,
        ]

    async def act(self) -> None:
        """Do one of them."""
        act = self.dice.choice(self.acts())
        name = act.__name__  # type: ignore[attr-defined]
        self.done[name] = self.done.get(name, 0) + 1
        try:
            await act()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            self.refused += 1

    def peer(self, *, small: bool = False) -> AbstractAsyncContextManager[Peer]:
        """A connection by TCP or WebSocket."""
        return dialled(self.port, websocket=self.dice.random() < 0.5, small=small)

    def few(self) -> int:
        """One of few."""
        return self.dice.randrange(FEW)

    async def orderly(self) -> None:
        """All as it should be."""
        version = self.dice.choice(["1.0", "1.1", "1.2", "1.0,1.1,1.2"])
        async with self.peer() as peer:
            await peer.connect("heart-beat:1000,1000\n", version)
            topic = f"/topic/soak.{self.few()}"
            await peer.say(
                f"SUBSCRIBE\nid:1\ndestination:{topic}\nreceipt:s\n\n",
                f"SEND\ndestination:{topic}\nk:{self.dice.randrange(10**6)}\n\nhello",
            )
            await peer.hear(b"MESSAGE\n")
            if self.dice.random() < 0.5:
                await peer.say(f"UNSUBSCRIBE\nid:1\ndestination:{topic}\n\n")
            await peer.leave()

    async def abrupt(self) -> None:
        """A client with everything dies."""
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
        """Connects and says nothing, or not enough."""
        async with dialled(self.port, websocket=False) as peer:
            await peer.bare(self.dice.choice([b"", b"CONN", b"GET /ws HT", b"\x16\x03\x01", b"\n\n"]))
            await peer.hear_end(6.0)

    async def cut(self) -> None:
        """Ends in the middle of a frame."""
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
        """Promises heart-beats, and is silent: half open."""
        async with self.peer() as peer:
            await peer.connect("heart-beat:500,500\n")
            await peer.say(f"SUBSCRIBE\nid:1\ndestination:/queue/soak.kept.{self.few()}\n\n")
            await trio.sleep(4.0)
            await peer.hear_end()

    async def unacked(self) -> None:
        """Takes from a queue, acknowledges some, refuses some, and leaves the rest open."""
        queue = f"/queue/soak.kept.{self.few()}"
        async with self.peer() as peer:
            await peer.connect()
            sends = [
                f"SEND\ndestination:{queue}\npriority:{n}\nJMSXGroupID:g{self.few()}\n"
                f"x-dedup-id:{self.dice.randrange(MANY)}\n\nwork {n}"
                for n in range(10)
            ]
            await peer.say(*sends)
            mode = self.dice.choice(["client", "client-individual"])
            await peer.say(f"SUBSCRIBE\nid:q\ndestination:{queue}\nack:{mode}\nreceipt:s\n\n")
            await peer.hear(b"receipt-id:s")
            await trio.sleep(0.1)
            with trio.move_on_after(0.2):
                await peer.hear(b"never")
            for ack in peer.acks()[:6]:
                word = "ACK" if self.dice.random() < 0.7 else "NACK"
                await peer.say(f"{word}\nid:{ack}\n\n")
                if mode == "client":
                    break
            if self.dice.random() < 0.5:
                await peer.leave()

    async def durable(self) -> None:
        """A durable subscription of a client id: made, left, ended."""
        name = self.few()
        async with self.peer() as peer:
            await peer.connect(f"client-id:c{name}\n")
            headers = f"activemq.subscriptionName:d{name}\n"
            await peer.say(
                f"SUBSCRIBE\nid:1\ndestination:/topic/soak.durable.{name}\n"
                f"ack:client-individual\n{headers}\n"
            )
            for n in range(5):
                await peer.say(
                    f"SEND\ndestination:/topic/soak.durable.{self.few()}\npersistent:true\n\nd{n}"
                )
            await peer.hear(b"MESSAGE\n", 0.3)
            if self.dice.random() < 0.5:
                await peer.say(f"UNSUBSCRIBE\nid:1\n{headers}\n")
                await peer.leave()

    async def shared_durable(self) -> None:
        """A shared durable subscription."""
        name = self.few()
        async with self.peer() as peer:
            await peer.connect()
            headers = "durable:true\nauto-delete:false\n"
            topic = f"/topic/soak.durable.{name}"
            await peer.say(f"SUBSCRIBE\nid:shared{name}\ndestination:{topic}\n{headers}\n")
            await peer.say(f"SEND\ndestination:{topic}\n\nshared")
            await peer.hear(b"MESSAGE\n", 0.3)
            if self.dice.random() < 0.5:
                await peer.say(f"UNSUBSCRIBE\nid:shared{name}\n{headers}\n")
                await peer.leave()

    async def temporary(self) -> None:
        """A question with a reply queue; the answer may come too late."""
        async with self.peer() as asker, self.peer() as answerer:
            await asker.connect()
            await answerer.connect()
            queue = f"/queue/soak.many.{self.dice.randrange(MANY)}"
            await answerer.say(f"SUBSCRIBE\nid:1\ndestination:{queue}\nreceipt:s\n\n")
            await answerer.hear(b"receipt-id:s")
            await asker.say(f"SEND\ndestination:{queue}\nreply-to:/temp-queue/a\n\nwhat?")
            if not await answerer.hear(b"\nreply-to:"):
                return
            with trio.move_on_after(0.05):
                await answerer.hear(b"never")
            to = answerer.heard.partition(b"\nreply-to:")[2].partition(b"\n")[0].decode()
            if self.dice.random() < 0.3:
                await asker.leave()
            await answerer.say(f"SEND\ndestination:{to}\n\nthat")
            await asker.hear(b"that", 0.5)

    async def stream(self) -> None:
        """Reads a stream from somewhere, and goes in the middle."""
        topic = f"/topic/soak.stream.{self.dice.randrange(5)}"
        start = self.dice.choice(["first", "last", "next", "offset=3", "timestamp=1"])
        async with self.peer() as peer:
            await peer.connect()
            for n in range(20):
                await peer.say(f"SEND\ndestination:{topic}\n\nevent {n} {'e' * 500}")
            where = self.dice.choice([f"/stream{topic}", "/stream/DIAG"])
            await peer.say(f"SUBSCRIBE\nid:1\ndestination:{where}\nx-stream-offset:{start}\n\n")
            await peer.hear(b"x-stream-offset:", 0.5)
            if self.dice.random() < 0.5:
                await peer.leave()

    async def transaction(self) -> None:
        """Transactions, some left open."""
        async with self.peer() as peer:
            await peer.connect()
            for name in range(self.dice.randrange(1, 6)):
                tx = f"transaction:t{name}\n"
                await peer.say(f"BEGIN\n{tx}\n")
                for _ in range(self.dice.randrange(20)):
                    queue = f"/queue/soak.kept.{self.few()}"
                    await peer.say(f"SEND\ndestination:{queue}\n{tx}\n{'t' * 1000}")
                end = self.dice.choice(["COMMIT", "ABORT", ""])
                if end:
                    await peer.say(f"{end}\n{tx}\n")
            if self.dice.random() < 0.5:
                await peer.leave()

    async def big(self) -> None:
        """A message of megabytes."""
        async with self.peer() as peer:
            await peer.connect()
            size = self.dice.randrange(BIG_BYTES)
            topic = f"/topic/soak.{self.few()}"
            await peer.say(f"SUBSCRIBE\nid:1\ndestination:{topic}\nreceipt:s\n\n")
            await peer.hear(b"receipt-id:s")
            await peer.say(f"SEND\ndestination:{topic}\ncontent-length:{size}\n\n", body=b"b" * size)
            await peer.hear(b"MESSAGE\n")
            if self.dice.random() < 0.7:
                await peer.leave()

    async def wrong(self) -> None:
        """A frame that is an ERROR."""
        async with self.peer() as peer:
            version = self.dice.choice(["1.2", "1.0", "1.1", "9.9"])
            await peer.connect("", version)
            await peer.say(self.dice.choice(WRONG))
            await peer.hear(b"ERROR\n", 1.0)
            if self.dice.random() < 0.5:
                await peer.hear_end()

    async def many_names(self) -> None:
        """Destinations that nobody has used before."""
        async with self.peer() as peer:
            await peer.connect()
            for n in range(10):
                name = f"soak.many.{self.dice.randrange(MANY)}"
                kind = self.dice.choice(["topic", "queue"])
                if n % 3 == 0:
                    await peer.say(f"SUBSCRIBE\nid:{n}\ndestination:/{kind}/{name}\n\n")
                await peer.say(f"SEND\ndestination:/{kind}/{name}\nx-{n}:{name}\n\nmany")
            if self.dice.random() < 0.7:
                await peer.leave()

    async def wildcards(self) -> None:
        """Wildcards, composites, many subscriptions."""
        async with self.peer() as peer:
            await peer.connect()
            for n in range(20):
                where = self.dice.choice(
                    [
                        f"/topic/soak.{n}.*",
                        "/topic/soak.>",
                        f"/topic/soak.many.{self.dice.randrange(MANY)}.>",
                        "/queue/soak.many.*",
                        f"/topic/soak.{n},/topic/soak.{n + 1}",
                    ]
                )
                await peer.say(f"SUBSCRIBE\nid:{n}\ndestination:{where}\n\n")
            await peer.say(f"SEND\ndestination:/topic/soak.{self.few()}.x\n\nwild")
            await peer.hear(b"MESSAGE\n", 0.5)
            if self.dice.random() < 0.5:
                await peer.leave()

    async def last_value(self) -> None:
        """A last value is set, and forgotten."""
        async with self.peer() as peer:
            await peer.connect()
            word = self.dice.choice(["set", "set", "remove"])
            await peer.say(
                f"SEND\ndestination:/topic/soak.last.{self.few()}\nretain:{word}\n"
                f"persistent:true\n\nvalue",
                "SUBSCRIBE\nid:1\ndestination:/topic/soak.last.*\n\n",
            )
            await peer.hear(b"MESSAGE\n", 0.3)
            await peer.leave()

    async def scheduled(self) -> None:
        """Messages for later, from a sender that leaves."""
        async with self.peer() as peer:
            await peer.connect()
            queue = f"/queue/soak.kept.{self.few()}"
            for n in range(5):
                await peer.say(f"SEND\ndestination:{queue}\nAMQ_SCHEDULED_DELAY:{200 * n + 1}\n\nlater")
            await peer.leave()

    async def slow(self) -> None:
        """A subscriber that reads nothing, until it is ended or leaves."""
        async with self.peer(small=True) as sleeper, self.peer() as peer:
            topic = f"/topic/soak.slow.{self.few()}"
            await sleeper.connect()
            await sleeper.say(f"SUBSCRIBE\nid:1\ndestination:{topic}\nreceipt:s\n\n")
            await sleeper.hear(b"receipt-id:s")
            await peer.connect()
            for _ in range(self.dice.randrange(1, 30)):
                await peer.say(f"SEND\ndestination:{topic}\n\n{'s' * 60_000}")
            await trio.sleep(self.dice.uniform(0, 5))
            if self.dice.random() < 0.5:
                sleeper.reset()

    async def full(self) -> None:
        """More than a queue takes: refused, or made to wait, and gone while waiting."""
        async with self.peer() as peer:
            await peer.connect()
            queue = self.dice.choice(["/queue/soak.block", "/queue/soak.reject"])
            await peer.say(*[f"SEND\ndestination:{queue}\n\n{n}" for n in range(60)])
            await peer.hear(b"ERROR\n", 0.5)

    async def browse(self) -> None:
        """Looks into a queue."""
        async with self.peer() as peer:
            await peer.connect()
            queue = f"/queue/soak.kept.{self.few()}"
            await peer.say(f"SUBSCRIBE\nid:b\ndestination:{queue}\nbrowser:true\n\n")
            await peer.hear(b"browser:end", 1.0)
            if self.dice.random() < 0.5:
                await peer.leave()

    async def http(self) -> None:
        """Plain HTTP, good and bad."""
        async with dialled(self.port, websocket=False) as peer:
            await peer.bare(self.dice.choice(HTTP))
            await peer.hear(b"\r\n\r\n", 1.0)

    async def bad_websocket(self) -> None:
        """WebSocket frames that are none; Close and ping by the peer."""
        async with dialled(self.port, websocket=True) as peer:
            if self.dice.random() < 0.5:
                await peer.connect()
            await peer.bare(self.dice.choice(BAD_WEBSOCKET))
            await peer.hear_end(3.0)

    async def garbage(self) -> None:
        """Bytes."""
        async with self.peer() as peer:
            await peer.bare(noise(self.dice.randrange(1, 5000)))
            await peer.hear_end(3.0)

    async def ask(self) -> None:
        """Questions about the broker itself."""
        async with self.peer() as peer:
            await peer.connect()
            await peer.say(
                "SUBSCRIBE\nid:d\ndestination:DIAG*\n\n",
                "SUBSCRIBE\nid:m\ndestination:/queue/monitor\n\n",
                "DIAG\n\nsession",
                "SEND\ndestination:DIAG/mine\n\nstale",
            )
            await peer.hear(b"DIAG/", 1.5)

    async def work_queue(self) -> None:
        """Work shared by members that come and go, some of it unacknowledged."""
        async with self.peer() as one, self.peer() as other:
            name = f"#soak.work.{self.few()}"
            for peer in (one, other):
                await peer.connect()
                mode = self.dice.choice(["auto", "client-individual"])
                await peer.say(f"SUBSCRIBE\nid:1\ndestination:{name}\nack:{mode}\nreceipt:s\n\n")
                await peer.hear(b"receipt-id:s")
            await one.say(*[f"SEND\ndestination:{name}\n\nwork {n}" for n in range(20)])
            await other.hear(b"MESSAGE\n", 0.5)
            if self.dice.random() < 0.5:
                other.reset()
            await one.leave()

    async def parked(self) -> None:
        """Messages that wait a while for somebody to come; half of the time nobody does."""
        topic = f"/topic/soak.parked.{self.few()}"
        async with self.peer() as peer:
            await peer.connect()
            await peer.say(*[f"SEND\ndestination:{topic}\n\nparked {n}" for n in range(10)])
            if self.dice.random() < 0.5:
                await peer.say(f"SUBSCRIBE\nid:1\ndestination:{topic}\n\n")
                await peer.hear(b"MESSAGE\n", 0.5)
                await peer.leave()


async def tidy(port: int) -> None:
    """Empty what is kept on purpose: queues, durable subscriptions, last values."""
    async with dialled(port, websocket=False) as peer:
        await peer.connect()
        for n, queue in enumerate(DRAINED):
            await peer.say(f"SUBSCRIBE\nid:{n}\ndestination:{queue}\n\n")
        for n in range(FEW):
            await peer.say(
                f"SEND\ndestination:/topic/soak.last.{n}\nretain:remove\npersistent:true\n\nx"
            )
            await peer.say(
                f"SUBSCRIBE\nid:shared{n}\ndestination:/topic/soak.durable.{n}\ndurable:true\n"
                "auto-delete:false\n\n",
                f"UNSUBSCRIBE\nid:shared{n}\ndurable:true\nauto-delete:false\n\n",
            )
        await peer.hear(b"never", 3.0)
        await peer.leave()
    for n in range(FEW):
        async with dialled(port, websocket=False) as peer:
            await peer.connect(f"client-id:c{n}\n")
            end = f"activemq.subscriptionName:d{n}\n"
            await peer.say(
                f"SUBSCRIBE\nid:1\ndestination:/topic/soak.durable.{n}\n{end}\n",
                f"UNSUBSCRIBE\nid:1\n{end}\n",
            )
            await peer.leave()


