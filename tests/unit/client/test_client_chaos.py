"""Twenty clients, one broker, and links that break in every way for ten minutes of virtual time.

Producers send with receipts, consumers acknowledge by ``async with message:`` and fail now and
then, readers follow a stream; all of them crash or leave at random and begin anew, and in one
variant the broker is stopped, and killed, and started again on its data. Then the links heal, the
queue drains, and it is counted what became of each message.

A seed tells all that happens, so that what was found once is found again:
``CHAOS_SEEDS=17`` (or ``4-40``) has other seeds run than the three of CI.
"""

import math
import os
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
import trio
from attrs import define, evolve, field
from trio.testing import MockClock

from tests.support.chaos import (
    QUEUE,
    STREAM,
    Dialler,
    WatchedLink,
    Witness,
    body_of,
    faults_of,
    heal,
    key_of,
    most_dials,
    worsen,
)
from tests.support.startup import composition
from trio_stomp import Settings
from trio_stomp.broker import DestinationPolicy
from trio_stomp.client import (
    BrokerError,
    Client,
    ConnectFailed,
    LinkLost,
    Message,
    ReconnectPolicy,
    StaleMessage,
    Subscription,
    open_client,
)
from trio_stomp.server import Server
from trio_stomp.server._committer import Appender
from trio_stomp.store import Turn, append_sound
from trio_stomp.testing import Faults, TestBroker, _broker, open_test_broker

BEGUN_S = 2.0**20
"""When it begins: a clock of the real world has run for days. All that is due here is a sum that
floating-point numbers hold exactly."""
DRAIN_S = 240.0
"""Virtual seconds after which whoever is not done has hung."""
SLOW_S = 5.0
"""Before a broker ends, what is said takes as long as this."""
QUIET_S = 60.0
"""After which the broker has noticed each link that is gone."""
PASSING = {"connect-timeout", "heart-beat-timeout", "shutting-down", "write-stalled"}
"""Codes of ERRORs that clients may get. Any other means a bug in the client or the broker."""
NEVER_DEAD = 1_000_000


def seeds() -> list[int]:
    """Three, or those that are asked for."""
    first, _, last = os.environ.get("CHAOS_SEEDS", "1-3").partition("-")
    return list(range(int(first), int(last or first) + 1))


@define(frozen=True)
class Variant:
    """The clients of a run, and the fate of the broker.

    Args:
      senders: The number of senders to the queue; ``writers``: of those to the stream.
      lives: When each life of the broker ends, in seconds, and whether it is killed then.
      farewell: The farewell to clients when the broker is stopped.
      chaos_s: When the links heal, in seconds.
    """

    senders: int = 0
    consumers: int = 0
    writers: int = 0
    readers: int = 0
    lives: tuple[tuple[float, bool], ...] = ()
    farewell: str = "close"
    chaos_s: float = 600.0


PLAIN, STUBBORN, FRAGILE = KINDS = ("plain", "stubborn", "fragile")
"""Producers: one that gives up messages with an unknown outcome when it dies; one that has ids for
its messages and sends those again in its next life; and one whose client does not reconnect."""

QUEUE_ALONE = Variant(senders=10, consumers=10)
STREAM_ALONE = Variant(writers=10, readers=10)
RESTARTS = Variant(6, 8, 2, 4, ((150.0, False), (300.0, True), (450.0, True)))


class HandlerFailed(Exception):
    """The exception that some handlers raise."""


