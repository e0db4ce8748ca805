"""COMMIT: all actions of a transaction or none (T04)."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import FrameBug, RemoteError, noop
from trio_stomp.broker.delivery import Client, Stop, Work
from trio_stomp.broker.durability import AtomicGroup, Callback, Log
from trio_stomp.broker.headers import SendOutcome, combined, committed
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import (
    Acknowledger,
    Overflow,
    QueueBook,
    Settlement,
    claim_all,
)
from trio_stomp.broker.routing import MatchesByName, TransactionMatches
from trio_stomp.broker.sending._planned import MANY_COPIES, Planned, Planner, Put
from trio_stomp.broker.sending._publisher import Publisher
from trio_stomp.broker.sending._revealing import Revealing
from trio_stomp.frames import FrameRun, Head
from trio_stomp.protocol import Acked, Committed

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Destination


@define(eq=False, repr=False)
class TransactionCommitter:
    """Checks transactions as a whole, then carries them out.

    A SEND with very many stored copies, or to several brokers of a cluster, is one, too.
    """

    publisher: Publisher
    acknowledger: Acknowledger
    queues: QueueBook
    overflow: Overflow
    planner: Planner = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.planner = Planner(self.publisher, self.acknowledger, self.queues, self.overflow)

    def commit(
        self,
        client: Client,
        event: Committed,
        now: float,
        on_done: Callable[[SendOutcome], None],
        *,
        is_of_one: bool = False,
        last: Callable[[], object] = noop,
    ) -> Work:
        """Carry out all actions in order.

        Args:
          client: The client.
          event: The COMMIT.
          now: The time, in seconds of the broker's clock.
          on_done: Called with the outcome.
          is_of_one: It is a single SEND, whose RECEIPT has more headers than a COMMIT's.
          last: Called at the end of the record in the store, if it is written in pieces.

        Raises:
          ProtocolError: an action is not allowed, or does not fit. Nothing has been carried out.
          FrameBug: any other exception. Nothing has been stored.
        """
        if not event.actions:
            yield from self.publisher.forwards.until_sent(client, now)
            if client.is_gone:
                return  # a RECEIPT could still reach it, and would be wrong
        matches = TransactionMatches(self.overflow.memory, is_of_one)
        planned = Planned(matches, may_drop=last is noop)  # what was scheduled waits instead
        try:
            actions = [part for each in event.actions for part in self._parts(client, each)]
            yield from self.planner.check(client, actions, planned, now)
            log = self.publisher.log
            if log is not None and (planned.survives or is_of_one):
                if planned.is_long:
                    yield from self._write_in_pieces(
                        log, client, event, actions, planned, now=now, on_done=on_done, last=last
                    )
                    return
                with self.publisher.selector_evaluator.at_once():
                    on_done(self._commit_together(log, client, actions, planned, now))
            elif planned.copies > MANY_COPIES or planned.is_large(self.publisher.fan_out):
                yield from self._do_in_pieces(client, actions, planned, now, on_done)
            else:
                with self.publisher.selector_evaluator.at_once():
                    on_done(self._do(client, actions, planned, now))
        except RemoteError as error:
            error.receipt_id = error.receipt_id or event.receipt
            acks = [action for action in event.actions if isinstance(action, Acked)]
            yield from self.acknowledger.narrowing(client, acks)
            raise
        except Exception as bug:
            raise FrameBug(event.receipt) from bug
        finally:
            planned.transaction_matches.release()

    def _parts(self, client: Client, action: FrameRun | Acked) -> Sequence[FrameRun | Acked]:
        """Return an action as those that are carried out."""
        if isinstance(action, FrameRun):
            return self._apart(client, action)
        return [self.acknowledger.resolve(client, action)]

    def _apart(self, client: Client, run: FrameRun) -> Sequence[FrameRun]:
        """Return a run of SENDs, or a run for each destination if several brokers have them.

        So messages for this broker are not sent on, and stay in the order of their sender.

        Raises:
          ProtocolError: As for ``Publisher.plan``.
        """
        if self.publisher.forwards.is_elsewhere is None:
            return [run]
        # Others may have the public names of its temporary destinations.
        head, plan = self.publisher.plan(client, run.head)
        if not plan.is_apart:
            return [run]
        return [FrameRun(each, run.bodies, []) for _, each in plan.heads_by_name(head)]

    def _do_in_pieces(
        self,
        client: Client,
        actions: Sequence[FrameRun | Acked],
        planned: Planned,
        now: float,
        on_done: Callable[[SendOutcome], None],
    ) -> Work:
        """Carry out many actions that are not stored, isolated from other clients.

        Nothing can undo it any more: the room is reserved, and acknowledged messages are taken
        from their consumers. Its queues are frozen until the end, and its topics have lines.
        """
        lines = self.publisher.lines
        claims = self._claim(client, actions)
        frozen = planned.wanted.keys()
        topics = self._keep_room(client, planned)
        self.queues.freeze(frozen)
        lines.open(topics)
        puts = iter(planned.puts)
        outcomes: list[SendOutcome] = []
        settled = 0
        try:
            for claim in claims:
                yield from claim.freezing()
            for action in actions:
                if isinstance(action, FrameRun):
                    outcomes += yield from self._put(client, action, next(puts), planned, now)
                else:
                    yield from claims[settled].settling(now)
                    settled += 1
                yield
            for claim in claims:
                yield from claim.thawing()
        finally:
            self._give_room(client, puts, planned)
            for claim in claims:
                claim.give_back(now)
            self.queues.thaw(frozen)
            were_awaited = lines.close(topics)
        on_done(committed(outcomes))
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
        *,
        now: float,
        on_done: Callable[[SendOutcome], None],
        last: Callable[[], object],
    ) -> Work:
        """Write many actions to the store as one record. They become visible after the commit.

        The store gets no records until the last action is written, so the client's work goes first.
        If the store fails meanwhile, nothing is carried out, and the client gets an ERROR.
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
        outcomes: list[SendOutcome] = []
        work = self._write(
            log,
            client=client,
            actions=actions,
            planned=planned,
            puts=puts,
            claims=claims,
            now=now,
            outcomes=outcomes,
            last=last,
        )
        try:
            while log.holds(whole) and self._goes_on(log, whole, planned, work):
                yield
            is_written = log.holds(whole)
            if is_written:
                log.when_safe(Callback(client, revealing.end))
            log.end_whole(whole)
        finally:
            self._give_room(client, puts, planned)
            for claim in claims:
                claim.give_back(now)
            self.publisher.in_pieces.begun.clear()
            log.cut_whole(whole, client)  # unless it has ended
            lines.turns.first = None
            were_awaited = lines.close(topics)
        if is_written and planned.transaction_matches.is_of_one:
            on_done(outcomes[0] if len(outcomes) == 1 else combined(outcomes))
        elif is_written:
            on_done(committed(outcomes))
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
        *,
        claims: deque[Settlement],
        now: float,
        outcomes: list[SendOutcome],
        last: Callable[[], object],
    ) -> Work:
        """Write action by action. The outcomes of SENDs are appended to ``outcomes``."""
        for action in actions:
            if isinstance(action, FrameRun):
                outcomes += yield from self._put(client, action, next(puts), planned, now)
            else:
                _acknowledge(log, claims)
            yield
        last()

    def _goes_on(self, log: Log, whole: AtomicGroup, planned: Planned, work: Work) -> bool:
        """Do a piece of ``work``, which writes to ``whole``. Return False at its end."""
        postponed, to_topics = self.publisher.postponed, self.publisher.to_topics
        to_topics.is_atomic, postponed.transaction_matches = True, planned.transaction_matches
        try:
            return log.does_part(whole, work)
        finally:
            to_topics.is_atomic, postponed.transaction_matches = False, None

    def _keep_room(self, client: Client, planned: Planned) -> "list[Destination]":
        """Reserve the room for all its messages, and return its topics."""
        quota = client.quota
        self.overflow.memory.force_kept(sum(put.cost for put in planned.puts), quota)
        self.overflow.memory.force_stored(planned.stored, quota)
        if quota is not None:
            quota.scheduled += sum(put.later for put in planned.puts)
        for queue, (count, size, _) in planned.wanted.items():
            queue.expect(count, size)
        return [self.publisher.destinations.ensure(name, quota) for name in planned.topics]

    def _give_room(self, client: Client, puts: "Iterable[Put]", planned: Planned) -> None:
        self.overflow.memory.give_stored(planned.stored, client.quota)
        for put in puts:
            put.release(self.overflow.memory, client.quota)

    def _put(
        self, client: Client, run: FrameRun, put: Put, planned: Planned, now: float
    ) -> Generator[None, None, list[SendOutcome]]:
        """Send a run in pieces, and return the outcome for each destination."""
        put.release(self.overflow.memory, client.quota)
        matches_by_name, outcomes = planned.transaction_matches.about(run.head), []
        if put.is_aside:
            outcomes.append(self._keep_aside(client, put, now))
        for destination, head in put.parts:
            yield from self.publisher.destinations.refreshing(destination)
            begun = self._send_part(
                client,
                destination=destination,
                head=head,
                put=put,
                matches_by_name=matches_by_name,
                now=now,
            )
            outcomes.append(begun | (yield from self.publisher.in_pieces.rest()))
            if destination.kind is not Kind.QUEUE:
                yield
        return outcomes

    def _keep_aside(self, client: Client, put: Put, now: float) -> SendOutcome:
        publisher, memory = self.publisher, self.overflow.memory
        publisher.duplicates.is_promised = memory.is_promised = True
        try:
            return publisher.later.schedule(
                client,
                quota=publisher.quota_of(client),
                head=put.head,
                plan=put.plan,
                bodies=put.bodies,
                now=now,
                is_atomic=publisher.to_topics.is_atomic,
            )[1]
        finally:
            publisher.duplicates.is_promised = memory.is_promised = False

    def _claim(self, client: Client, actions: Sequence[FrameRun | Acked]) -> list[Settlement]:
        """Take the messages of ACKs and NACKs from their consumers until they are settled.

        An id may be covered by an earlier cumulative ACK of the transaction (A18).
        """
        acks = [each for each in actions if isinstance(each, Acked)]
        return claim_all(self.acknowledger, client, acks, forgiving=True)[0]

    def _send_part(
        self,
        client: Client,
        destination: "Destination",
        head: Head,
        put: Put,
        *,
        matches_by_name: MatchesByName,
        now: float,
    ) -> SendOutcome:
        """Send a run to one of its destinations, and return the outcome."""
        publisher, memory = self.publisher, self.overflow.memory
        # Its subscribers may have come and gone.
        destination = publisher.destinations.find(destination.name) or destination
        publisher.destinations.refresh_few(destination)
        publisher.fan_out.matches_by_name = matches_by_name
        publisher.duplicates.is_promised = memory.is_promised = True  # its room was reserved
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
            publisher.fan_out.matches_by_name = {}
            publisher.duplicates.is_promised = memory.is_promised = False

    def _do(
        self,
        client: Client,
        actions: Sequence[FrameRun | Acked],
        planned: Planned,
        now: float,
    ) -> SendOutcome:
        outcomes: list[SendOutcome] = []
        for action in actions:
            if isinstance(action, FrameRun):
                outcomes.append(self._send(client, action, planned, now))
            else:
                # Forgiving: an earlier cumulative ACK may have covered an id (A18).
                self.acknowledger.apply(client, action, now, forgiving=True)
        return committed(outcomes)

    def _send(self, client: Client, run: FrameRun, planned: Planned, now: float) -> SendOutcome:
        publisher, transaction_matches = self.publisher, planned.transaction_matches
        publisher.fan_out.matches_by_name = transaction_matches.about(run.head)
        publisher.postponed.transaction_matches = transaction_matches
        try:
            return publisher.send(client, run, now, now)[1]
        finally:
            publisher.fan_out.matches_by_name, publisher.postponed.transaction_matches = {}, None

    def _commit_together(
        self,
        log: Log,
        client: Client,
        actions: Sequence[FrameRun | Acked],
        planned: Planned,
        now: float,
    ) -> SendOutcome:
        """Write all actions to the store as one record. They become visible after the commit."""
        outcomes: list[SendOutcome] = []
        claims = deque(self._claim(client, actions))
        try:
            with self.publisher.atomic():
                for action in actions:
                    if isinstance(action, FrameRun):
                        outcomes.append(self._send(client, action, planned, now))
                    else:
                        _acknowledge(log, claims)
        finally:
            for claim in claims:  # only after an exception
                claim.give_back(now)
        return committed(outcomes)


def _acknowledge(log: Log, claims: deque[Settlement]) -> None:
    """Remove messages of the first claim from the store. They are settled once that is stored."""
    claim = claims[0]
    if not claim.event.negative and (stored := claim.stored):
        log.finish_all(stored)
    log.when_safe(claim)
    claims.popleft()
