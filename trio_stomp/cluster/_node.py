"""A node of a cluster, for one partition: a standby that relays clients, or the owner.

    Node.run
    ├─ leases     take, renew and watch the lease of the log
    ├─ orders     answer questions of other nodes and tools, hand over when told to
    └─ one of
       ├─ standby    follow the log or watch the lease, relay clients to the owner
       └─ owner      run the broker over the replicated store

The lease decides which node tries. Safety comes from the log, which stores nothing for a former
owner.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from zlib import crc32

import trio
from attrs import define, evolve, field

from trio_stomp.base import ClusterFigures, NodeFigures
from trio_stomp.cluster._commit_log import CommitLog
from trio_stomp.cluster._dial import Contact
from trio_stomp.cluster._engine import ClusterNames, open_log
from trio_stomp.cluster._gate import Gate
from trio_stomp.cluster._local_state import LocalState, digest_at
from trio_stomp.cluster._orders import (
    ANSWERS_S,
    DRAINING,
    OWNER,
    READING,
    STANDBY,
    WATCHING,
    Digest,
    Orders,
    Report,
    ask_nodes,
    figures_of,
)
from trio_stomp.cluster._replicated_store import ReplicatedStore
from trio_stomp.cluster._snapshot import Snapshot, write_snapshot
from trio_stomp.cluster._standby import Standby
from trio_stomp.cluster.leases import (
    Followers,
    Lease,
    LeaseKeeper,
    LeaseOptions,
    keep_leases,
    lease_time,
)
from trio_stomp.nats import JetStream, NatsError
from trio_stomp.store import Progress, StoreError, StoreUnavailable
from trio_stomp.store.tools import View

logger = logging.getLogger("trio_stomp")

RANKS = 5
CHECK_S = 10.0
"""The interval at which the size of the log is checked."""
SURVEY_S = 2.0
"""The interval at which the owner asks all nodes for their state, and chooses its followers."""
LOG_BYTES = 64 * 1024 * 1024
"""A log up to this size is not shortened."""
GROWTH = 2
"""A larger log is shortened when it exceeds the last snapshot by this factor."""
PATIENCE = 1.5
"""The owner shortens the log only at this multiple of the size at which a standby does."""
HAND_OVER_S = 2.0
"""Maximum time to write that the lease is given up."""
RETRY_S = 0.5

WILL_LEAD = STANDBY, READING, WATCHING
"""The roles of nodes to which the owner can hand over, at once or when they have the state."""

Serve = Callable[[ReplicatedStore], Awaitable[None]]
Accept = Callable[[Gate, trio.Nursery], Awaitable[None]]


@define(eq=False, repr=False)
class Node:
    """A node of a cluster, for one partition.

    Args:
      names: The names of the streams and subjects.
      contact: The address at which other nodes reach this one when it is the owner. Each term has
        a new secret.
      local: The local state.
      gate: Relays clients while another node is the owner.
      accept: Accepts clients for the gate until it is cancelled. They stay in the nursery.
      serve: Serves clients as the owner, until it is stopped (see ``stop_serving``) or cancelled.
      stop_serving: Makes ``serve`` end in order.
      address: The address at which clients reach this node, for people to read.
      take_view: Returns a view of the local state, which may be in use.
      progress: Called with the progress of reading the local state.
      on_renewed: Called when the lease was taken or lost, or renewed after it had expired.
      stop_s: How long ``serve`` may take to end in order.
      settings: Returns digests of the files and options that must be the same on all nodes.
      followers: Chooses the nodes that follow the log while this node is the owner.
      router: The address and secret of the node's router, for other nodes; "" = it has none.
    """

    jetstream: JetStream
    names: ClusterNames
    contact: Contact
    local: LocalState
    take_view: Callable[[], View]
    gate: Gate
    accept: Accept
    serve: Serve
    stop_serving: Callable[[], None]
    address: str
    version: str
    progress: Progress
    lease: Lease
    on_renewed: Callable[[], None]
    stop_s: float
    settings: Callable[[], Mapping[str, str]]
    followers: Followers
    router: str = ""
    nodes: Sequence[NodeFigures] = ()
    """All nodes, as they reported to this one when it was last the owner."""
    awaited_heir: str = ""
    """The node to which this one hands over once it has the state; "" = none."""
    _standby: Standby = field(init=False)
    _keeper: LeaseKeeper = field(init=False)
    _tasks: trio.Nursery = field(init=False)
    _changed: trio.Event = field(factory=trio.Event)
    _term: trio.CancelScope | None = None
    """The cancel scope of this node's term as the owner."""
    _store: ReplicatedStore | None = None
    _heir: str = ""
    _is_stopping: bool = False
    _is_leaving: bool = False
    """This node takes no lease any more, since it stops or drains."""

    def __attrs_post_init__(self) -> None:
        self._standby = Standby(
            self.jetstream,
            self.names,
            self.local,
            self.lease,
            progress=self.progress,
            may_lead=lambda: not self._is_leaving,
            wake=lambda: self._keeper.wake(),
        )

    @property
    def is_owner(self) -> bool:
        """Return whether this node owns the log, as far as it can know by its own clock."""
        return self.lease.is_held(lease_time())

    @property
    def owner(self) -> str:
        """Return the node that has the lease as far as this one knows, or ""."""
        return self.lease.claim.holder

    def stop(self) -> None:
        """Leave the cluster in order, and make ``run`` return."""
        self._is_stopping = self._is_leaving = True
        self.lease.is_candidate = False
        self._leave("")

    def _leave(self, heir: str) -> None:
        """End this node's term as the owner in order, and hand the lease over."""
        self._heir = heir
        if self._term is not None:
            assert self._store is not None
            self._store.is_orderly = True
            self._tasks.start_soon(self._give_up_late, self._store)
            self.stop_serving()
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def run(self) -> None:
        """Be a node until ``stop`` is called.

        Raises:
          StoreError: The local state cannot be used.

        Checkpoint: always. Cancel: the broker stops at once; the lease expires.
        """
        orders = Orders(
            self.jetstream.client,
            report=self.report,
            move=self.move,
            drain=self.drain,
            take_digest=self._take_digest,
        )
        subjects = [self.names.node(self.contact.node), self.names.nodes]
        leases = {self.names.lease_subject: self.lease}
        try:
            async with (
                trio.open_nursery() as self._tasks,
                keep_leases(
                    self.jetstream,
                    self.names.leases,
                    leases,
                    contact=str(self.contact),
                    on_change=self._follow_lease,
                ) as self._keeper,
            ):
                self._tasks.start_soon(orders.answer, subjects)
                self._tasks.start_soon(self._give_up_when_cancelled)
                self._tasks.start_soon(self._survey_for_ever)
                self._tasks.start_soon(self._check_for_ever)
                self._tasks.start_soon(self.gate.watch)
                while not self._is_stopping:
                    await self._stand_by()
                    if self.is_owner:
                        await (self._hand_over() if self._is_leaving else self._own())
                self._tasks.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self.local.close)

    # --- who owns the log -------------------------------------------------------------------------

    def _follow_lease(self) -> None:
        claim = self.lease.claim
        # Even to this node: clients may wait at the gate since before it became the owner.
        self.gate.point_to(Contact.parse(claim.holder, claim.contact))
        if claim.holder not in ("", self.contact.node) and self._term is not None:
            self._lose(f"{claim.holder} has the lease")
        self._standby.note()
        self.on_renewed()
        self._wake()

    def _lose(self, reason: str) -> None:
        """End this node's term as the owner at once: nothing that it does would be stored."""
        if self._term is not None and not self._term.cancel_called:
            logger.error("this node does not own %s any more: %s", self.names, reason)
            self._term.cancel()
            # The last append may wait seconds for an answer; other nodes can serve meanwhile.
            self.lease.is_candidate = False
            assert self._store is not None
            self._store.give_up()

    # --- standby ----------------------------------------------------------------------------------

    async def _stand_by(self) -> None:
        """Relay clients and follow or watch, until this node has the lease or stops."""
        if not self.is_owner:
            self._change_secret()
        async with trio.open_nursery() as tasks:
            tasks.start_soon(self._standby.run)
            tasks.start_soon(self.accept, self.gate, self._tasks)
            while not self.is_owner and not self._is_stopping:
                await self._changed.wait()
            tasks.cancel_scope.cancel()

    def _change_secret(self) -> None:
        """Choose the secret of the next term.

        Connections of other nodes that were not accepted in an earlier term wait in the system's
        queue, with what clients sent long ago. They have an old secret, so they are refused.
        """
        self.contact = self.gate.contact = evolve(self.contact, secret=secrets.token_hex(16))
        self._keeper.contact = str(self.contact)

    # --- in both roles ----------------------------------------------------------------------------

    async def _survey_for_ever(self) -> None:
        while True:
            await trio.sleep(SURVEY_S)
            if self._term is not None:
                try:
                    reports = await ask_nodes(self.jetstream.client, self.names, {}, ANSWERS_S)
                except NatsError as error:
                    logger.warning("the nodes of the cluster could not be asked: %s", error)
                else:
                    self._take_reports(reports)

    def _take_reports(self, reports: Sequence[Mapping[str, object]]) -> None:
        """Log differing settings, choose the followers, and hand over if the heir is ready."""
        last, before = self.local.position, {each.node: each.differs for each in self.nodes}
        settings = self.settings()
        self.nodes = [figures_of(each, last, settings) for each in reports]
        for each in self.nodes:
            if each.differs and list(before.get(each.node, ())) != list(each.differs):
                logger.warning(
                    "node %s has other %s than this one, and clients would meet them after a "
                    "takeover: give all nodes the same files and options",
                    each.node,
                    ", ".join(each.differs),
                )
        roles, lease, heir = self._roles(), self.lease, self.awaited_heir
        if self._term is None or not self.is_owner:
            return  # a former owner may take long to end its term
        former = tuple(roles) if lease.followers is None else lease.followers
        lease.followers = self.followers.choose(
            former, roles, lease_time(), owner=lease.node, heir=heir
        )
        if heir and roles.get(heir) not in WILL_LEAD:
            logger.warning("%s is not handed over to %s, which does not answer", self.names, heir)
            self.awaited_heir = ""
        elif heir and roles[heir] == STANDBY:
            self._leave(heir)

    def _roles(self) -> dict[str, str]:
        return {each.node: each.role for each in self.nodes}

    async def _check_for_ever(self) -> None:
        while True:
            await trio.sleep(CHECK_S)
            try:
                await self._shorten()
            except (NatsError, StoreError) as error:
                logger.warning("the log of the cluster could not be looked at: %s", error)

    def figures(self) -> ClusterFigures:
        """Return the figures of the cluster, for its owner."""
        store = self._store
        return ClusterFigures(
            self.names.cluster,
            epoch=store.epoch if store is not None else 0,
            appends=store.appends if store is not None else 0,
            records=store.records if store is not None else 0,
            append_s=store.append_s if store is not None else 0.0,
            nodes=self.nodes,
        )

    async def _shorten(self) -> None:
        """Write a snapshot if the log has grown, and delete the entries that it covers.

        The owner does so only if no follower has done it.
        """
        if self._term is None and not self.lease.is_follower:
            return
        jetstream, names = self.jetstream, self.names
        log, snapshots = await jetstream.stream(names.log), await jetstream.stream(names.snapshots)
        limit = max(LOG_BYTES, GROWTH * snapshots.size)
        if log.size <= limit * (1 if self._term is None else PATIENCE):
            return
        stream = open_log(jetstream, names.snapshots, names.snapshot_subject)
        try:
            snapshot = await trio.to_thread.run_sync(
                self._write_snapshot, stream, abandon_on_cancel=True
            )
        finally:
            stream.close()
        if snapshot is not None:
            await jetstream.purge(names.log, snapshot.sequence + 1)
            await jetstream.purge(names.snapshots, snapshot.first)
            logger.info("the log of the cluster begins after entry %d now", snapshot.sequence)

    def _write_snapshot(self, stream: CommitLog) -> Snapshot | None:
        view = self.take_view()
        try:
            with self.local.appending:
                view.fix()
            return write_snapshot(view, stream)
        finally:
            view.close()

    # --- owner ------------------------------------------------------------------------------------

    async def _own(self) -> None:
        """Serve clients until this node stops, hands over, or loses the log."""
        token = trio.lowlevel.current_trio_token()
        log = open_log(self.jetstream, self.names.log, self.names.log_subject)
        self._heir = self.awaited_heir = ""
        self._store = ReplicatedStore(
            log,
            self.local,
            on_lost=lambda reason: token.run_sync_soon(self._lose, reason),
            is_orderly=False,  # until it is told to stop
        )
        try:
            with trio.CancelScope() as self._term:
                logger.info("this node owns %s now", self.names)
                await self.serve(self._store)
                await self._hand_over()
        except StoreUnavailable as error:
            logger.error("%s; trying again", error)
            await trio.sleep(RETRY_S)
        finally:
            self._term = None
            log.close()

    async def _give_up_late(self, store: ReplicatedStore) -> None:
        """Stop waiting for an engine that does not answer once this node should have left."""
        await trio.sleep(self.stop_s)
        store.give_up()

    async def _give_up_when_cancelled(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            if self._store is not None:
                self._store.give_up()

    async def _hand_over(self) -> None:
        self._keeper.hand_over(self.names.lease_subject, self._heir)
        with trio.move_on_after(HAND_OVER_S):
            while self.is_owner:
                await self._changed.wait()
        logger.info("%s is handed over to %s", self.names, self._heir or "another node")

    # --- questions and orders ---------------------------------------------------------------------

    @property
    def role(self) -> str:
        """Return what this node is to the partition."""
        if self._term is not None:
            return OWNER
        if self._is_leaving:
            return DRAINING
        if not self.lease.is_follower:
            return WATCHING
        return STANDBY if self.lease.is_candidate else READING

    @property
    def is_reading(self) -> bool:
        """Return whether this node still reads its state, and can own nothing so long."""
        return self.role == READING

    def report(self) -> Report:
        """Return this node's report on itself."""
        return Report(
            self.contact.node,
            role=self.role,
            address=self.address,
            position=self.local.position,
            clients=len(self.gate.relays),
            version=self.version,
            settings=self.settings(),
            router=self.router,
            problem=self.gate.problem,
        )

    async def _take_digest(self, position: int) -> Digest:
        node = self.contact.node
        if self.role == WATCHING:
            return Digest(node, position, failure="this node has no copy: it only watches")
        try:
            digest, records = await digest_at(self.local, self.take_view, position)
        except StoreError as error:
            return Digest(node, position, failure=str(error))
        return Digest(node, position, digest, records)

    def move(self, heir: str) -> None:
        """Hand the cluster over to a node, or with "" to any, if this node is the owner.

        A node that only watches follows first.
        """
        if self._term is None:
            return
        logger.info("told to hand %s over to %s", self.names, heir or "another node")
        followers = self.lease.followers
        follows = heir == "" or followers is None or heir in followers
        if follows and self._roles().get(heir, STANDBY) == STANDBY:
            self._leave(heir)
        else:
            self.awaited_heir = heir

    def drain(self) -> None:
        """Hand the cluster over if this node is the owner, and do not become the owner again."""
        if not self._is_leaving:
            logger.info("told to drain: this node takes no lease until it is started again")
            self._is_leaving = self.gate.is_draining = True
            self.lease.is_candidate = False
            self._leave("")


def lease_of(node: str, options: LeaseOptions, partition: int = 0) -> Lease:
    """Return the lease of a partition as a node knows it when it starts."""
    rank = crc32(f"{node}{partition or ''}".encode()) % RANKS
    return Lease(node, rank, options, started_at=lease_time(), is_candidate=False)
