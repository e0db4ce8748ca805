"""The witness of the client's chaos test: it sits at the broker's end of all links.

It has its own frame parser, and checks each delivery at the moment when the broker makes it: a
message may be delivered again only if the earlier delivery failed. It observes what the broker has
read and written, not what has arrived.
"""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import trio
from attrs import define, evolve, field

from trio_stomp.client import Client, ClientEvent, Connector, ReconnectPolicy, Refused
from trio_stomp.testing import Faults, Link

QUEUE = "/queue/work"
STREAM = "/topic/log"
DESTINATIONS = (QUEUE.encode(), STREAM.encode())

LAZY_S = 1.1
"""Before a broker was killed: ACKs and deliveries of this time may not have been stored."""
LINGER_S = 2.0
"""Maximum time in which a link may end (``linger_s``). Its deliveries have been taken back by
then."""
LEAST_SHARE = 0.5
"""Minimum of the random share of a back-off, so that the number of dials is bounded."""


def body_of(key: str) -> bytes:
    """The body of the message ``key``: any bytes at all, and the same each time."""
    rng = random.Random(key)
    return key.encode() + b"|" + rng.randbytes(rng.choice((0, 1, 30, 300, 1200)))


def key_of(body: bytes) -> str:
    """Return the key of a message. Fail if a byte of its body is wrong."""
    key = body.partition(b"|")[0].decode()
    assert body == body_of(key), f"the body of {key} was damaged"
    return key


# --- frames -----------------------------------------------------------------------------------


class Frame(NamedTuple):
    """A frame as it passed."""

    command: bytes
    headers: dict[bytes, bytes]
    body: bytes


@define(eq=False)
class Cutter:
    """Splits the bytes of one direction into frames."""

    _rest: bytes = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now."""
        self._rest += data
        while True:
            self._rest = self._rest.lstrip(b"\n")
            head, blank, rest = self._rest.partition(b"\n\n")
            if not blank:
                return
            command, *lines = head.split(b"\n")
            headers: dict[bytes, bytes] = {}
            for line in lines:
                name, _, text = line.partition(b":")
                headers.setdefault(name, text)
            size = int(headers[b"content-length"]) if b"content-length" in headers else -1
            end = size if size >= 0 else rest.find(b"\0")
            if end < 0 or len(rest) <= end:
                return
            assert rest[end] == 0
            self._rest = rest[end + 1 :]
            yield Frame(command, headers, rest[:end])


# --- what the broker saw ----------------------------------------------------------------------


@define(eq=False)
class Handed:
    """A message that the broker wrote to a consumer, and the consumer's answers since."""

    key: str
    passage: "Passage"
    subscription: bytes
    at: float
    answer: bytes = b""
    """ACK or NACK, as soon as the broker has read it."""
    answered_at: float = 0.0
    is_left: bool = False
    """The subscription ended before the answer."""


@define(eq=False)
class Witness:
    """Records what the broker read and wrote, over all links and restarts."""

    sends: Counter[str] = field(factory=Counter)
    """SENDs of each message that were read whole."""
    handed: defaultdict[str, list[Handed]] = field(factory=lambda: defaultdict(list))
    acks: int = 0
    nacks: int = 0
    ends: int = 0
    """Links that the broker knows to have ended."""
    torn: int = 0
    """Those of them that ended within a frame of the client's."""
    errors: Counter[str] = field(factory=Counter)
    wrongs: list[str] = field(factory=list)
    taken: "list[tuple[str, float, Passage]]" = field(factory=list)
    """Messages that were redelivered while their link was about to end: key, time, and link."""
    kills: list[float] = field(factory=list)
    """The times at which the broker was killed and lost what it had not stored."""

    def faults(self) -> list[str]:
        """Return all faults."""
        early = [
            f"{key} came again {passage.over_at - at:g} s before the link of {passage.name} ended"
            for key, at, passage in self.taken
            if passage.over_at - at > LINGER_S
        ]
        return [*self.wrongs, *early]

    def is_blurred(self, at: float) -> bool:
        """Return whether the broker may have forgotten its state at this time."""
        return any(0 <= kill - at <= LAZY_S for kill in self.kills)

    def judge(self, key: str, redelivered: bool, count: int) -> None:
        """Check that a message may be delivered now, and that its headers tell the truth."""
        past = self.handed[key]
        known = [each for each in past if not self.is_blurred(each.at)]
        for each in past:
            forgotten = self.is_blurred(each.answered_at)
            if each.answer == b"ACK" and not forgotten:
                self.wrongs.append(f"{key} came again, though its ACK was read")
            elif not (each.answer or each.passage.is_over or each.is_left):
                # The core takes deliveries back before it sends the ERROR.
                self.taken.append((key, trio.current_time(), each.passage))
                each.is_left = True
        if known and not redelivered:
            self.wrongs.append(f"{key} came again without redelivered:true")
        if redelivered != (count > 1) or count <= len(known):
            self.wrongs.append(f"{key}: delivery {len(past) + 1} says count {count}, {redelivered}")
        # Deliveries staged for a link that ended were counted, but never written.
        if count - 1 - len(past) > self.ends:
            self.wrongs.append(f"{key}: delivery-count:{count} after {len(past)} deliveries")


