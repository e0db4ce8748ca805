"""COMMIT: all that was said in a transaction, or nothing of it (T04)."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import CloseReason, ProtocolError, RemoteError
from trio_stomp.broker.delivery import Client, Stop, Work
from trio_stomp.broker.durability import AtomicGroup, Callback, Log
from trio_stomp.broker.headers import ACTION, STORED, Removal
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import (
    CLIENT,
    STEP,
    Acknowledger,
    Consumer,
    Overflow,
    QueueBook,
    Settlement,
    claim_all,
    cost_alone,
    without_covered,
)
from trio_stomp.broker.routing import Foreseen, Foresight, no_table_memory
from trio_stomp.broker.sending._planned import Planned, Put
from trio_stomp.broker.sending._publisher import Publisher
from trio_stomp.broker.sending._revealing import Revealing
from trio_stomp.broker.sending._temporary import is_orphan
from trio_stomp.frames import FrameRun, Head
from trio_stomp.protocol import Acked, Committed

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Destination

MANY_COPIES = 1024
"""More than this is carried out bit by bit: copies for subscribers, and what takes as long."""
PUT_COPIES = 8
"""To send a run to a destination takes as long as so many copies, however many there are."""


@define(eq=False, repr=False)
class TransactionCommitter:
    """Checks a transaction as a whole, then does it."""

    publisher: Publisher
    acknowledger: Acknowledger
    queues: QueueBook
    overflow: Overflow

    def commit(
        self, client: Client, event: Committed, now: float, tell: Callable[[bytes], None]
    ) -> Work:
        """Do all actions, in order, and have ``tell`` tell what the RECEIPT tells of them.

        Raises:
          ProtocolError: one of them is not allowed, or does not fit; nothing was done.
        """
        planned = Planned(foresight=Foresight(self.overflow.memory))
        try:
            actions = [
                each if isinstance(each, FrameRun) else self.acknowledger.resolve(client, each)
                for each in event.actions
            ]
            yield from self._check(client, actions, planned, now)
            log = self.publisher.log
            if log is not None and planned.survives:
                if planned.is_long:
                    work = self._write_in_pieces(
                        log,
                        client=client,
                        event=event,
                        actions=actions,
                        planned=planned,
                        now=now,
                        tell=tell,
                    )
                    yield from work
                    return
                with self.publisher.asker.at_once():
                    tell(self._commit_together(log, client, actions, planned, now))
            elif planned.copies > MANY_COPIES or planned.is_large():
                yield from self._do_in_pieces(client, actions, planned, now, tell)
            else:
                with self.publisher.asker.at_once():
                    tell(self._do(client, actions, planned, now))
        except RemoteError as error:
            error.receipt_id = error.receipt_id or event.receipt
            acks = [action for action in event.actions if isinstance(action, Acked)]
            yield from self.acknowledger.narrowing(client, acks)
            raise
        finally:
            planned.foresight.release()

    def _do_in_pieces(
        self,
        client: Client,
        actions: Sequence[FrameRun | Acked],
        planned: Planned,
        now: float,
        tell: Callable[[bytes], None],
    ) -> Work:
        """Do many actions. From now on nothing undoes it, and nothing of others comes between.

        The room for all is kept. What is acknowledged is nobody's from now on. Its queues hand
        nothing out before the last is there; in front of its topics stands a line.
        """
        lines = self.publisher.lines
        claims = self._claim(client, actions)
        frozen = planned.wanted.keys()
        topics = self._keep_room(client, planned)
        self.queues.freeze(frozen)
        lines.open(topics)
        puts = iter(planned.puts)
        told, place = b"", 0
        try:
            for claim in claims:
                yield from claim.freezing()
            for action in actions:
                if isinstance(action, FrameRun):
                    evidence = yield from self._put(client, action, next(puts), planned, now)
                    told = told or (STORED if STORED in evidence else b"")
                else:
                    yield from claims[place].settling(now)
                    place += 1
                yield
            for claim in claims:
                yield from claim.thawing()
        finally:
            self._give_room(client, puts, planned)
            for claim in claims:
                claim.give_back(now)
            self.queues.thaw(frozen)
            were_awaited = lines.close(topics)
        tell(told)
        if were_awaited:
            lines.turns.stop(Stop.BEHIND)
            yield

    def _write_in_pieces(
        self,
        log: Log,
        client: Client,
        event: Committed,
        actions: Sequence[FrameRun | Acked],
        planned: Planned,
        now: float,
        tell: Callable[[bytes], None],
    ) -> Work:
        """Have the store do many actions as one record. Clients see it after that.

        The store is given nothing before the last is written, so its client goes on before others.
        If it fails meanwhile, nothing of this holds, and the client is told so.
        """
        lines = self.publisher.lines
        claims = deque(self._claim(client, actions))
        topics = self._keep_room(client, planned)
        lines.open(topics)
        puts = iter(planned.puts)
        revealing = Revealing(self.queues, lines, client, planned.wanted.keys(), topics)
        whole = log.begin_whole()
        lines.turns.first = client
        log.when_safe(Callback(client, revealing.begin, event.receipt))
        told: list[bytes] = []
        work = self._write(
            log,
            client=client,
            actions=actions,
            planned=planned,
            puts=puts,
            claims=claims,
            now=now,
            told=told,
        )
        try:
            while log.holds(whole) and self._goes_on(log, whole, planned, work):
                yield
        finally:
            self._give_room(client, puts, planned)
            for claim in claims:
                claim.give_back(now)
            is_written = log.holds(whole)
            if is_written:
                log.when_safe(Callback(client, revealing.end))
            log.end_whole(whole)
            lines.turns.first = None
            were_awaited = lines.close(topics)
        if is_written:
            tell(log.stored if any(log.stored in each for each in told) else b"")
        if were_awaited:
            lines.turns.stop(Stop.BEHIND)
            yield

    def _write(
        self,
        log: Log,
        client: Client,
        actions: Sequence[FrameRun | Acked],
        planned: Planned,
        puts: "Iterator[Put]",
        claims: deque[Settlement],
        now: float,
        told: list[bytes],
    ) -> Work:
        """Write action by action. ``told`` collects what their RECEIPTs would tell."""
        for action in actions:
            if isinstance(action, FrameRun):
                told.append((yield from self._put(client, action, next(puts), planned, now)))
            else:
                _acknowledge(log, claims.popleft())
            yield

    def _goes_on(self, log: Log, whole: AtomicGroup, planned: Planned, work: Work) -> bool:
        """Do a piece of ``work``, which is stored as one unit. Return False at its end."""
        publisher = self.publisher
        publisher.to_topics.binds, publisher.postponed.foresight = True, planned.foresight
        try:
            return log.does_part(whole, work)
        finally:
            publisher.to_topics.binds, publisher.postponed.foresight = False, None

    def _keep_room(self, client: Client, planned: Planned) -> "list[Destination]":
        """Keep room for all of it, whatever others take meanwhile, and return its topics."""
        quota = client.quota
        self.overflow.memory.force_kept(sum(put.cost for put in planned.puts), quota)
        self.overflow.memory.force_stored(planned.stored, quota)
        if quota is not None:
            quota.scheduled += sum(put.later for put in planned.puts)
        for queue, (count, size, _) in planned.wanted.items():
            queue.expect(count, size)
        return [self.publisher.destinations.place(name, quota) for name in planned.topics]

    def _give_room(self, client: Client, puts: "Iterable[Put]", planned: Planned) -> None:
        self.overflow.memory.give_stored(planned.stored, client.quota)
        for put in puts:
            put.release(self.overflow.memory, client.quota)

    def _put(
        self, client: Client, run: FrameRun, put: Put, planned: Planned, now: float
    ) -> Generator[None, None, bytes]:
        """Send a run in pieces, and return what RECEIPTs tell of it."""
        put.release(self.overflow.memory, client.quota)
        foreseen, told = planned.foresight.about(run.head), b""
        if put.later:
            told = self._schedule(client, put, now)
        for destination, head in put.parts:
            yield from self.publisher.destinations.refreshing(destination)
            told += self._send_part(
                client, destination=destination, head=head, put=put, foreseen=foreseen, now=now
            )
            yield from self.publisher.in_pieces.rest()
            if destination.kind is not Kind.QUEUE:
                yield
        return told

    def _schedule(self, client: Client, put: Put, now: float) -> bytes:
        publisher, memory = self.publisher, self.overflow.memory
        publisher.known.is_promised = memory.is_promised = True
        try:
            return publisher.later.schedule(
                client,
                quota=publisher.quota_of(client),
                head=put.head,
                plan=put.plan,
                bodies=put.bodies,
                now=now,
                binds=publisher.to_topics.binds,
            )[1]
        finally:
            publisher.known.is_promised = memory.is_promised = False

    def _claim(self, client: Client, actions: Sequence[FrameRun | Acked]) -> list[Settlement]:
        """Take what ACKs and NACKs are about from their consumers: it is nobody's until settled.

        An id may have been covered by a cumulative ACK before it (A18).
        """
        acks = [each for each in actions if isinstance(each, Acked)]
        return claim_all(self.acknowledger, client, acks, forgiving=True)[0]

    def _send_part(
        self,
        client: Client,
        destination: "Destination",
        head: Head,
        put: Put,
        foreseen: Foreseen,
        now: float,
    ) -> bytes:
        """Send a run to one of its destinations, and return what a RECEIPT tells of it."""
        publisher, memory = self.publisher, self.overflow.memory
        # As it is now: its subscribers may have come and gone.
        destination = publisher.destinations.find(destination.name) or destination
        publisher.destinations.refresh_few(destination)
        publisher.fan_out.foreseen = foreseen
        publisher.known.is_promised = memory.is_promised = True  # whatever others took meanwhile
        try:
            return publisher.send_on(
                client,
                destination=destination,
                head=head,
                options=put.plan.options,
                bodies=put.bodies,
                received_at=now,
                now=now,
            )
        finally:
            publisher.fan_out.foreseen = {}
            publisher.known.is_promised = memory.is_promised = False

    def _do(
        self,
        client: Client,
        actions: Sequence[FrameRun | Acked],
        planned: Planned,
        now: float,
    ) -> bytes:
        told = b""
        for action in actions:
            if isinstance(action, FrameRun):
                evidence = self._send(client, action, planned, now)
                told = told or (STORED if STORED in evidence else b"")
            else:
                # An id may have been covered by a cumulative ACK before it (A18).
                self.acknowledger.apply(client, action, now, forgiving=True)
        return told

    def _send(self, client: Client, run: FrameRun, planned: Planned, now: float) -> bytes:
        publisher, foresight = self.publisher, planned.foresight
        publisher.fan_out.foreseen = foresight.about(run.head)
        publisher.postponed.foresight = foresight
        try:
            return publisher.send(client, run, now, now)[1]
        finally:
            publisher.fan_out.foreseen, publisher.postponed.foresight = {}, None

    def _survives(self, client: Client, actions: Sequence[FrameRun | Acked]) -> bool:
        """Return whether anything in a transaction concerns the store."""
        held: list[tuple[Consumer, int]] = []
        for action in actions:
            if isinstance(action, FrameRun):
                _, plan = self.publisher.plan(client, action.head)
                destinations = [
                    self.publisher.destinations.place(name, client.quota) for name in plan.names
                ]
                if any(destination.stores(plan.options) for destination in destinations):
                    return True
                continue
            for name in action.ids:
                found = self.acknowledger.find(client, action, name, forgiving=True)
                if found is not None:
                    held.append(found)
        return any(_is_stored(consumer, number) for consumer, number in without_covered(held))

    def _commit_together(
        self,
        log: Log,
        client: Client,
        actions: Sequence[FrameRun | Acked],
        planned: Planned,
        now: float,
    ) -> bytes:
        """Have the store do all of it as one record. Clients see it after that."""
        told = b""
        claims = iter(self._claim(client, actions))
        with self.publisher.bound():
            for action in actions:
                if isinstance(action, FrameRun):
                    evidence = self._send(client, action, planned, now)
                    told = told or (log.stored if log.stored in evidence else b"")
                else:
                    _acknowledge(log, next(claims))
        return told

    def _check(
        self, client: Client, actions: Sequence[FrameRun | Acked], planned: Planned, now: float
    ) -> Work:
        """Plan all actions. The last step sees whether all of them can be done.

        Raises:
          ProtocolError: one is not allowed, or does not fit.
        """
        rights = client.rights
        for place, action in enumerate(actions):
            if isinstance(action, FrameRun):
                yield from self._plan(client, action, planned, now)
            if place % STEP == STEP - 1 or planned.copies > MANY_COPIES:
                yield
        planned.is_long = planned.copies > MANY_COPIES
        yield from self._until_free(planned)
        if client.rights is not rights:  # changed meanwhile
            for head in [each.head for each in actions if isinstance(each, FrameRun)]:
                self.publisher.plan(client, head)
        for name in planned.names:
            if self.publisher.destinations.find(name) is None:
                # One made room for another: there is not enough for all of them.
                raise ProtocolError(
                    "too-many-destinations",
                    f"the transaction names {len(planned.names)} destinations, more than there is"
                    " room for (option max_destinations)",
                    reason=CloseReason.LIMIT_EXCEEDED,
                )
        for acked in [each for each in actions if isinstance(each, Acked)]:
            for id in acked.ids:
                found = self.acknowledger.find(client, acked, id)
                if found is not None:
                    planned.copies += _most(found[0])
        memory, quota = self.overflow.memory, client.quota
        if planned.ids > memory.tables_room_for(quota):
            raise no_table_memory(memory, "ids of messages", quota)
        count = sum(len(run.bodies) for run in planned.runs_later)
        self.publisher.later.scheduler.check_count(quota, planned.scheduled, count)
        planned.survives = self.publisher.log is not None and self._survives(client, actions)
        planned.check_room(self.overflow, self.publisher.to_queues, quota)

    def _until_free(self, planned: Planned) -> Work:
        """Wait until nothing stands before it: in its topics' lines, or on the way to the store."""
        lines, log = self.publisher.lines, self.publisher.log
        yield from lines.until_free(planned.topics)
        while planned.is_long and log is not None and not log.may_begin:
            lines.turns.stop(Stop.BEHIND)
            yield
            yield from lines.until_free(planned.topics)

    def _plan(self, client: Client, action: FrameRun, planned: Planned, now: float) -> Work:
        head, plan = self.publisher.plan(client, action.head)
        planned.names |= dict.fromkeys(plan.names)
        count, size = len(action.bodies), sum(map(len, action.bodies))
        if isinstance(plan.schedule, Removal):
            raise ProtocolError(
                "unsupported",
                f"{ACTION} in a transaction: its effect could not be undone if the COMMIT failed; "
                "send it outside a transaction",
                reason=CloseReason.UNSUPPORTED,
            )
        put = Put(head, plan, action.bodies, size)
        if plan.schedule is not None:
            planned.later += cost_alone(head, count, size)
            planned.scheduled = plan.names[0]
            planned.copies += PUT_COPIES
            planned.runs_later.append(action)
            planned.puts.append(put)
            plan.schedule.first_due(self.publisher.wall.ms(now))  # or raise
            return
        largest = max(map(len, action.bodies))
        once = plan.options.dedup_id if plan.options is not None else ""
        for name, each in plan.heads_by_name(head):
            destination = self.publisher.destinations.place(name, client.quota)
            yield from self.publisher.destinations.refreshing(destination)
            self.publisher.check_question(destination, action.bodies)
            planned.ids += self.publisher.known.room_for(destination, once) if once else 0
            planned.copies += (
                PUT_COPIES + len(destination.subscribers) + destination.bindings * count
            )
            if destination.is_crowded:
                yield
            if destination.kind is not Kind.QUEUE:
                if destination.kind in (Kind.TOPIC, Kind.WORK):
                    planned.topics[name] = None
                yield from planned.foresight.ask(action.head, each, destination)
            elif not is_orphan(client, destination):
                planned.heads[each] = None
                queue = self.queues.open(name, client.quota)
                yield from self.queues.reach.until_entered(queue)
                put.queues.append(queue)
                before = planned.wanted.get(queue, (0, 0, 0))
                planned.wanted[queue] = (
                    before[0] + count,
                    before[1] + size,
                    max(before[2], largest),
                )
            put.parts.append((destination, each))
        put.parts.sort(key=_is_last)
        planned.puts.append(put)


def _is_stored(consumer: Consumer, number: int) -> bool:
    """Return whether the store has any of what an ACK is about."""
    if consumer.ack != CLIENT:
        return consumer.unacked[number].message.stored > 0
    covered = takewhile(lambda item: item[0] <= number, consumer.unacked.items())
    return any(unacked.message.stored for _, unacked in covered)


def _most(consumer: Consumer) -> int:
    """Return how many deliveries an ACK may be about, at the most."""
    return len(consumer.unacked) if consumer.ack == CLIENT else 1


def _is_last(part: "tuple[Destination, Head]") -> bool:
    """Queues come first: no room is kept for them once a run is being sent."""
    return part[0].kind is not Kind.QUEUE


def _acknowledge(log: Log, claim: Settlement) -> None:
    """Have the store forget what is acknowledged. It is done when that is safe."""
    if not claim.event.negative and (stored := claim.stored):
        log.finish_all(stored)
    log.when_safe(claim)
