"""The server: its tasks, in the order in which they start and end.

    services     dispatcher (shielded: it ends when the inbox is closed and empty), watchdog
    └─ producers    tasks that fill the inbox: connections, ticker
       └─ accepting    the listeners

They end from the inside out: no more connections, then every connection's farewell, then the rest
of the inbox, then the watchdog.
"""

import contextvars
import functools
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

import trio
from attrs import define, field

from trio_stomp.base import CloseReason, Cluster, Identity, ProtocolError, RemoteError
from trio_stomp.broker import (
    AccessRules,
    Action,
    Broker,
    Census,
    Client,
    Delivery,
    MemoryBudget,
    internal_error,
)
from trio_stomp.protocol import Codecs, ServerSession
from trio_stomp.security import Accounts, Authenticator, networks_of
from trio_stomp.server._accepting import Door, accept_from
from trio_stomp.server._admission import Admission
from trio_stomp.server._alarm import Alarm
from trio_stomp.server._clock import Clock
from trio_stomp.server._committer import StoreCommitter
from trio_stomp.server._dispatcher import Dispatcher, FrameHandler
from trio_stomp.server._handle import Entrance, ServerHandle, check_session_id, refuse
from trio_stomp.server._inner import is_given_back
from trio_stomp.server._limits import ERROR, ServerLimits
from trio_stomp.server._periodic import Periodic, Relief
from trio_stomp.server._watchdog import Watchdog
from trio_stomp.server.connection import Connection, ConnectionShared, Pages, WebSocketReads
from trio_stomp.server.io import Bugs, Control, Inbox, Outbox, OutboxShared
from trio_stomp.store import StoreError
from trio_stomp.transport import ProxyNetworks, Relayed, SlicedPoll, TlsBox, Wire

if TYPE_CHECKING:
    from trio_stomp.store import Store

T = TypeVar("T")

logger = logging.getLogger("trio_stomp")

PACE_S = 0.1
"""The interval at which a drain ends connections."""
RETRY_MS = 1000
"""The advice to clients of a broker that stops."""


class Diagnostics(Protocol):
    """The interface to the diagnostics floor, which the dispatcher calls within its turns."""

    interval_s: float

    def begin(self) -> None:
        """Start diagnostics of the recovered broker."""

    def tick(self, now: float) -> None:
        """Publish the statistics of the last interval to their subscribers."""

    def end_turn(self, now: float) -> None:
        """Publish the events of this turn."""


@define(eq=False, repr=False)
class Traffic:
    """Sums of the counters of all connections, ended ones included, so that none decreases."""

    opened: dict[str, int] = field(factory=dict)
    """Connections whose CONNECT was read, by transport (``tcp``, ``tls``, ``ws``, ``wss``)."""
    frames_in: int = 0
    frames_out: int = 0
    """MESSAGEs."""
    bytes_in: int = 0
    bytes_out: int = 0
    heartbeats_missed: int = 0

    def add(self, connection: Connection) -> None:
        """Add the counters of one connection."""
        outbox = connection.outbox
        self.frames_in += connection.frames_in
        self.frames_out += outbox.frames_out
        self.bytes_in += connection.bytes_in
        self.bytes_out += outbox.bytes_out
        self.heartbeats_missed += connection.heartbeats_missed
        if connection.is_open:
            transport = connection.client.transport
            self.opened[transport] = self.opened.get(transport, 0) + 1

    def copy(self) -> "Traffic":
        """Return a copy to which more can be added."""
        return Traffic(
            dict(self.opened),
            frames_in=self.frames_in,
            frames_out=self.frames_out,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            heartbeats_missed=self.heartbeats_missed,
        )


