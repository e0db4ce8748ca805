"""The operations: their arguments, and the treatment of each message."""

from functools import partial
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import ProtocolError
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.browsing import Walk
from trio_stomp.broker.delivery import LossReason
from trio_stomp.broker.headers import TEMPORARY, make_plan
from trio_stomp.broker.managing._choice import Choice
from trio_stomp.broker.managing._declaring import Deletion, check_declarable, declaring
from trio_stomp.broker.managing._left import LeftManager
from trio_stomp.broker.managing._mover import Mover, Retry
from trio_stomp.broker.managing._operation import PIECE, Act, Operation
from trio_stomp.broker.managing._sending import Sending
from trio_stomp.broker.managing._stream_manager import StreamManager
from trio_stomp.broker.managing._task import Task
from trio_stomp.broker.names import check_length, check_public
from trio_stomp.broker.queues import Acknowledger, Queue, QueueBook
from trio_stomp.broker.rules import Action, needs
from trio_stomp.broker.selectors import SelectorCompiler
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trio_stomp.base import Identity
    from trio_stomp.broker.delivery import Client
    from trio_stomp.broker.durability import Log
    from trio_stomp.broker.managing._sending import AppliesFrames
    from trio_stomp.broker.queues import Consumer, Message
    from trio_stomp.broker.sending import Publisher
    from trio_stomp.frames import FrameRun, Headers


