"""A node that does not own a partition: it follows the log, or only watches the lease.

A follower applies the log to its local state, and takes the lease when it is free. The others do so
only if no follower is alive. What they have from the time when they followed they keep for a while,
since followers change back, and then remove it.
"""

import logging
import math
from collections.abc import Callable

import trio
from attrs import define, field

from trio_stomp.cluster._commit_log import InDoubt, LogEntry
from trio_stomp.cluster._engine import ClusterNames
from trio_stomp.cluster._local_state import LocalState, Unfit
from trio_stomp.cluster._orders import ANSWERS_S, OWNER, READING, STANDBY, ask_nodes
from trio_stomp.cluster.leases import Claim, Lease, lease_time, parse_claim
from trio_stomp.nats import JetStream, NatsError, NotFound, follow
from trio_stomp.store import Progress, StoreError, StoreUnavailable

logger = logging.getLogger("trio_stomp")

CHECK_S = 10.0
"""The silence of the log after which a follower asks for its end, and its pause after failures."""
RETRY_S = 0.5
FIRST_S = 0.4
"""The time that followers have to take a free lease before others ask about them."""
KEEP_S = 300.0
"""How long a node that follows no more keeps its local state."""
HAVE_STATE = OWNER, STANDBY, READING
"""The roles of nodes that have the state, or will have it sooner than one that only watches."""


@define(eq=False, repr=False)
class Standby:
    """Follows or watches a partition while another node owns it.

    Args:
      names: The names of the streams and subjects.
      local: The local state, which nothing else uses while ``run`` runs.
      lease: The lease of the partition.
      progress: Called with the progress of reading the local state.
      may_lead: Returns whether this node may take the lease at all.
      wake: Called when the lease may be due.
    """

    jetstream: JetStream
    names: ClusterNames
    local: LocalState
    lease: Lease
    progress: Progress
    may_lead: Callable[[], bool]
    wake: Callable[[], None]
    _is_following: bool = True
    _abandoned: Claim | None = None
    """The last claim of an owner that is gone with all followers, while this node reads instead."""
    _duty: trio.CancelScope = field(factory=trio.CancelScope)

    def note(self) -> None:
        """Take note that the lease has changed."""
        lease, has_changed = self.lease, self.lease.is_follower != self._is_following
        if self._abandoned is not None:
            has_changed = lease.claim != self._abandoned
        if lease.claim.holder != lease.node and has_changed:
            self._duty.cancel()

    async def run(self) -> None:
        """Follow the log or watch the lease, as the owner has chosen, until cancelled.

        Raises:
          StoreError: The local state cannot be used.
        """
        self.lease.is_candidate = False
        await self._read_lease()
        while True:
            self._is_following, self._abandoned = self.lease.is_follower, None
            with trio.CancelScope() as self._duty:
                await (self._follow() if self._is_following else self._watch())
            self.lease.is_candidate = False

    async def _read_lease(self) -> None:
        """Read the lease for the first time: reading the local state may be needless."""
        subject = self.names.lease_subject.decode()
        while not self.lease.sequence:
            try:
                found = await self.jetstream.message(self.names.leases, last_by_subj=subject)
            except NotFound:
                return
            except NatsError:
                await trio.sleep(RETRY_S)
            else:
                self.lease.note(found[0], parse_claim(found[1]), lease_time())

    # --- follow -----------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Follow the log. This node takes no lease until its state is up to date."""
        prepare, renewed_at = self.local.open, -1
        while True:
            try:
                await trio.to_thread.run_sync(prepare, self.progress)
                if prepare == self.local.renew:
                    prepare, renewed_at = self.local.open, self.local.position
                await self._apply_from(self.local.position)
            except Unfit as error:
                self.lease.is_candidate = False
                if self.local.position == renewed_at:
                    logger.error("%s: trying again", error)
                    await trio.sleep(CHECK_S)
                logger.warning("the local state does not lead up to the log: it is made anew")
                prepare = self.local.renew
            except (InDoubt, StoreUnavailable) as error:
                logger.warning("%s; trying again", error)
                await trio.sleep(RETRY_S)

    async def _apply_from(self, position: int) -> None:
        """Apply the entries after a position, until one is missing."""
        end = await self._end_of_log(position)
        async with follow(self.jetstream, self.names.log, after=position) as follower:
            while True:
                if self.local.position >= end and not self.lease.is_candidate:
                    self.lease.is_candidate = self.may_lead()
                    self.wake()
                with trio.move_on_after(CHECK_S) as silence:
                    received = await follower.receive()
                if silence.cancelled_caught:
                    if await self._end_of_log(self.local.position) != self.local.position:
                        return  # entries were lost on their way, or by the servers
                    continue
                entries = [LogEntry(each.sequence, each.message.payload) for each in received]
                await trio.to_thread.run_sync(self.local.follow, entries)

    async def _end_of_log(self, position: int) -> int:
        """Return the sequence of the last entry of the log, once the engine answers.

        Raises:
          Unfit: The log begins after the next entry.
        """
        while True:
            try:
                log = await self.jetstream.stream(self.names.log)
            except NatsError:
                await trio.sleep(RETRY_S)
            else:
                if log.first > position + 1:
                    raise Unfit
                return log.last

    # --- watch ------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Watch the lease, and take it if nobody with the state of the partition is alive."""
        await trio.to_thread.run_sync(self.local.close)
        lease, keep_until = self.lease, lease_time() + KEEP_S
        while True:
            patience_s = FIRST_S + (lease.options.ttl_s if lease.claim.holder else 0.0)
            left_s = patience_s - lease.silence(lease_time())
            if left_s > 0:
                if lease_time() >= keep_until and STANDBY in await self._roles():
                    await self._discard()
                    keep_until = math.inf
                await trio.sleep(left_s)
            elif not self.may_lead() or await self._is_anyone_fit():
                await trio.sleep(RETRY_S)
            elif lease.silence(lease_time()) > patience_s:
                logger.warning("no follower of %s is alive: this node takes it over", self.names)
                self._abandoned = lease.claim
                await self._follow()  # it takes the lease once its state fits the log

    async def _is_anyone_fit(self) -> bool:
        """Return whether a node with the state is alive, or nobody answers: not even this one."""
        roles = await self._roles()
        return not roles or not roles.isdisjoint(HAVE_STATE)

    async def _roles(self) -> set[object]:
        """Return the roles of the nodes that answer."""
        try:
            reports = await ask_nodes(self.jetstream.client, self.names, {}, ANSWERS_S)
        except NatsError:
            return set()
        return {each.get("role") for each in reports}

    async def _discard(self) -> None:
        """Remove the local state, which nobody needs any more: owner and followers have it."""
        try:
            await trio.to_thread.run_sync(self.local.discard, self.progress)
        except StoreError as error:
            logger.warning("%s", error)
        else:
            logger.info("this node follows %s no more, and has removed its copy", self.names)
