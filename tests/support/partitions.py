"""The owners of partitions in this process, over logs in memory, to be killed at any step.

A killed owner is a process that goes on without effect: its log stores nothing of it any more, and
nobody reaches it. The next one begins with what the log has.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import trio
from attrs import define, evolve, field

from tests.support.cluster import FakeLog, Memories
from tests.support.fakes import Client, StreamPipe
from tests.support.startup import Embedding, address_of, serve_one
from trio_stomp import ServerHandle, Settings
from trio_stomp.broker import DestinationPolicy
from trio_stomp.cluster import Contact, Gate, InDoubt, LogEntry, ReplicatedStore
from trio_stomp.cluster.routing import Forwarder, Placement, Router, forwards_of, make_core
from trio_stomp.server import Entrance, EventFeed, Server

PLACEMENT = Placement(3)
A, B, C = (
    next(name for number in range(99) if PLACEMENT.of(name := f"/queue/q{number}") == partition)
    for partition in range(3)
)
"""A queue in each partition."""
BEFORE, AFTER = "before", "after"


@define(eq=False)
class Writer:
    """An owner's way to its log, which ends at an entry: BEFORE it is stored, or AFTER, unanswered.

    Args:
      log: The log.
    """

    log: FakeLog
    is_deadly: Callable[[bytes], bool] = lambda _: False
    moment: str = BEFORE
    on_death: Callable[[], None] = lambda: None
    is_dead: bool = False

    @property
    def max_bytes(self) -> int:
        return self.log.max_bytes

    @property
    def now(self) -> float:
        return self.log.now

    def publish(self, payload: bytes, expected: int) -> int:
        dies = not self.is_dead and self.is_deadly(payload)
        if not self.is_dead and (not dies or self.moment == AFTER):
            sequence = self.log.publish(payload, expected)
            if not dies:
                return sequence
        if dies:
            self.is_dead = True
            self.on_death()
        self.log.now += 1  # so that the process ends at some time
        raise InDoubt("no answer")

    def last(self) -> int:
        return self.log.last()

    def read(self, after: int) -> Sequence[LogEntry]:
        if self.is_dead:
            raise InDoubt("no answer")
        return self.log.read(after)


@define(eq=False)
class Owner:
    """The owner of a partition, and the next ones.

    Args:
      number: The partition.
      gates: The ways to all owners.
    """

    number: int
    gates: list[Gate]
    settings: Settings
    log: FakeLog = field(factory=lambda: FakeLog(max_bytes=1 << 20, at_once=50))
    writer: Writer = field(init=False)
    server: Server = field(init=False)
    died: trio.Event = field(factory=trio.Event)
    _life: trio.CancelScope = field(factory=trio.CancelScope)

    @property
    def gate(self) -> Gate:
        return self.gates[self.number]

    def dies(self, moment: str, is_deadly: Callable[[bytes], bool]) -> None:
        """Have it die at an entry that it publishes."""
        token = trio.lowlevel.current_trio_token()
        self.died = trio.Event()
        self.writer.is_deadly, self.writer.moment = is_deadly, moment
        self.writer.on_death = lambda: token.run_sync_soon(self.died.set)

    async def next(self, tasks: trio.Nursery, *, is_reached: bool = True) -> None:
        """Kill the owner, if there is one, and start the next."""
        self.gate.point_to(None)
        self._life.cancel()
        self._life, self.writer = trio.CancelScope(), Writer(self.log)
        contact = await tasks.start(self._live, self._life)
        if is_reached:
            self.gate.point_to(contact)

    async def _live(self, life: trio.CancelScope, task_status: trio.TaskStatus[Contact]) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        contact = Contact(f"n{self.number}", *_split(address_of(listener)), "secret")
        with life:
            async with trio.open_nursery() as tasks:
                await tasks.start(serve_one, self.settings, None, self._embedding(listener))
                forwards = forwards_of(self.server.broker)
                assert forwards is not None
                call_soon = self.server.dispatcher.call_soon
                forwarder = Forwarder(self.number, PLACEMENT, self.gates, forwards, call_soon)
                tasks.start_soon(forwarder.run)
                task_status.started(contact)

    def _embedding(self, listener: trio.SocketListener) -> Embedding:
        store: ReplicatedStore = Memories(log=self.writer).make()  # type: ignore[arg-type]

        def assembled(server: Server) -> None:
            self.server = server

        return Embedding(
            EventFeed(),
            ssl_context=None,
            new_session_id=None,
            store=store,
            entrances=[Entrance(listener, "off", b"secret")],
            on_assembled=assembled,
            make_core=partial(make_core, PLACEMENT, self.number),
        )

    def waits(self, name: str) -> int:
        """Return the number of messages in a queue."""
        queue = {each.name: each for each in self.server.broker.queues}.get(name)
        return 0 if queue is None else queue.message_count

    @property
    def forwards(self) -> int:
        """Return the number of SENDs that others do not have yet."""
        found = forwards_of(self.server.broker)
        assert found is not None
        return len(found.waiting)

    @property
    def asks(self) -> bool:
        """Return whether a client waits until others have its messages."""
        broker = self.server.broker
        return any(client in broker.turns for client in broker.clients)


@define(eq=False)
class Partitions:
    """A node with the owners of its partitions."""

    owners: list[Owner]
    tasks: trio.Nursery
    stack: AsyncExitStack
    address: tuple[str, int]

    async def client(self, version: str = "1.2", **headers: str) -> Client:
        """Return a client with an open session."""
        stream = await trio.open_tcp_stream(*self.address)
        self.stack.push_async_callback(trio.aclose_forcefully, stream)
        client = Client(StreamPipe(stream))
        await client.connect(version, headers)
        return client

    async def replace(self, number: int, *, is_reached: bool = True) -> None:
        """Kill the owner of a partition, and start the next."""
        await self.owners[number].next(self.tasks, is_reached=is_reached)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


@asynccontextmanager
async def partitions(
    policies: Mapping[str, DestinationPolicy] | None = None, **options: object
) -> AsyncGenerator[Partitions, None]:
    """Run a node and the owners of its partitions, for a test that takes less than a minute."""
    settings = evolve(Settings.of(port=0, **options), destinations=tuple((policies or {}).items()))
    gates = [Gate(5) for _ in PLACEMENT.all]
    owners = [Owner(number, gates, settings) for number in PLACEMENT.all]
    with trio.fail_after(60):
        async with AsyncExitStack() as stack, trio.open_nursery() as tasks:
            for owner in owners:
                await owner.next(tasks)

            def join(server: Server) -> None:
                router = server.dispatcher.core
                assert isinstance(router, Router)
                router.owners.join(server.dispatcher, tasks.start_soon)

            route = partial(Router, placement=PLACEMENT, gates=gates)
            embedding = Embedding(EventFeed(), None, None, on_assembled=join, route=route)
            handle: ServerHandle = await tasks.start(serve_one, settings, None, embedding)
            yield Partitions(owners, tasks, stack, _split(handle.addresses[0]))
            tasks.cancel_scope.cancel()
