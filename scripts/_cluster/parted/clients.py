"""Clients of a simulated cluster with partitions: STOMP over links, through any node."""

import random
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import trio
from _crash.link import Reply, reply_of
from attrs import define

from _cluster.parted.nodes import PartedFleet, PartedLife
from _cluster.parted.record import ABORTED, COMMITTING, HOP, Record, Sent, Whole

QUEUES = tuple(f"/queue/q{number}" for number in range(6))
PAUSE_S = 0.02, 0.3
RETRY_S = 0.1
PATIENCE_S = 12.0
"""The time that a client waits for RECEIPTs before it connects again."""
LATE_S = 0.05
"""How long after a pause or stall bytes arrive that were on their way."""
CONNECT_S = 2.0
KNOCK_S = 1.5
BACKLOG = 150
READ_BYTES = 65536


class Gone(Exception):
    """The connection is lost, or does not answer."""


@define(eq=False)
class Session:
    """A client's open session."""

    stream: trio.abc.HalfCloseableStream
    cut: Callable[[], None]
    _data: bytes = b""

    async def send(self, text: str) -> None:
        """Send frames."""
        try:
            await self.stream.send_all(text.encode())
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise Gone from None

    async def receive(self, patience_s: float) -> list[Reply]:
        """Return the frames that come next, or none after a while."""
        with trio.move_on_after(patience_s):
            try:
                data = await self.stream.receive_some(READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                raise Gone from None
            if not data:
                raise Gone
            *frames, self._data = (self._data + data).split(b"\0")
            return [reply_of(frame) for frame in frames]
        return []


@define(eq=False)
class PartedClients:
    """All clients of a run. Implements ``Load``.

    Args:
      running: Senders that have not ended.
    """

    fleet: PartedFleet
    record: Record
    chance: random.Random
    running: int = 0
    _must_stop: bool = False
    _sessions: int = 0

    def all(self) -> Iterator[Callable[[], Awaitable[None]]]:
        """Yield the task of each client."""
        for name in ("p1", "p2"):
            yield partial(self._send_for_ever, partial(self._produce, name, []))
        for name in ("t1", "t2"):
            yield partial(self._send_for_ever, partial(self._transact, name))
        yield partial(self._send_for_ever, partial(self._compose, "c1"))
        for place in QUEUES:
            yield partial(self._for_ever, partial(self._consume, place))
        for _ in range(2):
            yield partial(self._for_ever, partial(self._move, "h"))
        yield partial(self._for_ever, self._knock)

    def stop(self) -> None:
        """Have senders end."""
        self._must_stop = True

    async def _send_for_ever(self, run: Callable[[Session], Awaitable[None]]) -> None:
        """Run a sender until it may stop and has nothing unconfirmed."""
        self.running += 1
        await self._for_ever(run, lambda: self._must_stop)
        self.running -= 1

    async def _for_ever(
        self, run: Callable[[Session], Awaitable[None]], may_end: Callable[[], bool] = lambda: False
    ) -> None:
        """Run a client over as many sessions as it takes, until its function returns in one."""
        while True:
            with suppress(Gone):
                session = await self._connect()
                try:
                    await run(session)
                    if may_end():
                        return
                finally:
                    session.cut()
            await trio.sleep(RETRY_S)

    async def _connect(self) -> Session:
        """Open a session at any node."""
        machine = self.chance.choice(self.fleet.machines)
        process = machine.life
        if not isinstance(process, PartedLife) or not process.is_ready:
            raise Gone
        link = self.fleet.streets.link(machine.name)
        ours, theirs = link.ends()
        try:
            process.handle.on_connect(theirs)
        except (ConnectionRefusedError, RuntimeError):  # it stops
            raise Gone from None
        session = Session(ours, link.cut)
        await session.send("CONNECT\naccept-version:1.2\nhost:sim\n\n\0")
        replies = await session.receive(CONNECT_S)
        if not replies or replies[0].command != "CONNECTED":
            link.cut()
            raise Gone
        return session

    def _check(self, reply: Reply) -> None:
        """End the session after an ERROR. Only the loss of a store or owner may cause one."""
        if reply.command == "ERROR":
            if reply.headers.get("code") not in ("storage", "shutting-down", "partition-behind"):
                self.record.wrong(f"ERROR {reply.headers} {reply.body}")
            raise Gone

    async def _receipts(self, session: Session, wanted: dict[str, Callable[[], None]]) -> None:
        """Wait for RECEIPTs, and call the function of each."""
        until = trio.current_time() + PATIENCE_S
        while wanted:
            for reply in await session.receive(until - trio.current_time()):
                self._check(reply)
                if reply.command == "RECEIPT":
                    wanted.pop(reply.headers["receipt-id"])()
            if wanted and trio.current_time() >= until:
                raise Gone

    async def _rest(self) -> bool:
        """Wait a while. Return whether to send more."""
        await trio.sleep(self.chance.uniform(*PAUSE_S))
        while self.record.waiting > BACKLOG and not self._must_stop:  # noqa: ASYNC110
            await trio.sleep(RETRY_S)
        return not self._must_stop

    # --- senders ----------------------------------------------------------------------------------

    async def _knock(self, session: Session) -> None:
        """Send a message to each queue from time to time, once senders have ended.

        So owners notice what the engine has stored late: only their next append shows it.
        """
        while True:
            await trio.sleep(KNOCK_S)
            if self._must_stop:
                frames = [_send(self.record.new(place, "knock"), "") for place in QUEUES]
                await session.send("".join(frames))

    async def _produce(self, name: str, unconfirmed: list[Sent], session: Session) -> None:
        """Send messages, and repeat those without a RECEIPT, whose ids make that harmless."""
        places = (*QUEUES, HOP)
        while unconfirmed or await self._rest():
            if not unconfirmed:
                count = self.chance.choice((1, 1, 2, 5))
                unconfirmed += [
                    self.record.new(self.chance.choice(places), name) for _ in range(count)
                ]
            await session.send(
                "".join(
                    _send(each, f"x-dedup-id:{each.body}\nreceipt:{each.body}\n")
                    for each in unconfirmed
                )
            )
            confirm = partial(_confirm, unconfirmed)
            await self._receipts(session, {e.body: partial(confirm, e) for e in unconfirmed})

    async def _transact(self, name: str, session: Session) -> None:
        """Send messages alone, and in transactions over partitions, some of which are aborted."""
        self._sessions += 1
        series = f"{name} {self._sessions}"
        while await self._rest():
            if self.chance.random() < 0.3:
                alone = self.record.new(self.chance.choice(QUEUES), series)
                await session.send(_send(alone, ""))
            places = [self.chance.choice(QUEUES) for _ in range(self.chance.randint(2, 4))]
            whole = self._whole(series, places)
            frames = "".join(_send(each, "transaction:t\n") for each in whole.messages)
            if self.chance.random() < 0.15:
                whole.state = ABORTED
                await session.send(f"BEGIN\ntransaction:t\n\n\0{frames}ABORT\ntransaction:t\n\n\0")
                continue
            whole.state = COMMITTING
            end = "COMMIT\ntransaction:t\nreceipt:t\n\n\0"
            await session.send(f"BEGIN\ntransaction:t\n\n\0{frames}{end}")
            await self._receipts(session, {"t": whole.commit})

    async def _compose(self, name: str, session: Session) -> None:
        """Send to several destinations at once."""
        self._sessions += 1
        series = f"{name} {self._sessions}"
        while await self._rest():
            places = self.chance.sample(QUEUES, self.chance.randint(2, 3))
            whole = self._whole(series, places)
            body = whole.messages[0].body
            for each in whole.messages:
                self.record.rename(each, body)
            whole.state = COMMITTING
            names = ",".join(places)
            await session.send(f"SEND\ndestination:{names}\npersistent:true\nreceipt:c\n\n{body}\0")
            await self._receipts(session, {"c": whole.commit})

    def _whole(self, series: str, places: Sequence[str]) -> Whole:
        """Return the new messages of a transaction or composite."""
        return self.record.whole([self.record.new(place, series) for place in places])

    # --- consumers --------------------------------------------------------------------------------

    async def _subscribe(self, session: Session, place: str, prefetch: int) -> None:
        await session.send(
            f"SUBSCRIBE\nid:0\ndestination:{place}\nack:client-individual\n"
            f"prefetch-count:{prefetch}\n\n\0"
        )

    def _take(self, place: str, reply: Reply, last: dict[Hashable, int]) -> Sent | None:
        is_marked = reply.headers.get("redelivered") == "true"
        is_late = trio.current_time() < self.fleet.streets.went_on_at + LATE_S
        return self.record.deliver(place, reply.body, last, is_marked=is_marked, is_late=is_late)

    async def _consume(self, place: str, session: Session) -> None:
        """Receive messages of a queue, and acknowledge them."""
        await self._subscribe(session, place, 10)
        last: dict[Hashable, int] = {}
        unacked: dict[str, Sent] = {}
        ends_at = trio.current_time() + self.chance.uniform(2, 20)
        while trio.current_time() < ends_at or self._must_stop:
            for reply in await session.receive(1.0):
                self._check(reply)
                if reply.command == "MESSAGE":
                    sent = self._take(place, reply, last)
                    if sent is not None:
                        unacked[reply.headers["ack"]] = sent
                elif reply.command == "RECEIPT":
                    self.record.sent[reply.headers["receipt-id"]].is_acked = True
            if self.chance.random() < 0.3:
                await trio.sleep(self.chance.uniform(*PAUSE_S))
            frames = []
            for ack, sent in unacked.items():
                sent.is_ending = True
                frames.append(f"ACK\nid:{ack}\nreceipt:{sent.key}\n\n\0")
            unacked.clear()
            await session.send("".join(frames))

    async def _move(self, name: str, session: Session) -> None:
        """Move messages on to two queues, each with its ACK in one transaction."""
        await self._subscribe(session, HOP, 3)
        self._sessions += 1
        series = f"{name} {self._sessions}"
        last: dict[Hashable, int] = {}
        moving: dict[str, tuple[Sent, Whole]] = {}
        while True:
            replies = await session.receive(PATIENCE_S)
            if moving and not replies:
                raise Gone
            for reply in replies:
                self._check(reply)
                if reply.command == "RECEIPT":
                    origin, whole = moving.pop(reply.headers["receipt-id"])
                    whole.commit()
                    origin.is_acked = True
                elif taken := self._take(HOP, reply, last):
                    ack = reply.headers["ack"]
                    moving[ack] = taken, await self._move_on(session, series, taken, ack)

    async def _move_on(self, session: Session, series: str, origin: Sent, ack: str) -> Whole:
        places = [self.chance.choice(QUEUES) for _ in range(2)]
        whole = self.record.whole(
            [self.record.new(place, series, origin=origin) for place in places]
        )
        whole.state = COMMITTING
        header = f"transaction:{ack}\n"
        frames = "".join(_send(each, header) for each in whole.messages)
        await session.send(
            f"BEGIN\n{header}\n\0{frames}ACK\nid:{ack}\n{header}\n\0"
            f"COMMIT\n{header}receipt:{ack}\n\n\0"
        )
        return whole


def _confirm(unconfirmed: list[Sent], sent: Sent) -> None:
    """Take note of a RECEIPT."""
    sent.is_receipted = True
    unconfirmed.remove(sent)


def _send(sent: Sent, headers: str) -> str:
    """Return the frame of a message."""
    return f"SEND\ndestination:{sent.place}\npersistent:true\n{headers}\n{sent.body}\0"
