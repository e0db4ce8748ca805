"""Producers and consumers. Each lasts as long as its connection, and records what it received."""

import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from _crash.ledger import ABORTED, COMMITTED, COMMITTING, Group, Ledger, Track
from _crash.link import Gone, Link, Reply

MAX_PAUSE_S = 0.01
MAX_BODY = 2000
WINDOW = 200
MAX_GROUP = 8
SETTLE_S = 10.0
"""The time that a stopping client waits for RECEIPTs."""
HELD = 0.1
"""Share of the reads after which a consumer delays its ACKs."""


class Client(threading.Thread):
    """One connection, from CONNECT until it is lost or stopped."""

    def __init__(
        self, port: int, ledger: Ledger, seed: int, stop: threading.Event, client_id: str = ""
    ) -> None:
        super().__init__(daemon=True)
        self.ledger = ledger
        self.random = random.Random(seed)
        self._port = port
        self._stop_asked = stop
        self._client_id = client_id
        self.unanswered = 0
        """ACKs and transactions without a RECEIPT."""
        self.link: Link

    def run(self) -> None:
        """Run the client until its connection is lost or it is stopped."""
        try:
            self.link = Link(self._port, self._client_id)
        except Gone:
            return
        try:
            with suppress(Gone):
                self.begin()
                while not self._stop_asked.is_set():
                    self.work()
            with suppress(Gone):
                self.settle()
                # A RECEIPT that was on its way at the kill counts, too. Without it, what was sent
                # here could come behind what another connection sends later.
                until = time.monotonic() + SETTLE_S
                while (replies := self.link.receive()) or (
                    self.unanswered and time.monotonic() < until
                ):
                    self.take(replies)
        except Exception as error:
            self.ledger.wrong(f"the harness itself: {type(self).__name__}: {error!r}")
        finally:
            self.link.close()

    def begin(self) -> None:
        """Subscribe, if necessary."""

    def work(self) -> None:
        """Do a part of the work. Called until the connection is lost."""
        raise NotImplementedError

    def settle(self) -> None:
        """Finish the work after a request to stop."""

    def take(self, replies: list[Reply]) -> None:
        """Process received frames."""
        for reply in replies:
            if reply.command == "RECEIPT":
                self.receipt(reply)
            elif reply.command == "MESSAGE":
                self.message(reply)
            elif reply.headers.get("code") != self.ledger.allowed:
                self.ledger.wrong(f"{reply.command}: {reply.headers.get('message')}")

    def receipt(self, reply: Reply) -> None:
        """Process a RECEIPT."""
        raise NotImplementedError

    def message(self, reply: Reply) -> None:
        """Process a MESSAGE."""
        raise NotImplementedError


