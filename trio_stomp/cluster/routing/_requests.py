"""Routing of clients' frames to the owners of the partitions that they concern."""

from collections.abc import Callable, Iterable

from attrs import define, evolve

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker import PolicyBook
from trio_stomp.broker.headers import Dialect, resolve, routing_of
from trio_stomp.cluster.routing._encoder import Routed
from trio_stomp.cluster.routing._owners import INTERNAL, Owners
from trio_stomp.cluster.routing._placement import REQUESTS, Placement, mark
from trio_stomp.cluster.routing._route import Awaited, Route
from trio_stomp.frames import FrameRun, Head, Headers
from trio_stomp.protocol import Acked, Committed, Received, Subscribed, Unsubscribed


class Apart(ProtocolError):
    """A request that must be carried out in one partition concerns several."""

    def __init__(self, what: str, partitions: Iterable[int], rule: str) -> None:
        numbers = ", ".join(map(str, sorted(partitions)))
        super().__init__(
            "partitions-apart",
            f"{what[:80]} lies in the partitions {numbers} of the cluster, but {rule}",
            reason=CloseReason.UNSUPPORTED,
        )


def acks_apart(transaction: str, partitions: Iterable[int]) -> Apart:
    """Return the error for a transaction with ACKs of messages from several partitions.

    A message whose ACK is committed in one partition and not yet carried out in another could be
    delivered again there, for instance if the consumer's connection ends meanwhile.
    """
    return Apart(
        f"transaction:{transaction}",
        partitions,
        "its ACKs and NACKs must lie in one, so that no message comes again after COMMIT: name"
        " their destinations in one group of the option cluster_colocate, or acknowledge them in"
        " several transactions",
    )