@define(eq=False)
class Passage:
    """The broker's end of one link."""

    name: str
    witness: Witness
    over_at: float = math.inf
    """When the broker noticed the end of the link, or ended it."""
    is_ended: bool = False
    _born: int = field(init=False)
    _by_id: dict[bytes, Handed] = field(factory=dict)
    _inward: Cutter = field(factory=Cutter)
    _outward: Cutter = field(factory=Cutter)

    def __attrs_post_init__(self) -> None:
        self._born = len(self.witness.kills)

    @property
    def is_over(self) -> bool:
        """Return whether the broker has ended the link, noticed its end, or was killed."""
        return self.over_at < math.inf or self._is_of_the_dead

    @property
    def _is_of_the_dead(self) -> bool:
        """Return whether the link's broker was killed. Its remaining tasks say nothing."""
        return self._born < len(self.witness.kills)

    def end(self) -> None:
        """Stop passing data."""
        if not self.is_ended:
            self.is_ended = True
            self.over_at = min(self.over_at, trio.current_time())
            self.witness.ends += 1
            self.witness.torn += bool(self._inward._rest)

    def shut(self) -> None:
        """Note that the broker closed its side. It ignores what it reads from now on."""
        self.over_at = min(self.over_at, trio.current_time())

    def read(self, data: bytes) -> None:
        """Process what the broker read. It ignores data after it closed its side."""
        if self.is_over:
            return
        for command, headers, body in self._inward.feed(data):
            if command == b"SEND" and headers[b"destination"] in DESTINATIONS:
                self.witness.sends[key_of(body)] += 1
            elif command in (b"ACK", b"NACK"):
                self._answer(command, headers.get(b"id") or headers[b"message-id"])
            elif command == b"UNSUBSCRIBE":
                for handed in self._by_id.values():
                    handed.is_left |= handed.subscription == headers[b"id"]

    def _answer(self, command: bytes, name: bytes) -> None:
        handed = self._by_id.get(name)
        if handed is None:
            return  # of the stream
        if handed.answer:
            self.witness.wrongs.append(f"{handed.key}: {command!r} after {handed.answer!r}")
        handed.answer, handed.answered_at = command, trio.current_time()
        self.witness.acks += command == b"ACK"
        self.witness.nacks += command == b"NACK"

    def write(self, data: bytes) -> None:
        """The broker is about to write this."""
        if self._is_of_the_dead:
            return
        for command, headers, body in self._outward.feed(data):
            if command == b"ERROR":
                self.witness.errors[headers[b"code"].decode()] += 1
                self.over_at = trio.current_time()
            elif command == b"MESSAGE" and headers[b"destination"] == QUEUE.encode():
                # A message keeps its message-id: since 1.2 each delivery has a name of its own.
                key, id = key_of(body), headers.get(b"ack") or headers[b"message-id"]
                count = int(headers.get(b"delivery-count", b"1"))
                self.witness.judge(key, headers.get(b"redelivered") == b"true", count)
                self._by_id[id] = handed = Handed(
                    key, self, headers[b"subscription"], trio.current_time()
                )
                self.witness.handed[key].append(handed)


@define(eq=False)
class WatchedEnd(trio.abc.HalfCloseableStream):
    """The broker's end of a link, looked at by the witness."""

    inner: trio.abc.HalfCloseableStream
    passage: Passage

    @property
    def transport_stream(self) -> trio.abc.HalfCloseableStream:
        """The inner stream, by which the broker identifies the remote address."""
        return self.inner

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.passage.write(bytes(data))
        try:
            await self.inner.send_all(data)
        except trio.BrokenResourceError:
            self.passage.end()
            raise

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        self.passage.shut()
        await self.inner.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        try:
            data = bytes(await self.inner.receive_some(max_bytes))
        except trio.BrokenResourceError:
            self.passage.end()
            raise
        if data:
            self.passage.read(data)
        else:
            self.passage.end()
        return data

    async def aclose(self) -> None:
        self.passage.end()
        await self.inner.aclose()


@define(eq=False, repr=False)
class WatchedLink(Link):
    """A link with a witness."""

    witness: Witness = field(kw_only=True)

    def ends(self) -> tuple[trio.abc.HalfCloseableStream, trio.abc.HalfCloseableStream]:
        """The client's end and the broker's."""
        ours, theirs = super().ends()
        return ours, WatchedEnd(theirs, Passage(self.name, self.witness))


# --- connecting -------------------------------------------------------------------------------