@define(eq=False, repr=False)
class Manager:
    """Pauses queues, and begins operations on their messages.

    Args:
      queues: The queues of the broker.
      publisher: Sends moved messages.
      selectors: Compiles selectors.
      authorizer: Has the access rules and the dialect of names.
      acknowledger: Returns messages from consumers.
      left: Lists and ends what clients leave in the broker.
      streams: Reads and trims streams.
    """

    queues: QueueBook
    publisher: "Publisher"
    selectors: SelectorCompiler
    authorizer: Authorizer
    acknowledger: Acknowledger
    left: LeftManager
    streams: StreamManager
    core: "AppliesFrames" = field(init=False)
    """The broker, set by itself."""
    purged: int = 0
    """Number of messages purged by operators."""

    def resolve(self, name: str, *, is_target: bool = False) -> str:
        """Return the destination that a SEND to ``name`` goes to.

        Args:
          name: The name.
          is_target: It is only sent to, so it may be private to a connection.

        Raises:
          ProtocolError: It is not a destination, too long, a composite one, or private.
        """
        found = self._names((("destination", name),))
        if len(found) != 1:
            raise ProtocolError(
                "invalid-destination", f"{name[:80]!r} names several destinations; give one"
            )
        check_length(found[0], self.queues.destinations.policies.max_destination_bytes)
        if not is_target:
            check_public(found[0])
        return found[0]

    def needs_of_send(self, headers: "Headers") -> "list[tuple[Action, str]]":
        """Return the rights that a SEND requires, as far as they are known before it is sent.

        Raises:
          ProtocolError: A header is invalid.
        """
        return [
            (Action.CREATE if name.startswith(TEMPORARY) else action, target)
            for name in self._names(headers)
            for action, target, _ in needs(Action.SEND, name)
        ]

    def _names(self, headers: "Headers") -> tuple[str, ...]:
        return make_plan(Head("SEND", headers, 0, headers[0][1]), self.authorizer.dialect).names

    def id_of(self, message: "Message") -> str:
        """Return the id of a waiting message."""
        names = self.publisher.fan_out.names
        return names.id_of(message.number, is_stored=bool(message.stored))

    def received_ms(self, message: "Message") -> int:
        """Return when a message was received, in milliseconds since 1970."""
        return self.publisher.wall.ms(message.publication.received_at)

    def look(self, choice: Choice, take: "Callable[[Message], bool]") -> Operation:
        """Return an operation that shows messages without consuming or marking them.

        Args:
          choice: The messages.
          take: Called with each message. Returns whether the step may go on.

        Raises:
          ProtocolError: There is no such queue, or the selector is invalid.
        """

        def act(_walk: Walk, messages: "list[Message]", now: float) -> int:
            (message,) = messages
            if not message.publication.is_over(now) and not take(message):
                self.queues.turns.begin(0.0)
            return 1

        return self._begin(choice, act, claims=False, piece=1)

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
            for message in messages:
                self.queues.note_lost(queue, LossReason.PURGED, message, rule)
            walk.remove(messages)
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
            (message,) = messages
            if message.publication.is_over(now):
                return 0  # it expires here, by the rules of this queue
            mover.move(walk, message, to, now)
            return 1

        return self._begin(choice, act, claims=True, piece=1)

    def retry(self, choice: Choice, to: str, identity: "Identity") -> Operation:
        """Return an operation that sends dead letters to their original destinations.

        A dead letter that cannot be sent stays, and the operation continues.

        Args:
          choice: The dead letters.
          to: A name from ``resolve``; "" = the original destination of each.
          identity: The user, who needs the right to send to each destination.

        Raises:
          ProtocolError: There is no such queue, or the selector is invalid.
        """
        retry = Retry(
            Mover(self.queues, self.publisher),
            to,
            resolve=partial(self.resolve, is_target=True),
            may_send=lambda name: self.authorizer.lacks(identity, Action.SEND, name) is None,
        )
        operation = self._begin(choice, retry.act, claims=True, piece=1)
        operation.left = retry.left
        return operation

    def redeliver(self, name: str, session: str) -> Task:
        """Begin to return unacknowledged messages to a queue. They do not count as failed.

        Args:
          name: The name of the queue.
          session: The session that has them; "" = all.

        Raises:
          ProtocolError: There is no such queue, or the session does not consume from it.
        """
        queue = self.find(name)
        consumers = [
            each for each in queue.consumers if session in ("", each.subscription.client.session_id)
        ]
        if session and not consumers:
            raise ProtocolError(
                "no-such-session", f"session {session[:80]!r} does not consume from {name[:80]}"
            )
        work = self._returning(queue, [(each, list(each.unacked)) for each in consumers])
        return Task(self.queues.turns, self._log, work, queue.unacked)

    def _returning(self, queue: Queue, held: "list[tuple[Consumer, list[int]]]") -> "Iterator[int]":
        acknowledger, done = self.acknowledger, 0
        for consumer, numbers in held:
            for number in numbers:
                message = consumer.unacked.get(number)
                if message is not None and message.source is queue:
                    acknowledger.note_room(consumer)
                    for each in consumer.take_acked(number, cumulative=False):
                        acknowledger.give_back(each, self.queues.turns.now)
                    done += 1
                    yield done

    @property
    def _log(self) -> "Log | None":
        return None if self.queues.storage is None else self.queues.storage.log

    def send(self, run: "FrameRun", identity: "Identity") -> Sending:
        """Begin to send a message as a client of a user does.

        Args:
          run: The SEND, which requests a RECEIPT.
          identity: The user.
        """
        turns, authorizer = self.queues.turns, self.authorizer
        return Sending(turns, None, run, core=self.core, authorizer=authorizer, identity=identity)

    def create(self, *names: str, user: str = "") -> Task:
        """Begin to create queues that stay until they are deleted, also over restarts.

        Args:
          names: The names of the queues.
          user: The user whose quota is charged for the names; "" = none.

        Raises:
          ProtocolError: One cannot be the name of a queue.
        """
        for name in names:
            check_declarable(name)
        quota = self.authorizer.quotas.of_user(user) if user else None
        work = declaring(self.queues, self._log, names, quota)
        return Task(self.queues.turns, self._log, work, len(names))

    def delete(
        self, name: str, close: "Callable[[Client], None]", *, by: str, force: bool
    ) -> Deletion:
        """Begin to delete a queue.

        Args:
          name: The name of the queue.
          close: Closes the connection of a client that consumes from it.
          by: The user, for ``explain``.
          force: Whether it may have messages and consumers.

        Raises:
          ProtocolError: There is no such queue, or it has messages or consumers.
        """
        queue = self.find(name)
        purge = (lambda at: self.purge(Choice(at), by)) if force else None
        turns, log = self.queues.turns, self._log
        return Deletion(turns, log, self.queues, queue=queue, purge=purge, close=close)

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

    def _begin(self, choice: Choice, act: Act, *, claims: bool, piece: int = PIECE) -> Operation:
        queue, storage = self.find(choice.queue), self.queues.storage
        newest_stored = storage.log.next_id - 1 if storage is not None else 0
        names, wall = self.publisher.fan_out.names, self.publisher.wall
        operation = Operation(
            self.queues.turns,
            self._log if claims else None,
            queues=self.queues,
            walk=Walk(queue, self.queues.accepted, newest_stored, storage, claims=claims),
            act=act,
            is_chosen=choice.condition(self.selectors, names, wall),
            limit=choice.most,
            piece=piece,
        )
        operation.total = queue.depth
        return operation
