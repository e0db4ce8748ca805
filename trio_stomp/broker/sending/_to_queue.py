"""SENDs to queues: messages are enqueued as far as there is room."""

from collections.abc import Iterable

from attrs import define

from trio_stomp.base import Quota
from trio_stomp.broker.delivery import Client, Destination, Publication
from trio_stomp.broker.headers import DROPPED, EXPIRED, PRIORITY_DEFAULT, SendOutcome, of_run
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import Admission, Overflow, QueueBook, head_lines
from trio_stomp.broker.sending._temporary import is_orphan
from trio_stomp.frames import Head, head_cost
from trio_stomp.store import stored_cost


@define(eq=False, repr=False)
class QueueSender:
    """Puts messages into queues."""

    queues: QueueBook
    overflow: Overflow

    def check_room(
        self,
        client: Client | None,
        destinations: list[Destination],
        head: Head,
        bodies: list[bytes],
        quota: Quota | None,
        each: int,
    ) -> None:
        """Check that a composite SEND fits into all its queues.

        Args:
          client: The sender; None = the broker.
          destinations: The destinations.
          head: The header block.
          bodies: The bodies of the messages.
          quota: The quota charged for them.
          each: Bytes of a message in the store besides its body; 0 = it is not stored.

        Raises:
          QueueFull: it does not.
        """
        size = sum(map(len, bodies))
        self.overflow.check(
            {
                self.queues.open(destination.name, quota): (
                    len(bodies),
                    size,
                    max(map(len, bodies)),
                )
                for destination in destinations
                if destination.kind is Kind.QUEUE and not is_orphan(client, destination)
            },
            head_cost(head),
            quota=quota,
            each=each,
            may_drop=client is not None,
        )

    def stored_each(self, quota: Quota | None, heads: Iterable[Head]) -> int:
        """Return the maximum bytes of a message in the store, besides its body.

        Args:
          quota: The quota charged for it.
          heads: The header blocks it may have.

        Returns:
          Bytes; 0 = there is no store.
        """
        if self.queues.storage is None:
            return 0
        line = b"" if quota is None else quota.line
        longest = max((len(head_lines(head)) for head in heads), default=0)
        return stored_cost(len(line) + longest, 1, 0)

    def enqueue(
        self, publication: Publication, taken: SendOutcome, now: float
    ) -> tuple[int, SendOutcome]:
        """Put a run into a queue: as a whole if it fits, else message by message by its policy.

        Args:
          publication: The run.
          taken: The outcome of messages that the queue takes.
          now: The time, in seconds of the broker's clock.

        Returns:
          The number of messages that were taken or dropped, and their outcome. The others wait.

        Raises:
          QueueFull: the queue refuses the next one.
        """
        destination, bodies = publication.destination, publication.bodies
        queue = self.queues.open(destination.name, publication.quota)
        options, level = publication.options, PRIORITY_DEFAULT
        if options is not None:
            level = options.priority
            if publication.is_over(now) and not queue.policy.dead_letter_expired:
                taken = EXPIRED  # it leaves as it came
        origin = publication.without_bodies()
        answers = self.overflow.admit(queue, origin, bodies, level=level, now=now)
        if answers.count(Admission.TAKEN) == len(bodies):
            return len(bodies), taken
        outcomes = [taken if each is Admission.TAKEN else DROPPED for each in answers]
        if answers[-1] in (Admission.WAITS, Admission.REFUSED):
            outcomes.pop()
        if answers[-1] is Admission.REFUSED:
            error = self.overflow.refusal(queue, origin, bodies[len(outcomes)])
            error.done, error.outcome = len(outcomes), of_run(outcomes)
            raise error
        return len(outcomes), of_run(outcomes)