@define(eq=False)
class Dialler:
    """Decides when and how a client connects, exactly as its policy says.

    Args:
      connect: Opens a link.
      comes_back: Whether the client has a policy at all.
    """

    rng: random.Random
    connect: Connector
    comes_back: bool = True
    dials: list[float] = field(factory=list)
    draws: list[tuple[float, float]] = field(factory=list)
    """The random shares of back-offs, and when they were drawn."""
    events: list[ClientEvent] = field(factory=list)
    client: Client | None = None
    policy: ReconnectPolicy = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.policy = ReconnectPolicy(
            first_delay_s=self.rng.choice((0.1, 0.2, 1.0)),
            max_delay_s=self.rng.choice((5.0, 30.0)),
            stable_after_s=self.rng.choice((5.0, 10.0)),
            retry_first=True,
            random=self._draw,
        )

    def _draw(self) -> float:
        share = self.rng.uniform(LEAST_SHARE, 1.0)
        self.draws.append((trio.current_time(), share))
        return share

    async def __call__(self) -> trio.abc.Stream:
        self.dials.append(trio.current_time())
        self.look()
        return await self.connect()

    def look(self) -> None:
        """Fetch the events so far: 64 are kept, and there are three between two dials."""
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while self.client is not None:
                self.events.append(self.client.events.receive_nowait())

    def check(self, lasted_s: float) -> None:
        """Fail if it dialled sooner, or more often, than the policy allows."""
        self.look()
        if not self.comes_back:
            assert len(self.dials) == 1
            return
        policy, attempt, was_connected, number = self.policy, 0, False, 0
        for event in self.events:
            was_connected |= event.kind == "connected"
            if event.kind != "reconnecting":
                continue
            at, share = self.draws[number]
            is_stable = was_connected and at - self.dials[number] >= policy.stable_after_s
            attempt = 1 if is_stable else attempt + 1
            asked_s = event.error.retry_after_s if isinstance(event.error, Refused) else 0.0
            assert event.attempt == attempt
            assert math.isclose(event.delay_s, share * longest_wait(policy, attempt) + asked_s)
            number += 1
            was_connected = False
            if number < len(self.dials):
                assert math.isclose(self.dials[number] - at, event.delay_s, abs_tol=1e-6)
        # A client that never connected has no events.
        assert number == (len(self.draws) if self.client is not None else 0)
        for attempt, dialled_at in enumerate(self.dials[1:] if self.client is None else (), 1):
            at, share = self.draws[attempt - 1]
            assert dialled_at - at >= share * longest_wait(policy, attempt) - 1e-6
        assert len(self.dials) <= most_dials(policy, lasted_s), "a storm of connects"


def longest_wait(policy: ReconnectPolicy, attempt: int) -> float:
    """Seconds before an attempt, if its random share is 1."""
    return min(policy.first_delay_s * 2.0 ** (attempt - 1), policy.max_delay_s)


def most_dials(policy: ReconnectPolicy, lasted_s: float) -> int:
    """Return the most dials that a client can make in a time, whatever happens to its links.

    Its waits grow, until a link held for ``stable_after_s`` and they begin anew; to have that
    happen behind every n-th dial pays most for some n.
    """
    dials, waited_s, rate = 0, 0.0, 0.0
    while waited_s <= lasted_s:
        dials += 1
        waited_s += LEAST_SHARE * longest_wait(policy, dials)
        rate = max(rate, dials / (policy.stable_after_s + waited_s))
    return dials + math.floor(rate * lasted_s)


def faults_of(rng: random.Random) -> Faults:
    """Return the faults of a new link."""
    kind = rng.random()
    if kind < 0.4:
        return Faults()
    if kind < 0.7:
        return Faults(drop_after_bytes=rng.randint(1, 6000))
    if kind < 0.85:
        return Faults(delay_s=rng.uniform(0, 3), split_bytes=rng.randint(100, 600))
    if kind < 0.95:
        return Faults(buffer_bytes=rng.randint(100, 5000))
    return Faults(is_half_open=True)


def worsen(rng: random.Random, link: Link) -> None:
    """Apply a random fault to a link in use.

    A half-open link stays so until it is cut. Otherwise bytes would be missing in the middle of the
    data, which TCP never does.
    """
    kind = rng.random()
    if kind < 0.25:
        link.cut()
    elif kind < 0.6:
        link.faults = evolve(link.faults, drop_after_bytes=rng.randint(1, 2000))
    elif kind < 0.75:
        link.faults = evolve(link.faults, is_half_open=True)
    else:
        link.faults = evolve(
            link.faults, delay_s=rng.uniform(0, 3), split_bytes=rng.randint(100, 600)
        )


def heal(link: Link) -> None:
    """Restore a link, or close it."""
    if link.faults.is_half_open:
        link.cut()
    link.faults = Faults()
