"""SENDs that send nothing here and now: they schedule, end schedules, or are sent on."""

from contextlib import nullcontext
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.broker.headers import ELSEWHERE, IN_MEMORY, NOTHING, Removal, SendOutcome
from trio_stomp.broker.sending._duplicates import id_of

if TYPE_CHECKING:
    from trio_stomp.broker.durability import Log
    from trio_stomp.broker.forwarding import Forwards
    from trio_stomp.broker.headers import SendPlan
    from trio_stomp.broker.routing import Destinations
    from trio_stomp.broker.sending._context import SendContext
    from trio_stomp.broker.sending._duplicates import Duplicates
    from trio_stomp.broker.sending._scheduler import Scheduler
    from trio_stomp.frames import Head


@define(eq=False, repr=False)
class SendLater:
    """Schedules messages, and checks them for duplicates; or has others get them."""

    forwards: "Forwards"
    destinations: "Destinations"
    duplicates: "Duplicates"
    scheduler: "Scheduler"
    log: "Log | None"

    def schedule(
        self, context: "SendContext", head: "Head", plan: "SendPlan", bodies: list[bytes]
    ) -> tuple[int, SendOutcome]:
        """Schedule messages, end schedules, or have others get them. Return as ``Publisher.send``.

        Args:
          context: What holds for the SEND.
          head: The header block.
          plan: The plan of the header block.
          bodies: The bodies of the messages.
        """
        client, quota, now = context.client, context.quota, context.now
        assert plan.schedule is not None
        if plan.schedule is ELSEWHERE:
            return len(bodies), self.forwards.keep(client, quota, head, bodies, now)
        count, log, duplicates = len(bodies), self.log, self.duplicates
        if isinstance(plan.schedule, Removal):
            assert client is not None  # the broker itself sends no removals
            assert context.answers is not None
            context.answers.append(self.scheduler.ending(client, plan.schedule))
            return count, NOTHING
        name = id_of(client, plan.options)
        destination = self.destinations.ensure(plan.names[0], quota)
        window = duplicates.window_outcome(destination) if name else NOTHING
        # Check now: the repetitions of a scheduled message are no duplicates.
        outcome = duplicates.find(client, destination, name) if name else None
        if outcome is not None:
            return count, outcome | window
        if name:
            duplicates.check_room(quota, destination, name)
        survives = log is not None and (context.is_atomic or destination.stores(plan.options))
        with nullcontext() if log is None else log.atomically(must_retry=client is None):
            job = self.scheduler.keep(
                client,
                quota=quota,
                destination=destination,
                head=head,
                schedule=plan.schedule,
                bodies=bodies,
                now=now,
                survives=survives,
            )
        if name:
            duplicates.remember(client, quota, destination, name, is_stored=survives)
        stored = log.stored if log is not None and survives else IN_MEMORY
        return count, stored | SendOutcome(job=job) | window
