"""SENDs whose messages are not sent here and now: they are scheduled, or end schedules."""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Protocol

from attrs import define

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker.headers import (
    ACTION,
    IN_MEMORY,
    NOTHING,
    Dialect,
    Removal,
    Schedule,
    SendOutcome,
    SendPlan,
    make_plan,
)
from trio_stomp.broker.sending._duplicates import id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trio_stomp.broker.delivery import Client
    from trio_stomp.broker.durability import Log
    from trio_stomp.broker.routing import Destinations
    from trio_stomp.broker.sending._context import SendContext
    from trio_stomp.broker.sending._duplicates import Duplicates
    from trio_stomp.broker.sending._room import Planned
    from trio_stomp.broker.sending._scheduler import Scheduler
    from trio_stomp.frames import Head
    from trio_stomp.store import Stored


class Later(Protocol):
    """Makes the plans of SENDs, and takes messages whose plan says what to do with them later.

    ``SendLater``, or what a core that has only some of the destinations is given instead.
    """

    def plan(self, head: "Head") -> SendPlan:
        """Return the plan of a header block, which is cached there.

        Raises:
          ProtocolError: As for ``make_plan``, or a destination is not allowed.
        """

    def honest(self, client: "Client", head: "Head", honest: "Head") -> "tuple[Head, SendPlan]":
        """Return the header block without headers that only the broker may set, and its plan.

        Args:
          client: The sender.
          head: The header block.
          honest: The same without these headers.
        """

    def check(self, planned: "Planned", head: "Head", plan: SendPlan, bodies: list[bytes]) -> None:
        """Add messages to the sums of a transaction, before any of it is carried out.

        Raises:
          ProtocolError: They cannot be taken in it.
        """

    def take(
        self, context: "SendContext", head: "Head", plan: SendPlan, bodies: list[bytes]
    ) -> SendOutcome:
        """Take messages, and return the outcome of their SEND.

        Raises:
          NotYet: Work must be done first.
          ProtocolError: They cannot be taken. Nothing has changed.
        """

    def is_done(self, client: "Client", now: float) -> bool:
        """Return whether a COMMIT without actions may confirm that a client's messages have left.

        Returns:
          False if the client has gone before they have.

        Raises:
          NotYet: They leave later.
        """

    def lacks(self, name: str) -> bool:
        """Return whether another core than this one has a destination."""

    def restore(self, place: str, read: "Callable[[], Iterable[Stored]]") -> None:
        """Restore messages of a place in the store that nobody else knows.

        Raises:
          ValueError: It is not known here either.
        """


@define(eq=False, repr=False)
class SendLater:
    """Schedules messages, and checks them for duplicates. Implements ``Later``."""

    dialect: Dialect
    destinations: "Destinations"
    duplicates: "Duplicates"
    scheduler: "Scheduler"
    log: "Log | None"

    def plan(self, head: "Head") -> SendPlan:
        """Implement ``Later.plan``."""
        plan = head.plan
        if not isinstance(plan, SendPlan):
            plan = head.plan = make_plan(head, self.dialect)
        return plan

    def honest(self, _client: "Client", _head: "Head", honest: "Head") -> "tuple[Head, SendPlan]":
        """Implement ``Later.honest``."""
        return honest, self.plan(honest)

    def check(self, planned: "Planned", head: "Head", plan: SendPlan, bodies: list[bytes]) -> None:
        """Implement ``Later.check``."""
        if isinstance(plan.later, Removal):
            raise ProtocolError(
                "unsupported",
                f"{ACTION} in a transaction: its effect could not be undone if the COMMIT failed; "
                "send it outside a transaction",
                reason=CloseReason.UNSUPPORTED,
            )
        assert isinstance(plan.later, Schedule)
        name, scheduler = plan.names[0], self.scheduler
        planned.keep(name, head, bodies)
        planned.schedules += len(bodies)
        scheduler.check_count(planned.client.quota, name, planned.schedules)
        plan.later.first_due(scheduler.wall.ms(planned.now))  # or raise

    def take(
        self, context: "SendContext", head: "Head", plan: SendPlan, bodies: list[bytes]
    ) -> SendOutcome:
        """Implement ``Later.take``."""
        client, quota, later = context.client, context.quota, plan.later
        log, duplicates = self.log, self.duplicates
        if isinstance(later, Removal):
            assert client is not None  # the broker itself sends no removals
            assert context.answers is not None
            context.answers.append(self.scheduler.ending(client, later))
            return NOTHING
        assert isinstance(later, Schedule)
        name = id_of(client, plan.options)
        destination = self.destinations.ensure(plan.names[0], quota)
        window = duplicates.window_outcome(destination) if name else NOTHING
        # Check now: the repetitions of a scheduled message are no duplicates.
        outcome = duplicates.find(client, destination, name) if name else None
        if outcome is not None:
            return outcome | window
        if name:
            duplicates.check_room(quota, destination, name)
        survives = log is not None and (context.is_atomic or destination.stores(plan.options))
        with nullcontext() if log is None else log.atomically(must_retry=client is None):
            job = self.scheduler.keep(
                context, destination, head, later, bodies=bodies, survives=survives
            )
        if name:
            duplicates.remember(client, quota, destination, name, is_stored=survives)
        stored = log.stored if log is not None and survives else IN_MEMORY
        return stored | SendOutcome(job=job) | window

    def is_done(self, _client: "Client", _now: float) -> bool:
        """Implement ``Later.is_done``: they are not sent anywhere else."""
        return True

    def lacks(self, _name: str) -> bool:
        """Implement ``Later.lacks``."""
        return False

    def restore(self, _place: str, _read: "Callable[[], Iterable[Stored]]") -> None:
        """Implement ``Later.restore``."""
        raise ValueError("its parent record is missing")