class Producer(Client):
    """Sends messages with receipts: in lock step (``window`` 1), or with many unconfirmed."""

    def __init__(self, *args: object, track: Track, to: str, window: int = WINDOW) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.track = track
        self.to = to
        self.window = window
        self.pending = 0

    def work(self) -> None:
        """Implement ``Client.work``."""
        burst = self.random.randint(1, max(self.window // 5, 1))
        self.pending += burst
        self.link.send("".join(self._send() for _ in range(burst)))
        while self.pending and (self.pending > self.window - burst or self.link.has_more()):
            self.take(self.link.receive())
        time.sleep(self.random.uniform(0, MAX_PAUSE_S))

    def settle(self) -> None:
        """Implement ``Client.settle``."""
        while self.pending:
            self.take(self.link.receive())

    def _send(self) -> str:
        number = self.track.new()
        return self.frame(number, f"receipt:{number}\n")

    def frame(self, number: int, headers: str) -> str:
        """Return a SEND."""
        body = f"{self.track.name} {number} " + "x" * self.random.randint(0, MAX_BODY)
        return f"SEND\ndestination:{self.to}\npersistent:true\n{headers}\n{body}\0"

    def receipt(self, reply: Reply) -> None:
        """Implement ``Client.receipt``. The RECEIPT must say that the message is stored."""
        number = int(reply.headers["receipt-id"])
        stored = reply.headers.get("stored", "")
        if stored in ("", "memory"):
            self.ledger.wrong(f"{self.track.name} {number}: RECEIPT with stored:{stored}")
        self.track.receipted[number] = 1
        self.pending -= 1


class Transactions(Producer):
    """Sends messages in transactions, some of which are aborted.

    Args:
      mixed: Each message goes to one of these destinations, in a mixture of its own.
    """

    def __init__(self, *args: object, track: Track, to: str, mixed: Sequence[str] = ()) -> None:
        super().__init__(*args, track=track, to=to)
        self.mixed = mixed

    def frame(self, number: int, headers: str) -> str:
        """Implement ``Producer.frame``."""
        if self.mixed:
            self.to = self.random.choice(self.mixed)
        return super().frame(number, headers)

    def work(self) -> None:
        """Implement ``Client.work``."""
        count = self.random.randint(1, MAX_GROUP)
        numbers = [self.track.new() for _ in range(count)]
        group = Group(numbers[0], count)
        self.track.groups.append(group)
        name = len(self.track.groups) - 1
        header = f"transaction:{name}\n"
        self.link.send(
            f"BEGIN\n{header}\n\0" + "".join(self.frame(number, header) for number in numbers)
        )
        if self.random.random() < 0.2:
            time.sleep(self.random.uniform(0, MAX_PAUSE_S))
        if self.random.random() < 0.15:
            group.state = ABORTED
            self.link.send(f"ABORT\n{header}\n\0")
            return
        group.state = COMMITTING
        self.pending += 1
        self.link.send(f"COMMIT\n{header}receipt:{name}\n\n\0")
        while self.pending > WINDOW // 20 or (self.pending and self.link.has_more()):
            self.take(self.link.receive())
        time.sleep(self.random.uniform(0, MAX_PAUSE_S))

    def receipt(self, reply: Reply) -> None:
        """Implement ``Client.receipt``."""
        group = self.track.groups[int(reply.headers["receipt-id"])]
        group.state = COMMITTED
        for number in range(group.first, group.first + group.count):
            self.track.receipted[number] = 1
        self.pending -= 1


class Consumer(Client):
    """Receives messages, and acknowledges each with a receipt, or none with ``ack:auto``."""

    def __init__(
        self, *args: object, of: str, prefetch: int = 100, ack: str = "client-individual"
    ) -> None:
        client_id = "" if of.startswith("/queue/") else "crash"
        super().__init__(*args, client_id)  # type: ignore[arg-type, call-arg]
        self.of = of
        self.prefetch = prefetch
        self.ack = ack
        self._last: dict[str, int] = {}
        self._to_ack: list[tuple[str, str, int]] = []

    def begin(self) -> None:
        """Implement ``Client.begin``."""
        durable = "" if self.of.startswith("/queue/") else "activemq.subscriptionName:news\n"
        self.link.send(
            f"SUBSCRIBE\nid:0\ndestination:{self.of}\nack:{self.ack}\n"
            f"prefetch-count:{self.prefetch}\n{durable}\n\0"
        )

    def work(self) -> None:
        """Implement ``Client.work``."""
        replies = self.link.receive()
        self.take(replies)
        if not replies or self.prefetch == 1 or self.random.random() > HELD:
            self.settle()

    def settle(self) -> None:
        """Implement ``Client.settle``."""
        waiting, self._to_ack = self._to_ack, []
        if waiting:
            self.unanswered += len(waiting)
            self.link.send("".join(self.answer(*each) for each in waiting))

    def answer(self, ack: str, name: str, number: int) -> str:
        """Return the ACK of a message."""
        return f"ACK\nid:{ack}\nreceipt:{name} {number}\n\n\0"

    def receipt(self, reply: Reply) -> None:
        """Implement ``Client.receipt``. The message must never be delivered again."""
        self.unanswered -= 1
        name, number = reply.headers["receipt-id"].split()
        self.ledger.tracks[name].acked[int(number)] = 1

    def message(self, reply: Reply) -> None:
        """Implement ``Client.message``. Messages of one producer must arrive in order."""
        name, text, _ = reply.body.split(" ", 2)
        number = int(text)
        is_marked = reply.headers.get("redelivered") == "true"
        self.ledger.deliver(name, number, is_marked=is_marked)
        # In a cluster the connection of one consumer may end: its messages are redelivered, late.
        may_be_late = is_marked and self.ledger.must_mark
        if number <= self._last.get(name, -1) and not may_be_late:
            self.ledger.wrong(f"{name} {number} came behind {self._last[name]}")
        self._last[name] = number
        if self.ack != "auto":
            self._to_ack.append((reply.headers["ack"], name, number))


class StreamReader(Client):
    """Reads a stream from its first message."""

    def __init__(self, *args: object, of: str) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.of = of

    def begin(self) -> None:
        """Implement ``Client.begin``."""
        self.link.send(f"SUBSCRIBE\nid:0\ndestination:{self.of}\nx-stream-offset:first\n\n\0")

    def work(self) -> None:
        """Implement ``Client.work``."""
        self.take(self.link.receive())

    def message(self, reply: Reply) -> None:
        """Implement ``Client.message``. A stream has each message once."""
        name, number, _ = reply.body.split(" ", 2)
        self.ledger.deliver(name, int(number), is_marked=False)


class Mover(Consumer):
    """Moves messages on: ACK and SENDs in one transaction, so that each is moved once.

    Args:
      to: Destinations, each of which gets a message.
    """

    def __init__(self, *args: object, of: str, to: Sequence[str], track: Track) -> None:
        super().__init__(*args, of=of, prefetch=20)
        self.to = to
        self.track = track

    def answer(self, ack: str, _name: str, number: int) -> str:
        """Implement ``Consumer.answer``."""
        track, group = self.track, len(self.track.groups)
        outs = [track.new() for _ in self.to]
        track.groups.append(Group(outs[0], len(outs), COMMITTING, number))
        header = f"transaction:{group}\n"
        sends = "".join(
            f"SEND\ndestination:{to}\npersistent:true\n{header}\n{track.name} {out} \0"
            for to, out in zip(self.to, outs, strict=True)
        )
        return (
            f"BEGIN\n{header}\n\0{sends}"
            f"ACK\nid:{ack}\n{header}\n\0"
            f"COMMIT\n{header}receipt:{group}\n\n\0"
        )

    def receipt(self, reply: Reply) -> None:
        """Implement ``Client.receipt``."""
        self.unanswered -= 1
        group = self.track.groups[int(reply.headers["receipt-id"])]
        group.state = COMMITTED
        for number in range(group.first, group.first + group.count):
            self.track.receipted[number] = 1
        self.ledger.tracks["hop"].acked[group.origin] = 1
