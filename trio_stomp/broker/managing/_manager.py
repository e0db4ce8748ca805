"""The operations: their arguments, and the treatment of each message."""

from typing import TYPE_CHECKING

from attrs import define, frozen

from trio_stomp.base import ProtocolError
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.browsing import Walk
from trio_stomp.broker.delivery import LossReason
from trio_stomp.broker.headers import make_plan
from trio_stomp.broker.managing._mover import Mover
from trio_stomp.broker.managing._operation import Act, Operation
from trio_stomp.broker.managing._removal import note_end, remove
from trio_stomp.broker.managing._retry import Retry
from trio_stomp.broker.queues import Queue, QueueBook
from trio_stomp.broker.rules import Action
from trio_stomp.broker.selectors import SelectorCompiler
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio_stomp.base import Identity
    from trio_stomp.broker.queues import Message
    from trio_stomp.broker.sending import Publisher

ALL = 2**63


@frozen
class Choice:
    """A choice of waiting messages of a queue.

    Args:
      queue: The name of the queue.
      selector: Chooses messages by their headers; "" = all.
      limit: Maximum number of messages to choose.
    """

    queue: str
    selector: str = ""
    limit: int = ALL


@define(eq=False, repr=False)
class Manager:
    """Pauses queues, and begins operations on their messages.

    Args:
      queues: The queues of the broker.
      publisher: Sends moved messages.
      selectors: Compiles selectors.
      authorizer: Has the access rules and the dialect of names.
    """

    queues: QueueBook
    publisher: "Publisher"
    selectors: SelectorCompiler
    authorizer: Authorizer
    purged: int = 0
    """Number of messages purged by operators."""

    def resolve(self, name: str) -> str:
        """Return the destination that a SEND to ``name`` goes to.

        Raises:
          ProtocolError: It is not a destination, or it is a composite one.
        """
        dialect = self.authorizer.dialect
        plan = make_plan(Head("SEND", (("destination", name),), 0, name), dialect)
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
        """Return an operation that shows messages without consuming or marking them.

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
        """Return an operation that removes messages permanently.

        Args:
          choice: The messages.
          by: The user, for ``explain``.

        Raises:
          ProtocolError: There is no such queue, or the selector is invalid.
        """

        def act(walk: Walk, messages: "list[Message]", _now: float) -> int:
            queue = walk.queue
            rule = f"purged by {by}" if by else "purged"
            note_end(queue, self.queues.event_history, messages, LossReason.PURGED, rule)
            remove(walk, messages)
            queue.destination.dropped += len(messages)
            self.purged += len(messages)
            return len(messages)

        return self._begin(choice, act, claims=True)

    def move(self, choice: Choice, to: str) -> Operation:
        """Return an operation that moves messages to another destination, each with one record.

        The operation ends early, with a ``problem``, at the first message for which there is no
        room, or that no subscriber would get.

        Args:
          choice: The messages.
          to: A name from ``resolve``.

        Raises:
          ProtocolError: There is no such queue, the selector is invalid, or both queues are the
            same.
        """
        if to == choice.queue:
            raise ProtocolError(
                "invalid-destination", f"{to[:80]} is the queue itself; name another destination"
            )
        mover = Mover(self.queues, self.publisher)

        def act(walk: Walk, messages: "list[Message]", now: float) -> int:
            moved = 0
            for message in messages:
                if message.publication.is_over(now):
                    continue  # it expires here, by the rules of this queue
                try:
                    mover.move(walk, message, to, now)
                except ProtocolError as error:
                    operation.problem = error.without_traceback()
                    break
                moved += 1
            return moved

        operation = self._begin(choice, act, claims=True)
        return operation

    def retry(self, choice: Choice, to: str, identity: "Identity") -> tuple[Operation, Retry]:
        """Return an operation that sends dead letters to their original destinations.

        A dead letter that cannot be sent stays, and the operation continues.

        Args:
          choice: The dead letters.
          to: A name from ``resolve``; "" = the original destination of each.
          identity: The user, who needs the right to send to each destination.

        Raises:
          ProtocolError: There is no such queue, or the selector is invalid.
        """
        rules = self.authorizer.rules
        rights = rules.rights(identity) if rules is not None else None
        retry = Retry(
            Mover(self.queues, self.publisher),
            to,
            resolve=self.resolve,
            may_send=lambda name: rights is None or rights.allows(Action.SEND, name),
        )
        return self._begin(choice, retry.act, claims=True), retry

    def pause(self, name: str) -> None:
        """Stop the hand-out of a queue to its consumers, until ``resume`` or a restart.

        Raises:
          ProtocolError: There is no such queue.
        """
        self.find(name).is_paused = True

    def resume(self, name: str) -> None:
        """Continue the hand-out of a queue.

        Raises:
          ProtocolError: There is no such queue.
        """
        queue = self.find(name)
        queue.is_paused = False
        self.queues.mark(queue)
        self.queues.note_idle(queue)

    def find(self, name: str) -> Queue:
        """Return the queue with this name.

        Raises:
          ProtocolError: There is no such queue.
        """
        queue = self.queues.find(name)
        if queue is None:
            raise ProtocolError(
                "no-such-queue",
                f"there is no queue {name[:80]!r}; queues exist while they have messages or"
                " consumers (trio-stomp ls queues shows them)",
            )
        return queue

    def record(self, event: str, queue: str, user: str, detail: str) -> None:
        """Publish the event of an operation, with its user."""
        self.authorizer.events.record(
            event, destination=queue, reason="operator", detail=detail, user=user
        )

    def _begin(self, choice: Choice, act: Act, *, claims: bool) -> Operation:
        queue = self.find(choice.queue)
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