@define(eq=False)
class Chaos:
    """One run: its actors, and their records.

    Args:
      data_dir: The broker's; None = it is in memory.
    """

    seed: int
    variant: Variant
    data_dir: Path | None
    servers: list[Server]
    witness: Witness
    broker: TestBroker | None = None
    is_healed: bool = False
    is_drained: bool = False
    confirmed: dict[str, bool] = field(factory=dict)
    """Messages whose receipt was returned; whether it said ``duplicate``."""
    offsets: dict[int, str] = field(factory=dict)
    """The offset of each message of the stream, from its receipt."""
    sent_away: int = 0
    """Connections that there were when the broker was stopped."""
    unknown: set[str] = field(factory=set)
    """Messages whose send was given up, or died with its client, or raised."""
    raised: set[str] = field(factory=set)
    """Those of them whose send raised."""
    handled: defaultdict[str, list[str]] = field(factory=lambda: defaultdict(list))
    """The outcome of each handling of a message."""
    first_times: Counter[str] = field(factory=Counter)
    """How often each message was handled without a mark of redelivery."""
    read: dict[str, list[str]] = field(factory=dict)
    """The messages of each reader, in order."""
    length: int = 0
    """The length of the stream at the end."""
    crashes: list[trio.CancelScope] = field(factory=list)
    lives: int = 0
    dials: int = 0
    is_all_sent: trio.Event = field(factory=trio.Event)
    is_over: trio.Event = field(factory=trio.Event)

    def rng(self, name: str) -> random.Random:
        """An actor's own chance."""
        return random.Random(f"{self.seed} {name}")

    # --- links ----------------------------------------------------------------------------

    @asynccontextmanager
    async def client(
        self, name: str, rng: random.Random, *, comes_back: bool = True
    ) -> AsyncIterator[Client]:
        """A client of that name over links with faults; checked at its end, however it ends."""

        async def connect() -> trio.abc.Stream:
            if not self.is_healed:
                if rng.random() < 0.1:
                    await trio.sleep(rng.uniform(0, 15))
                if rng.random() < 0.05:
                    raise OSError("no route to the broker")
            if self.broker is None:
                raise ConnectionRefusedError("the broker is down")
            return await self.broker.connect(name, Faults() if self.is_healed else faults_of(rng))

        begun = trio.current_time()
        dialler = Dialler(rng, connect, comes_back)
        self.lives += 1
        try:
            async with open_client(
                dialler,
                reconnect=dialler.policy if comes_back else None,
                heart_beat=rng.choice([(10.0, 10.0), (5.0, 20.0)]),
                versions=rng.choice([("1.2",), ("1.1", "1.2"), ("1.1",)]),
            ) as client:
                dialler.client = client
                yield client
        finally:
            self.dials += len(dialler.dials)
            dialler.check(trio.current_time() - begun)

    def life(self, rng: random.Random) -> trio.CancelScope:
        """A client's, which ends by a crash, or with the run: once links heal nobody crashes."""
        life = trio.move_on_after(math.inf if self.is_healed else rng.uniform(20, 300))
        self.crashes.append(life)
        return life

    async def trouble(self) -> None:
        """Have links break, until they heal."""
        rng = self.rng("trouble")
        while not self.is_healed:
            await trio.sleep(rng.expovariate(1.0))
            if self.broker is not None and self.broker.links and not self.is_healed:
                worsen(rng, rng.choice(list(self.broker.links.values())))

    def heal(self) -> None:
        """All links are whole from now on."""
        self.is_healed = True
        assert self.broker is not None
        for link in self.broker.links.values():
            heal(link)
        for life in self.crashes:
            life.deadline = math.inf

    async def await_end(self, end_s: float) -> None:
        """Wait until the broker is to end; before, links get slow, so that much is on its way."""
        rng = self.rng(f"end {end_s}")
        await trio.sleep_until(BEGUN_S + end_s - SLOW_S)
        assert self.broker is not None
        for link in self.broker.links.values():
            link.faults = evolve(link.faults, delay_s=rng.uniform(0, SLOW_S))
        await trio.sleep_until(BEGUN_S + end_s)

    # --- producers ------------------------------------------------------------------------

    async def produce(self, name: str, kind: str, destination: str) -> None:
        """Send until the links heal, in several lives."""
        rng = self.rng(name)
        numbers, pending = count(1), list[str]()
        while pending or not self.is_healed:
            try:
                with self.life(rng):
                    async with self.client(name, rng, comes_back=kind != FRAGILE) as client:
                        parting = trio.current_time() + rng.uniform(20, 300)
                        while pending or (not self.is_healed and trio.current_time() < parting):
                            if not pending:
                                several = rng.choice((1, 4))
                                pending = [f"{name}.{next(numbers)}" for _ in range(several)]
                            await self.send_all(client, destination, pending, rng, kind)
                            await trio.sleep(rng.expovariate(1 / 25))
            except (LinkLost, ConnectFailed, BrokerError):
                assert kind == FRAGILE
                await trio.sleep(rng.uniform(1, 5))
            if kind != STUBBORN:
                self.unknown.update(pending)
                pending.clear()

    async def send_all(
        self, client: Client, destination: str, pending: list[str], rng: random.Random, kind: str
    ) -> None:
        """Send from a task each; what is confirmed is pending no more."""
        survives = self.data_dir is not None

        async def send(key: str, patience_s: float) -> None:
            headers = {"x-dedup-id": f"own-{key}"} if kind == STUBBORN else {}
            with trio.move_on_after(patience_s):
                try:
                    receipt = await client.send(
                        destination, body_of(key), headers=headers, persistent=survives
                    )
                except (LinkLost, BrokerError):
                    assert kind == FRAGILE
                    self.raised.add(key)
                    return
                assert key not in self.confirmed
                self.confirmed[key] = receipt.duplicate
                # SENDs without ids of their own that are read at once are a run to the broker: all
                # its receipts tell where the last of them stands.
                if receipt.stream_offset is not None and kind != FRAGILE:
                    self.offsets[receipt.stream_offset] = key
                pending.remove(key)

        async with trio.open_nursery() as nursery:
            for key in tuple(pending):
                is_patient = self.is_healed or rng.random() < 0.8
                nursery.start_soon(send, key, DRAIN_S if is_patient else rng.uniform(0.01, 20))
        if kind != STUBBORN:
            self.unknown.update(pending)
            pending.clear()

    # --- consumers ------------------------------------------------------------------------

    async def consume(self, name: str) -> None:
        """Take from the queue until it is drained, in several lives."""
        rng = self.rng(name)
        while not self.is_drained:
            with self.life(rng):
                async with self.client(name, rng) as client:
                    for _ in range(rng.randint(1, 3)):
                        await self.consume_once(client, rng)

    async def consume_once(self, client: Client, rng: random.Random) -> None:
        """One subscription; what it holds at its end is given back."""
        async with client.subscribe(
            QUEUE,
            ack="client-individual",
            prefetch=rng.choice((1, 3, 20)),
            on_stale=rng.choice(("raise", "ignore")),  # type: ignore[arg-type]
        ) as messages:
            for _ in range(rng.randint(1, 200)):
                message = await self.next_of(messages)
                if message is None:
                    return
                await self.handle(message, rng)

    async def next_of(self, messages: Subscription) -> Message | None:
        """The next message; None = the queue is drained."""
        while not self.is_drained:
            with trio.move_on_after(5):
                return await messages.receive()
        return None

    async def handle(self, message: Message, rng: random.Random) -> None:
        """Do what a message asks for; some handlers raise, some die with their client."""
        key = key_of(message.body)
        past = self.handled[key]
        past.append("died")
        # In whatever order consumers get to them, only one delivery can be the first.
        self.first_times[key] += not message.redelivered
        try:
            async with message:
                await trio.sleep(rng.expovariate(1 / 0.5))
                if rng.random() < 0.1 and not self.is_healed:
                    raise HandlerFailed
                past[-1] = "done"
        except HandlerFailed:
            past[-1] = "raised"
        except StaleMessage:
            past[-1] = "stale"

    # --- readers of the stream ------------------------------------------------------------

    async def follow(self, name: str) -> None:
        """Read the stream from its first message on, in several lives; no gap, nothing twice."""
        rng = self.rng(name)
        seen = self.read[name] = []
        following: int | str = "first"
        while not self.is_drained:
            with self.life(rng):
                async with (
                    self.client(name, rng) as client,
                    client.subscribe(
                        STREAM,
                        offset=following,
                        prefetch=rng.choice((1, 3, 100)),
                        ack=rng.choice(("auto", "client-individual")),  # type: ignore[arg-type]
                    ) as messages,
                ):
                    while (message := await self.next_of(messages)) is not None:
                        async with message:
                            assert message.stream_offset == len(seen)
                            seen.append(key_of(message.body))
                            assert messages.next_offset == len(seen)
                            following = len(seen)
                            if rng.random() < 0.1 and not self.is_healed:
                                await trio.sleep(rng.expovariate(1 / 3))

    # --- the broker, and the run ----------------------------------------------------------

    async def run(self) -> None:
        """All of it: chaos, healing, draining, and a look at what is left at the broker."""
        ends = [*self.variant.lives, (self.variant.chaos_s, False)]
        async with trio.open_nursery() as nursery:
            data_dir = self.data_dir
            for number, (end, is_kill) in enumerate(ends, 1):
                async with open_test_broker(self.settings(data_dir)) as self.broker:
                    if number == 1:
                        await trio.testing.wait_all_tasks_blocked()
                        before = trio.lowlevel.current_statistics().tasks_living
                        nursery.start_soon(self.trouble)
                        nursery.start_soon(self.act)
                    await self.await_end(end)
                    if number == len(ends):
                        await self.finish(before)
                    elif is_kill:
                        data_dir = self.kill(data_dir)
                    else:
                        self.sent_away += len(self.servers[-1].connections)
                        await self.broker.stop()
                        await trio.sleep(20)
                self.broker = None
                await trio.sleep(5)

    def settings(self, data_dir: Path | None) -> Settings:
        """Return the broker's settings. No number of redeliveries dead-letters a message."""
        options: dict[str, object] = {"farewell": self.variant.farewell}
        if data_dir is not None:
            options |= {"data_dir": str(data_dir), "segment_bytes": 65536}
        policy = DestinationPolicy(max_redeliveries=NEVER_DEAD)
        stream = DestinationPolicy(stream=True)
        return evolve(
            Settings.of(diag_interval_s=0.0, monitor_interval_s=0.0, **options),
            destinations=((QUEUE, policy), (STREAM, stream)),
        )

    def kill(self, data_dir: Path | None) -> Path:
        """The broker is no more: the next one finds what it had written at this moment."""
        assert data_dir is not None
        left = data_dir.with_name(data_dir.name + "+")
        shutil.copytree(data_dir, left)
        self.witness.kills.append(trio.current_time())
        return left

    async def act(self) -> None:
        """Have all actors act."""
        variant = self.variant
        async with trio.open_nursery() as recipients:
            for number in range(variant.consumers):
                recipients.start_soon(self.consume, f"consumer{number}")
            for number in range(variant.readers):
                recipients.start_soon(self.follow, f"reader{number}")
            async with trio.open_nursery() as producers:
                for number in range(variant.senders):
                    kind = KINDS[number % len(KINDS)]
                    producers.start_soon(self.produce, f"sender{number}", kind, QUEUE)
                for number in range(variant.writers):
                    kind = KINDS[number % len(KINDS)]
                    producers.start_soon(self.produce, f"writer{number}", kind, STREAM)
            self.is_all_sent.set()
        self.is_over.set()

    async def finish(self, tasks_before: int) -> None:
        """Heal, drain, and leave."""
        assert self.broker is not None
        self.heal()
        with trio.fail_after(DRAIN_S):
            await self.is_all_sent.wait()
            if self.variant.writers:
                async with self.broker.client() as client:
                    result = await client.request(f"/stream{STREAM}", timeout_s=5)
                    self.length = int(result.headers["x-stream-next"])
            while not self.is_all_taken():  # noqa: ASYNC110 - an empty queue causes no event
                await trio.sleep(1)
            self.is_drained = True
            await self.is_over.wait()
        await trio.sleep(QUIET_S)
        assert trio.lowlevel.current_statistics().tasks_living == tasks_before
        self.check_nothing_left()

    def is_all_taken(self) -> bool:
        """Return whether the queue is empty and all readers have reached the end."""
        held = sum(queue.message_count for queue in self.servers[-1].broker.queues)
        return not held and all(len(seen) == self.length for seen in self.read.values())

    def check_nothing_left(self) -> None:
        """No connection, subscription or byte is left at the broker."""
        server = self.servers[-1]
        broker = server.broker
        assert (server.connections, server.admission.admitted) == ({}, 0)
        assert (len(broker.clients), len(broker.subscriptions)) == (0, 0)
        assert (server.inbox.frames, server.inbox.bytes) == (0, 0)
        assert [
            queue.name for queue in broker.queues if queue.message_count or queue.consumers
        ] == []
        assert set(broker.queues.dead_letter_counts.failed.values()) == {0}

    # --- the verdict ----------------------------------------------------------------------

    def check(self) -> None:
        """Check the outcome of each message by its counts."""
        witness, kills = self.witness, self.witness.kills
        assert witness.faults() == []
        assert witness.errors.keys() <= PASSING
        known = self.confirmed.keys()
        assert not known & self.unknown
        arrived = witness.sends.keys()
        assert arrived <= known | self.unknown
        assert known <= arrived
        in_queue = {key for key in arrived if key.startswith("sender")}
        handled = self.handled.keys()
        assert known & in_queue <= handled <= in_queue, "a confirmed message was lost"
        if not kills:
            assert handled == in_queue
            assert witness.acks == len(in_queue)
            if not self.variant.readers:
                assert self.servers[0].broker.acknowledger.counters.acked == len(in_queue)
            assert max(self.first_times.values(), default=0) <= 1
        for seen in self.read.values():
            self.check_stream(seen)

    def check_stream(self, seen: list[str]) -> None:
        """A reader has read each message once, where its receipt said that it stands."""
        assert len(set(seen)) == len(seen) == self.length
        assert all(seen[offset] == key for offset, key in self.offsets.items())
        in_stream = {key for key in self.witness.sends if key.startswith("writer")}
        assert self.confirmed.keys() & in_stream <= set(seen) <= in_stream
        if not self.witness.kills:
            assert set(seen) == in_stream

    def figures(self) -> dict[str, int]:
        """Return the figures of the run, the same for the same seed."""
        witness = self.witness
        outcomes = Counter(f"handled: {each}" for past in self.handled.values() for each in past)
        return {
            "confirmed": len(self.confirmed),
            "unknown": len(self.unknown),
            "raised": len(self.raised),
            "unknown and there": len(self.unknown & witness.sends.keys()),
            "resent": sum(witness.sends.values()) - len(witness.sends),
            "told as duplicates": sum(self.confirmed.values()),
            "deliveries": sum(map(len, witness.handed.values())),
            "acks": witness.acks,
            "nacks": witness.nacks,
            **dict(sorted(outcomes.items())),
            "clients": self.lives,
            "dials": self.dials,
            "links": witness.ends,
            "torn": witness.torn,
            "sent away": self.sent_away,
            **dict(sorted(witness.errors.items())),
        }


