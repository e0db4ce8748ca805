"""The operations: their arguments, and what each does with a message."""

from typing import TYPE_CHECKING

from attrs import define, evolve, field, frozen

from trio_stomp.base import ProtocolError
from trio_stomp.broker.browsing import Walk
from trio_stomp.broker.delivery import LossReason
from trio_stomp.broker.headers import Dialect, SendOptions, make_plan, rename_head
from trio_stomp.broker.managing._operation import Act, Operation
from trio_stomp.broker.managing._removal import remove, remove_paged
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import Queue, QueueBook, cost_alone
from trio_stomp.broker.selectors import SelectorCompiler
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio_stomp.broker.delivery import Destination
    from trio_stomp.broker.queues import Message
    from trio_stomp.broker.routing import BrokerEvents
    from trio_stomp.broker.sending import Publisher

ALL = 2**63
MOVABLE = (Kind.QUEUE, Kind.WORK, Kind.TOPIC)
"""Kinds of destinations that messages may be moved to."""


@frozen
class Choice:
    """Waiting messages of a queue.

    Args:
      queue: The name of the queue.
      selector: Chooses messages by their headers; "" = all.
      limit: The most messages to choose.
    """

    queue: str
    selector: str = ""
    limit: int = ALL


@define(eq=False, repr=False)
class Manager:
    """Begins operations on the messages of queues.

    Args:
      queues: The queues of the broker.
      publisher: Sends moved messages.
      selectors: Compiles selectors.
      events: Tells others of each operation.
      dialect: The dialect of names.
    """

    queues: QueueBook
    publisher: "Publisher"
    selectors: SelectorCompiler
    events: "BrokerEvents"
    dialect: Dialect
    purged: int = 0
    """Messages that operators have purged."""

    def resolve(self, name: str) -> str:
        """Return the destination that a SEND to ``name`` goes to.

        Raises:
          ProtocolError: It is no destination, or several.
        """
        plan = make_plan(Head("SEND", (("destination", name),), 0, name), self.dialect)
        if len(plan.names) != 1:
            raise ProtocolError(
                "invalid-destination", f"{name[:80]!r} names several destinations; give one"
            )
        return plan.names[0]

    def id_of(self, message: "Message") -> str:
        """Return the id of a waiting message."""
        names = self.publisher.fan_out.names
        return names.id_of(message.number, is_stored=bool(message.stored))

    def received_ms(self, message: "Message") -> int:
        """Return when a message was received, in milliseconds since 1970."""
        return self.publisher.wall.ms(message.publication.received_at)

    def look(self, choice: Choice, take: "Callable[[Message], None]") -> Operation:
        """Begin to show messages without consuming or marking them.

        Args:
          choice: The messages.
          take: Called with each message.

        Raises:
          ProtocolError: There is no such queue, or the selector is invalid.
        """

        def act(_walk: Walk, messages: "list[Message]", now: float) -> int:
            for message in messages:
                if not message.publication.is_over(now):
                    take(message)
            return len(messages)

        return self._begin(choice, act, claims=False)

    def purge(self, choice: Choice, by: str = "") -> Operation:
        """Begin to remove messages for good.

        Args:
          choice: The messages.
          by: The user, for ``explain``.

        Raises:
          ProtocolError: There is no such queue, or the selector is invalid.
        """

        def act(walk: Walk, messages: "list[Message]", _now: float) -> int:
            queue = walk.queue
            self._note(queue, messages, LossReason.PURGED, f"purged by {by}" if by else "purged")
            self._remove(walk, messages)
            queue.destination.dropped += len(messages)
            self.purged += len(messages)
            return len(messages)

        return self._begin(choice, act, claims=True)

    def move(self, choice: Choice, to: str) -> Operation:
        """Begin to send messages to another destination, and remove them here, each as one record.

        The operation ends early, with a ``problem``, at the first message for which there is no
        room, or that nobody would get.

        Args:
          choice: The messages.
          to: A name from ``resolve``.

        Raises:
          ProtocolError: There is no such queue, the selector is invalid, or both are one queue.
        """
        if to == choice.queue:
            raise ProtocolError(
                "invalid-destination", f"{to[:80]} is the queue itself; name another destination"
            )
        mover = _Mover(self, to)
        operation = self._begin(choice, mover.act, claims=True)
        mover.operation = operation
        return operation

    def tell(self, event: str, queue: str, user: str, detail: str) -> None:
        """Publish the event of an operation, with its user."""
        self.events.tell(event, destination=queue, reason="operator", detail=detail, user=user)

    def _begin(self, choice: Choice, act: Act, *, claims: bool) -> Operation:
        queue = self.queues.find(choice.queue)
        if queue is None:
            raise ProtocolError(
                "no-such-queue",
                f"there is no queue {choice.queue[:80]!r}; queues exist while they have messages or"
                " consumers (trio-stomp ls queues shows them)",
            )
        storage = self.queues.storage
        newest_stored = storage.log.next_id - 1 if storage is not None else 0
        walk = Walk(queue, self.queues.accepted, newest_stored, storage, claims=claims)
        return Operation(
            self.queues,
            walk,
            act,
            queue.depth,
            selector=self.selectors.compile(choice.selector) if choice.selector else None,
            limit=choice.limit,
        )

    def _remove(self, walk: Walk, messages: "list[Message]") -> None:
        if walk.is_in_store:
            remove_paged(walk.queue, walk.level, messages)
        else:
            remove(walk.queue, messages)

    def _note(self, queue: Queue, messages: "list[Message]", reason: LossReason, rule: str) -> None:
        """Record the end of messages here, for ``explain``."""
        history = self.queues.event_history
        if history is not None:
            for message in messages:
                history.lost(reason, queue.name, numbers=(message.number, 1), rule=rule)