@define(eq=False, repr=False)
class Server:
    """All tasks of a broker, and their shared objects.

    Args:
      limits: Bounds of connections, queues and memory.
      codecs: Makes decoders and encoders for the sessions.
      boot_number: The first session id, above all ids of earlier starts of this broker.
      pages: The pages that answer plain HTTP requests.
      authenticator: Establishes the identity of clients.
      tls: Encrypts connections; None = there is no certificate.
      proxies: The addresses whose connections begin with a PROXY header.
    """

    limits: ServerLimits
    codecs: Codecs
    memory: MemoryBudget
    boot_number: int
    pages: Pages
    authenticator: Authenticator
    tls: TlsBox | None = None
    proxies: ProxyNetworks | None = None
    broker: Broker = field(init=False)
    diagnostics: Diagnostics = field(init=False)
    inbox: Inbox = field(init=False)
    outboxes: OutboxShared = field(init=False)
    dispatcher: Dispatcher = field(init=False)
    committer: StoreCommitter | None = None
    bugs: Bugs = field(factory=Bugs)
    watchdog: Watchdog = field(factory=Watchdog)
    alarm: Alarm = field(init=False)
    door: Door = field(init=False)
    admission: Admission = field(init=False)
    connections: dict[Connection, None] = field(factory=dict)
    ended: dict[CloseReason, int] = field(factory=lambda: dict.fromkeys(CloseReason, 0))
    """Ended connections by reason. Their traffic is added to ``past``."""
    past: Traffic = field(factory=Traffic)
    accepted: int = 0
    clock: Clock = field(factory=Clock)
    new_session_id: Callable[[], str] | None = None
    """Returns ids chosen by the embedding program; None = they are counted from ``boot_number``."""
    websocket_reads: WebSocketReads = field(factory=WebSocketReads)
    cluster: Cluster | None = None
    """The cluster that this broker owns."""
    _poll: SlicedPoll = field(factory=SlicedPoll)
    _shared: ConnectionShared = field(init=False)
    _relief: Relief = field(init=False)
    _is_stopping: bool = False

    def __attrs_post_init__(self) -> None:
        limits = self.limits
        self.inbox = Inbox(limits)
        self.door = Door(limits, self.proxies, self._poll, self._count_stranger, self.bugs)
        self.admission = self.door.admission
        self.outboxes = OutboxShared(
            self.memory,
            limits.max_outbox_bytes,
            limits.websocket_frames,
            self.on_unsent,
            self.clock,
        )
        self.alarm = Alarm(self._ring)

    def assemble(
        self,
        broker: Broker,
        diagnostics: Diagnostics,
        store: "Store | None" = None,
        core: FrameHandler | None = None,
    ) -> None:
        """Add the core and the diagnostics, which require an existing server.

        Args:
          broker: The core.
          diagnostics: The diagnostics.
          store: The recovered store, which is closed at the end; None = there is none.
          core: What frames of clients go to; None = the broker.
        """
        self.broker = broker
        self.diagnostics = diagnostics
        self.dispatcher = Dispatcher(
            broker,
            core or broker,
            inbox=self.inbox,
            outboxes=self.outboxes,
            end_turn=diagnostics.end_turn,
            alarm=self.alarm,
            clock=self.clock,
            bugs=self.bugs,
        )
        if store is not None and broker.log is not None:
            self.committer = self.dispatcher.committer = StoreCommitter(
                store, broker.log.committed, broker, self.dispatcher.call_soon, bugs=self.bugs
            )
        self._relief = Relief(self.connections, broker, self.outboxes, self.dispatcher)
        self._shared = ConnectionShared(
            self.limits,
            inbox=self.inbox,
            bugs=self.bugs,
            memory=self.memory,
            watchdog=self.watchdog,
            pages=self.pages,
            resume=self.dispatcher.resume,
            relieve=self._relief.relieve,
            report_late=self._report_late,
            report_failed_login=self._report_failed_login,
            authenticator=self.authenticator,
            tls=self.tls,
            rules=lambda: self.broker.authorizer.rules,
            generation=lambda: self.broker.authorizer.changes,
            websocket_reads=self.websocket_reads,
        )

    async def run(
        self, entrances: Sequence[Entrance], handle: ServerHandle, started: Callable[[], None]
    ) -> None:
        """Serve until ``handle`` is stopped, then shut down in the order of the module's docstring.

        Checkpoint: always. Cancel: connections end without a farewell; received input is still
        dispatched.
        """
        try:
            await self._run(entrances, handle, started)
        finally:
            # The acceptors close them, but an early cancellation may prevent that.
            with trio.CancelScope(shield=True):
                for entrance in entrances:
                    await entrance.listener.aclose()

    async def _run(
        self, entrances: Sequence[Entrance], handle: ServerHandle, started: Callable[[], None]
    ) -> None:
        async with trio.open_nursery() as services:
            services.start_soon(self._dispatch, services.cancel_scope)
            services.start_soon(self.watchdog.run)
            services.start_soon(self.alarm.run)
            services.start_soon(self._poll.run)
            try:
                async with trio.open_nursery() as producers:
                    handle.on_connect = self._joining(producers)
                    try:
                        await self._accept_until_stopped(producers, entrances, handle, started)
                    finally:
                        handle.on_connect = refuse
                    grace_s = handle.grace_s
                    if grace_s is None:
                        grace_s = self.limits.shutdown_grace_s
                    producers.cancel_scope.deadline = trio.current_time() + grace_s
                    self._retire_connections()
            finally:
                self.inbox.close()

    def _joining(self, producers: trio.Nursery) -> Callable[[trio.abc.Stream], None]:
        """Return the function by which the program adds connections without a listener."""
        # A task runs in its starter's context, which must be the broker's here.
        context = contextvars.copy_context()
        serve = functools.partial(self.door.let_in, self._serve_wire, "off", b"", None)

        def join(stream: trio.abc.Stream) -> None:
            context.run(producers.start_soon, serve, stream)

        return join

    async def _accept_until_stopped(
        self,
        producers: trio.Nursery,
        entrances: Sequence[Entrance],
        handle: ServerHandle,
        started: Callable[[], None],
    ) -> None:
        async with trio.open_nursery() as accepting:
            periodic = Periodic(
                self.inbox,
                broker=self.broker,
                clock=self.clock,
                watchdog=self.watchdog,
                connections=self.connections,
                relief=self._relief,
            )
            periodic.start(accepting, self.diagnostics.tick, self.diagnostics.interval_s)
            for entrance in entrances:
                serve = functools.partial(
                    self.door.let_in,
                    self._serve_wire,
                    entrance.tls,
                    entrance.secret,
                    entrance.links,
                )
                accepting.start_soon(accept_from, entrance.listener, serve, producers)
            started()
            await handle.wait_stopping()
            # The port stays open during the drain, so that load balancers learn that the broker is
            # not ready.
            self._is_stopping = True
            await drain(self.connections, self.limits.drain_s, self._retire)
            accepting.cancel_scope.cancel()

    async def _dispatch(self, services: trio.CancelScope) -> None:
        try:
            with trio.CancelScope(shield=True):
                async with self._committing():
                    await self.dispatcher.run()
        finally:
            self.inbox.abandon()
        services.cancel()

    @asynccontextmanager
    async def _committing(self) -> AsyncIterator[None]:
        """Run the committer, if there is one, during the block, and then close the store."""
        if self.committer is None:
            yield
            return
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.committer.run)
                yield
                nursery.cancel_scope.cancel()
        finally:
            await self._close(self.committer.store)

    async def _close(self, store: "Store") -> None:
        try:
            await trio.to_thread.run_sync(store.close)
        except StoreError as error:
            # All committed data is safe, so shut down as usual.
            logger.error("the store could not be closed: %s", error)

    def _count_stranger(self) -> None:
        self.ended[CloseReason.BAD_PROXY_HEADER] += 1

    async def _serve_wire(
        self, wire: Wire, refusal: RemoteError | None, introduced: Relayed
    ) -> None:
        self.accepted += 1
        connection = self._connect(wire, refusal)
        connection.early, connection.tls = introduced.early, introduced.tls
        connection.link.vouch(introduced.voucher)
        self.connections[connection] = None
        if self._is_stopping:
            connection.refusal = connection.refusal or stopping()
        try:
            await connection.run()
        finally:
            del self.connections[connection]
            self._shared.active_connections -= bool(connection.bytes_in)
            self._shared.websockets -= connection.websocket is not None
            self.ended[connection.reason] += 1
            self.past.add(connection)

    def _connect(self, wire: Wire, refusal: RemoteError | None) -> Connection:
        session_id = f"{self.boot_number + self.accepted}"
        if self.new_session_id is not None:
            try:
                session_id = check_session_id(self.new_session_id())
            except Exception:
                # Do not fall back to a counted id: it can be guessed, which the program may not
                # allow.
                logger.exception("%s is refused: new_session_id failed", wire.remote)
                refusal = refusal or internal_error()
        # Access rules, if any, decide who may use the command DIAG.
        may_ask = wire.is_loopback or self.broker.authorizer.rules is not None
        session = ServerSession(self.codecs, may_ask=may_ask)
        connection = Connection.over(wire, session, self._shared, trio.current_time())
        connection.refusal = refusal
        outbox = Outbox(
            self.outboxes,
            wire=wire,
            on_blocked=connection.on_blocked,
            on_close=connection.lifecycle.on_close,
            on_room=connection.on_room,
            on_pause=connection.reader.pause,
        )
        client = Client(session_id, outbox, wire.remote)
        client.network = "" if wire.is_loopback else networks_of(wire.remote)[-1]
        session.quota_of = client.charged
        connection.join(client, outbox)
        self.outboxes.touched.add(outbox)
        return connection

    def _retire_connections(self) -> None:
        self._is_stopping = True
        for connection in self.connections:
            self._retire(connection)

    def _retire(self, connection: Connection) -> None:
        if connection.is_open and self.limits.farewell == ERROR:
            connection.end(stopping())
        else:
            connection.lifecycle.on_close(CloseReason.SHUTTING_DOWN)

    async def _ring(self) -> None:
        with suppress(trio.ClosedResourceError):
            await self.inbox.put(Control(self.broker.tick))

    def on_unsent(self, delivery: Delivery) -> None:
        """Give messages back to their broker that expired before they were written."""
        if not is_given_back(delivery, self.outboxes):
            self.dispatcher.call_soon(lambda now: self.broker.unsent(delivery, now))

    def _report_late(self, client: Client, outbox: Outbox, late_s: float) -> None:
        self.outboxes.touched.add(outbox)

        def record(_: float) -> None:
            self.broker.events.record(
                "heartbeat", client, reason="late", detail=f"late_ms:{late_s * 1000:.0f}"
            )

        self.dispatcher.call_soon(record)

    def _report_failed_login(self, client: Client, code: str) -> None:
        def record(_: float) -> None:
            self.broker.events.record("auth", client, reason=code)

        self.dispatcher.call_soon(record)

    async def reconfigure(
        self,
        accounts: Accounts,
        rules: AccessRules | None,
        apply: Callable[[], None],
        revoked: frozenset[str] = frozenset(),
    ) -> None:
        """Apply new settings, accounts and rules in one turn of the dispatcher.

        Args:
          accounts: The new accounts.
          rules: The new rules; None = everything is allowed.
          apply: Makes the other changes, in that turn.
          revoked: Keys of certificates and authorities whose connections must end.

        Checkpoint: always. Cancel: the change is made nevertheless.
        """

        def turn(now: float) -> None:
            self.authenticator.accounts = accounts
            apply()
            self.codecs.judges_early = rules is not None
            self.codecs.forget_heads()  # they were checked against the former limits
            self.broker.use_rules(rules, self.authenticator.knows, now)
            for connection in self.connections if revoked else ():
                if not revoked.isdisjoint(connection.link.certificate_keys):
                    self._revoke(connection, now)

        await self.inbox.put(Control(turn))

    def _revoke(self, connection: Connection, now: float) -> None:
        """End a connection whose certificate was revoked after the handshake."""
        error = ProtocolError(
            "authentication-failed",
            "the certificate of this connection was revoked",
            reason=CloseReason.AUTHENTICATION_FAILED,
        )
        if connection.is_open:
            self.broker.refuse(connection.client, error, now)
        else:
            connection.lifecycle.on_close(error.reason)

    async def act(
        self,
        identity: Identity,
        rights: Sequence[tuple[Action, str]],
        action: Callable[[float], T],
    ) -> T:
        """Call ``action`` in the next turn for a user who has the rights in that turn.

        Raises:
          ProtocolError: The user may not do it any more.

        Checkpoint: always. Cancel: the call is made nevertheless.
        """

        def judged(now: float) -> T:
            self.broker.authorizer.check_operator(identity, rights)
            return action(now)

        return await self.dispatcher.call(judged)

    def why_unready(self) -> str:
        """Return the reason why the broker is not ready for clients, or ""."""
        if self._is_stopping:
            return "the broker is stopping"
        if self.bugs.broken:
            return self.bugs.broken
        if self.committer is not None and self.committer.error:
            return self.committer.error
        return self.cluster.doubts() if self.cluster is not None else ""

    def census(self) -> Census:
        """Return the figures that only the server has, for the core's ``TakesCensus``.

        The time depends on the number of connections with waiting output, not on all connections.
        """
        shared = self._shared
        held = [each.websocket for each in shared.holding if each.websocket is not None]
        return Census(
            clients=shared.active_connections,
            websockets=shared.websockets,
            input_queue_size=self.inbox.frames,
            output_queue_size=sum([each.waiting_messages for each in self.outboxes.blocked]),
            ws_allocated=sum([each.statistics().buffered_bytes for each in held]),
            ws_hits=self.websocket_reads.hits,
            ws_misses=self.websocket_reads.misses,
        )