# --- the tests --------------------------------------------------------------------------------


def run_chaos(
    seed: int, variant: Variant, monkeypatch: pytest.MonkeyPatch, data_dir: Path | None = None
) -> dict[str, int]:
    """Run, and judge. What chance there is in Trio comes from the seed too."""
    witness, servers = Witness(), list[Server]()
    assemble = composition._assemble

    def note_server(*args: object) -> Server:
        servers.append(assemble(*args))  # type: ignore[arg-type]
        return servers[-1]

    def watched(name: str, faults: Faults) -> WatchedLink:
        return WatchedLink(name, faults, witness=witness)

    monkeypatch.setattr(composition, "_assemble", note_server)
    monkeypatch.setattr(_broker, "Link", watched)
    monkeypatch.setattr(trio._core._run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
    monkeypatch.setattr(trio._core._run, "_r", random.Random(seed))
    chaos = Chaos(seed, variant, data_dir, servers, witness)
    clock = MockClock(autojump_threshold=0)
    clock.jump(BEGUN_S)
    trio.run(chaos.run, clock=clock)
    print(f"seed {seed}: {chaos.figures()}")
    chaos.check()
    return chaos.figures()


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store works in the loop, and takes virtual time instead of real: the clock waits for it.

    Nothing is synced: no power is cut here.
    """

    async def run_sync(function: Callable[..., object], *args: object, **_: object) -> object:
        await trio.lowlevel.checkpoint()
        return function(*args)

    async def append(appender: Appender, turns: Sequence[Turn], expected: int) -> object:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.02)
        return append_sound(appender.store, turns, expected)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)
    monkeypatch.setattr(Appender, "append", append)
    monkeypatch.setattr(os, "fdatasync", lambda handle: None)
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.mark.parametrize("seed", seeds())
def test_nothing_acknowledged_is_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = run_chaos(seed, QUEUE_ALONE, monkeypatch)
    # Or there was not chaos enough for this to prove anything.
    for name in ("unknown", "raised", "resent", "told as duplicates", "torn", "nacks"):
        assert figures[name] > 3, name
    assert figures["deliveries"] > figures["acks"] + figures["nacks"] > figures["confirmed"] > 300
    assert figures["dials"] > figures["links"] > 300


@pytest.mark.parametrize("seed", seeds())
def test_readers_of_a_stream_miss_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = run_chaos(seed, STREAM_ALONE, monkeypatch)
    for name in ("unknown", "raised", "resent", "told as duplicates", "torn"):
        assert figures[name] > 3, name
    assert figures["confirmed"] > 300
    assert figures["dials"] > figures["links"] > 300


@pytest.mark.usefixtures("slow_disk")
@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("farewell", ["close", "error"])
def test_the_broker_ends_and_comes_back(
    farewell: str, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variant = evolve(RESTARTS, farewell=farewell)
    figures = run_chaos(seed, variant, monkeypatch, tmp_path / "data")
    for name in ("unknown", "raised", "resent", "told as duplicates", "torn", "sent away"):
        assert figures[name] > 3, name
    result = figures.get("shutting-down", 0)
    assert result > 3 if farewell == "error" else not result
    assert figures["confirmed"] > 200


def test_a_seed_tells_all_that_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    short = evolve(QUEUE_ALONE, chaos_s=60.0)
    assert run_chaos(1, short, monkeypatch) == run_chaos(1, short, monkeypatch)


def test_number_of_connection_attempts_is_bounded() -> None:
    policy = ReconnectPolicy(first_delay_s=1.0, max_delay_s=4.0, stable_after_s=10.0)
    # Waits of at least 0.5, 1, 2, 2, … s; or one of 0.5 s behind each 10 s that a link held.
    assert [most_dials(policy, each) for each in (0.0, 0.4, 0.5, 1.5, 3.5)] == [1, 1, 2, 3, 4]
    assert most_dials(policy, 10.5) >= 8
    steady = ReconnectPolicy(first_delay_s=20.0, max_delay_s=20.0, stable_after_s=10.0)
    assert 1 + 100 <= most_dials(steady, 1000.0) <= 1 + 2 * 100