@define(eq=False, repr=False)
class _Mover:
    """Moves messages one by one."""

    manager: Manager
    to: str
    operation: Operation = field(init=False)
    _old: Head | None = None
    _new: "tuple[Head, SendOptions] | None" = None
    """The header block and options of messages with the header block ``_old``."""

    def act(self, walk: Walk, messages: "list[Message]", now: float) -> int:
        for done, message in enumerate(messages):
            if message.publication.is_over(now):
                continue  # it expires here, by the rules of this queue
            try:
                self._move(walk, message, now)
            except ProtocolError as error:
                self.operation.problem = error.without_traceback()
                return done
        return len(messages)

    def _move(self, walk: Walk, message: "Message", now: float) -> None:
        manager, publisher = self.manager, self.manager.publisher
        publication, quota = message.publication, message.publication.payer
        destination = publisher.destinations.ensure(self.to, quota)
        head, options = self._as_sent(message)
        self._check(destination, head, message)
        before, publisher.behalf = publisher.behalf, quota
        try:
            with manager.queues.atomically():
                _, outcome = publisher.send_to(
                    None,
                    destination=destination,
                    head=head,
                    options=options,
                    bodies=[message.body],
                    received_at=publication.received_at,
                    now=now,
                )
                if outcome.is_lost:
                    raise ProtocolError(
                        "no-subscriber", f"nobody is subscribed to {self.to[:80]}; nothing is lost"
                    )
                manager._remove(walk, [message])
        finally:
            publisher.behalf = before
        manager._note(walk.queue, [message], LossReason.MOVED, f"moved to {self.to[:80]}")

    def _as_sent(self, message: "Message") -> "tuple[Head, SendOptions]":
        """Return the header block and options of a message at its new destination."""
        publication = message.publication
        if self._new is None or self._old is not publication.head:
            options = evolve(
                publication.options or SendOptions(),
                priority=message.level,
                persistent=bool(message.stored),
            )
            self._old, self._new = (
                publication.head,
                (rename_head(publication.head, self.to), options),
            )
        return self._new

    def _check(self, destination: "Destination", head: Head, message: "Message") -> None:
        """Check that there is room. Unlike a SEND, a move must not push out other messages."""
        if destination.kind not in MOVABLE:
            raise ProtocolError(
                "invalid-destination", f"messages cannot be moved to {self.to[:80]}; name a queue"
            )
        if destination.kind is not Kind.QUEUE:
            return
        queues = self.manager.queues
        target = queues.open(self.to, message.publication.payer)
        cost = cost_alone(head, 1, len(message.body))
        if not target.room_for(message.body) or cost > queues.memory.kept_room:
            raise ProtocolError(
                "queue-full", f"{self.to[:80]} has no room for more messages; the others stay"
            )