def stopping(retry_ms: int = RETRY_MS) -> ProtocolError:
    """Return the error for clients that connect or remain while the broker stops.

    Args:
      retry_ms: When the client should connect again, here or elsewhere.
    """
    return ProtocolError(
        "shutting-down",
        "the broker is stopping; connect again later",
        reason=CloseReason.SHUTTING_DOWN,
        headers=(("retry-after-ms", str(retry_ms)),),
    )


async def drain(
    connections: Mapping[Connection, None],
    duration_s: float,
    retire: Callable[[Connection], None],
) -> None:
    """End connections at an even pace, until ``duration_s`` is over or none is left.

    Ending all at once would flood the broker that takes over with connections.

    Busy clients stay until they are done: those with an open transaction, unacknowledged messages
    or a backlog.

    Checkpoint: unless ``duration_s`` is 0. Cancel: the other connections stay.
    """
    deadline, many = trio.current_time() + duration_s, len(connections)
    while connections and (left_s := deadline - trio.current_time()) > 0:
        await trio.sleep(min(PACE_S, left_s))
        may_stay = many * (left_s - PACE_S) / duration_s
        idle = [each for each in connections if each.is_open and not _is_busy(each)]
        for connection in idle[: math.ceil(len(connections) - may_stay)]:
            retire(connection)


def _is_busy(connection: Connection) -> bool:
    transactions = connection.session.transactions
    if transactions is not None and transactions.are_open:
        return True
    if connection.outbox.waiting_bytes:
        return True
    return any(
        each.consumer is not None and each.consumer.unacked
        for each in connection.client.subscriptions.values()
    )