@define(eq=False, repr=False)
class Requests:
    """Routes the frames of clients.

    Args:
      placement: The partitions of destinations.
      dialect: The dialect of the clients.
      owners: The connections to the owners.
      book: Returns the policies in force.
    """

    placement: Placement
    dialect: Dialect
    owners: Owners
    book: Callable[[], PolicyBook]

    # SEND.

    def _plan(self, head: Head) -> Routed:
        """Return the plan of SENDs with a header block.

        Raises:
          ProtocolError: The destination is invalid.
        """
        found = head.plan
        if not isinstance(found, Routed):
            names = resolve(head.destination or "", self.dialect, routing_of(head.headers))
            # The owner that has the first one sends a composite on.
            partitions = self.placement.targets(names[0], head.headers)
            found = head.plan = Routed(partitions, self.placement.goals(names))
        return found

    def send(self, route: Route, run: FrameRun) -> bool:
        """Route a run of SENDs. Return False if it must wait for earlier frames."""
        plan = self._plan(run.head)
        partitions = plan.partitions
        if route.is_ahead(partitions) or self._overtakes(route, partitions[0], plan.goals):
            return False
        for _, name in run.receipts:
            self.owners.expect(route, partitions, Awaited(name, len(partitions), is_asked=True))
        for partition in partitions:
            self.owners.add(route, partition, run)
        return True

    def _overtakes(self, route: Route, coordinator: int, goals: Iterable[int]) -> bool:
        """Return whether SENDs may overtake earlier ones that went another way to a partition.

        If so, the owner that took the earlier ones is asked to confirm that they have arrived.
        """
        ways = route.ways
        if route.passing is not None:
            asked, awaited = route.passing
            if awaited.upstreams:
                return True
            route.passing = None
            ways = route.ways = {goal: way for goal, way in ways.items() if way != asked}
        for goal in goals:
            way = ways.setdefault(goal, coordinator)
            if way != coordinator:
                self._ask_when_passed(route, way)
                return True
        return False

    def _ask_when_passed(self, route: Route, partition: int) -> None:
        """Ask an owner to confirm that it has the client's messages, and none of them for others.

        That is what the RECEIPT of a COMMIT without actions says.
        """
        awaited = Awaited(INTERNAL, 1, is_asked=False)
        route.passing = partition, awaited
        self.owners.expect(route, (partition,), awaited)
        name = INTERNAL.decode()
        while name in route.transactions:
            name += name
        self.owners.add(route, partition, Committed((), INTERNAL, name))

    # SUBSCRIBE, UNSUBSCRIBE.

    def subscribe(self, route: Route, event: Subscribed) -> None:
        """Route a SUBSCRIBE, with a wildcard to all partitions.

        Raises:
          ProtocolError: The destination is invalid.
        """
        partitions = self._sources(event.destination, event.headers)
        key = f"\0{event.destination}"
        if event.id is not None:
            # The owner of a subscription with this id refuses another one.
            key, partitions = event.id, route.subscriptions.get(event.id, partitions)
        route.subscriptions[key] = partitions
        route.client.elsewhere = len(route.subscriptions)
        if len(partitions) > 1 and event.ack == "client" and event.id is not None:
            route.cumulative.add(event.id, route.client.rules)
            for partition in partitions:
                self.owners.upstream(route, partition).is_noted = True
        self.owners.ask(route, partitions, event)

    def _sources(self, destination: str, headers: Headers) -> tuple[int, ...]:
        """Return the partitions of the destination of a SUBSCRIBE.

        Raises:
          ProtocolError: The destination is invalid.
        """
        names = resolve(destination, self.dialect, routing_of(headers))
        return self.placement.holders(names, self.dialect.wildcards, self.book(), headers)

    def unsubscribe(self, route: Route, event: Unsubscribed) -> None:
        """Route an UNSUBSCRIBE.

        Raises:
          ProtocolError: The destination is invalid, or missing where it is needed.
        """
        partitions: tuple[int, ...] = ()
        if event.id is not None:
            partitions = route.subscriptions.pop(event.id, ())
            route.cumulative.remove(event.id, route.client.rules)
        if not partitions and event.destination is not None:
            partitions = self._sources(event.destination, event.headers)
            route.subscriptions.pop(f"\0{event.destination}", None)
        route.client.elsewhere = len(route.subscriptions)
        if not partitions and event.id is None:
            raise ProtocolError(
                "header-missing",
                "UNSUBSCRIBE names a durable subscription of another connection, and in a cluster"
                " with partitions needs the header destination, too",
            )
        self.owners.ask(route, partitions or (0,), event)

    # ACK, NACK.

    def acknowledge(self, route: Route, event: Acked) -> None:
        """Route ACKs or NACKs to the partitions of their ids."""
        if route.cumulative:
            for number, name in enumerate(event.ids, 1):
                receipts = [(1, each) for count, each in event.receipts if count == number]
                self._include(route, evolve(event, ids=[name], receipts=receipts))
            return
        marked = self.placement.marked
        first = marked(event.ids[0].decode())
        start = mark(first).encode()
        if all([name.startswith(start) for name in event.ids]):
            self.owners.give(route, first, event, event.receipts)
            return
        parts: dict[int, list[bytes]] = {}
        for name in event.ids:
            parts.setdefault(marked(name.decode()), []).append(name)
        for partition, ids in parts.items():
            part = evolve(event, ids=ids)
            self.owners.give(route, partition, part, part.receipts)

    def _include(self, route: Route, event: Acked) -> None:
        """Route an ACK that may include earlier messages of other partitions."""
        (name,) = event.ids
        own = self.placement.marked(name.decode())
        others = route.cumulative.take(name, self.placement)
        for _, receipt in event.receipts:
            awaited = Awaited(receipt, 1 + len(others), is_asked=True)
            self.owners.expect(route, (own, *others), awaited)
        for partition, last in (*others.items(), (own, name)):
            self.owners.add(route, partition, evolve(event, ids=[last]))

    # Transactions: the session holds SENDs until COMMIT; owners need ACKs at once, for credit.

    def add(self, route: Route, event: Received) -> None:
        """Route BEGIN, ABORT, or frames that were added to a transaction.

        Raises:
          ProtocolError: Its ACKs concern several partitions.
        """
        transaction = event.transaction
        for acked in event.acked:
            if self._is_unknown(acked):
                continue  # COMMIT will be refused
            partition = self.placement.marked(acked.ids[0].decode())
            others = route.cumulative.take(acked.ids[0], self.placement)
            if others:
                raise acks_apart(transaction, (partition, *others))
            begun = route.transactions.get(transaction)
            if begun is None:
                route.transactions[transaction] = partition
            elif begun != partition:
                raise acks_apart(transaction, (begun, partition))
            self.owners.add(route, partition, Received((), None, [acked], (), transaction))
        if event.returned:
            partition = route.transactions.pop(transaction)
            self.owners.add(route, partition, evolve(event, receipts=()))
        for _, name in event.receipts:
            route.answer(name)

    def commit(self, route: Route, event: Committed) -> bool:
        """Route a transaction to its coordinator. Return False if it must wait for earlier frames.

        The coordinator is the owner of the partition of its ACKs, else of its first SEND. It stores
        the whole transaction, and sends on what is for others.

        Raises:
          ProtocolError: A destination is invalid, or it has a request to several partitions.
        """
        transaction = event.transaction
        runs = [each for each in event.actions if isinstance(each, FrameRun)]
        plans = [self._plan(run.head) for run in runs]
        begun = route.transactions.get(transaction)
        wanted = dict.fromkeys(partition for each in plans for partition in each.partitions)
        if not event.actions:
            if event.receipt is not None:
                route.answer(event.receipt)
            return True
        partition = next(iter(wanted), 0) if begun is None else begun
        for run, each in zip(runs, plans, strict=True):
            if run.head.destination in REQUESTS and each.partitions != (partition,):
                raise Apart(
                    f"transaction:{transaction}",
                    each.partitions,
                    f"is carried out in {partition}: send requests to the broker outside of it",
                )
        goals = {goal for each in plans for goal in each.goals}
        if route.is_ahead((partition,)) or self._overtakes(route, partition, goals):
            return False
        if not self._may_commit(route, event, partition):
            return False
        route.asked = None
        route.transactions.pop(transaction, None)
        receipts = [receipt for run in runs for receipt in run.receipts]
        if event.receipt is not None:
            receipts.append((0, event.receipt))
        self.owners.give(route, partition, event, receipts)
        return True

    def _may_commit(self, route: Route, event: Committed, coordinator: int) -> bool:
        """Ask other owners whether the client may send to them. Return False until all agree.

        Each checks the SENDs of a transaction when they come, and drops them by ABORT. An ERROR of
        one ends the session.
        """
        if route.client.rights is None:
            return True
        if route.asked is None or route.asked[0] is not event:
            parts: dict[int, list[Head]] = {}
            for each in event.actions:
                if isinstance(each, FrameRun):
                    (partition, *_) = self._plan(each.head).partitions
                    parts.setdefault(partition, []).append(each.head)
            parts.pop(coordinator, None)
            awaited = Awaited(INTERNAL, sum(map(len, parts.values())), is_asked=False)
            route.asked = event, awaited
            for partition, heads in parts.items():
                for head in heads:
                    self.owners.expect(route, (partition,), awaited)
                    check = Received([(1, INTERNAL)], head, transaction=event.transaction)
                    self.owners.add(route, partition, check)
        return not route.asked[1].upstreams

    def _is_unknown(self, event: Acked) -> bool:
        """Return whether an ACK has an id that no partition can have made."""
        return not self.placement.is_marked(event.ids[0].decode())
