"""Actions of well-behaved clients, some of which stop half-way."""

import trio

from _proof.actor import MANY, Actor

BIG_BYTES = 3 * 1024 * 1024


class Regular(Actor):
    """Actions of one or two connections each."""

    async def orderly(self) -> None:
        """Send and receive, and disconnect properly."""
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

    async def unacked(self) -> None:
        """Receive from a queue, acknowledge some messages, refuse some, and leave the rest."""
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
        """Create, leave or end a durable subscription of a client id."""
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
        """Use a shared durable subscription."""
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
        """Send a request with a reply queue. The answer may come too late."""
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
        """Read a stream from a random offset, and leave before its end."""
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
        """Use transactions, and leave some open."""
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
        """Send a message of megabytes."""
        async with self.peer() as peer:
            await peer.connect()
            size = self.dice.randrange(BIG_BYTES)
            topic = f"/topic/soak.{self.few()}"
            await peer.say(f"SUBSCRIBE\nid:1\ndestination:{topic}\nreceipt:s\n\n")
            await peer.hear(b"receipt-id:s")
            await peer.say(
                f"SEND\ndestination:{topic}\ncontent-length:{size}\n\n", body=b"b" * size
            )
            await peer.hear(b"MESSAGE\n")
            if self.dice.random() < 0.7:
                await peer.leave()

    async def many_names(self) -> None:
        """Use new destinations."""
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
        """Use wildcards, composites and many subscriptions."""
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
        """Set and remove a last value."""
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
        """Schedule messages, and leave."""
        async with self.peer() as peer:
            await peer.connect()
            queue = f"/queue/soak.kept.{self.few()}"
            for n in range(5):
                await peer.say(
                    f"SEND\ndestination:{queue}\nAMQ_SCHEDULED_DELAY:{200 * n + 1}\n\nlater"
                )
            await peer.leave()

    async def browse(self) -> None:
        """Browse a queue."""
        async with self.peer() as peer:
            await peer.connect()
            queue = f"/queue/soak.kept.{self.few()}"
            await peer.say(f"SUBSCRIBE\nid:b\ndestination:{queue}\nbrowser:true\n\n")
            await peer.hear(b"browser:end", 1.0)
            if self.dice.random() < 0.5:
                await peer.leave()

    async def ask(self) -> None:
        """Request diagnostics of the broker."""
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
        """Share a work queue between members that come and go, with unacknowledged messages."""
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
        """Send messages that are parked for a while. Half of the time they get no subscriber."""
        topic = f"/topic/soak.parked.{self.few()}"
        async with self.peer() as peer:
            await peer.connect()
            await peer.say(*[f"SEND\ndestination:{topic}\n\nparked {n}" for n in range(10)])
            if self.dice.random() < 0.5:
                await peer.say(f"SUBSCRIBE\nid:1\ndestination:{topic}\n\n")
                await peer.hear(b"MESSAGE\n", 0.5)
                await peer.leave()
