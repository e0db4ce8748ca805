"""Scheduled messages that are due: sent on behalf of the user who scheduled them."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import ANONYMOUS, ProtocolError, noop
from trio_stomp.broker.delivery import Client, NullOutbox
from trio_stomp.broker.routing import MustCommit
from trio_stomp.broker.sending._room import Needs
from trio_stomp.protocol import Committed

if TYPE_CHECKING:
    from trio_stomp.base import Identity, Quota
    from trio_stomp.broker.delivery import Work
    from trio_stomp.broker.sending._publisher import Publisher
    from trio_stomp.broker.sending._transaction import TransactionCommitter
    from trio_stomp.frames import FrameRun


@define(eq=False, repr=False)
class DueSender:
    """Part of the scheduler: sends messages that are due, and makes room for them."""

    publisher: "Publisher"
    committer: "TransactionCommitter"

    def send(
        self,
        owner: "Identity | None",
        quota: "Quota | None",
        run: "FrameRun",
        now: float,
        *,
        survives: bool,
    ) -> int:
        """Send scheduled messages, and return how many were accepted.

        Args:
          owner: The user who scheduled them.
          quota: The quota charged for them.
          run: The run of SENDs.
          now: The time, in seconds of the broker's clock.
          survives: They were stored until now, and must stay stored.
        """
        publisher = self.publisher
        is_bound = survives and publisher.log is not None
        binding = publisher.atomic(must_retry=True) if is_bound else nullcontext()
        with publisher.to_topics.last_values.left_by(owner), binding:
            return publisher.send_for(run, quota, now)

    def is_long(self, quota: "Quota | None", run: "FrameRun") -> bool:
        """Return whether a run needs so many stored copies that it must be sent in pieces."""
        publisher = self.publisher
        try:
            _, plan = publisher.plan(None, run.head)
            destinations = [publisher.destinations.ensure(name, quota) for name in plan.names]
            if not all(map(publisher.destinations.refresh_few, destinations)):
                return any(each.stores(plan.options) for each in destinations)
            publisher.check_copies(destinations, plan.options, run.bodies)
        except MustCommit:
            return True
        except ProtocolError:
            pass  # the attempt to send it fails, too
        return False

    def sending(
        self,
        owner: "Identity | None",
        quota: "Quota | None",
        run: "FrameRun",
        now: float,
        *,
        note: Callable[[], None],
    ) -> "Work":
        """Send scheduled messages in pieces, as one record of the store.

        Args:
          owner: The user who scheduled them.
          quota: The quota charged for them.
          run: The run of SENDs.
          now: The time, in seconds of the broker's clock.
          note: Called at the end, to write to the same record that they were sent.

        Raises:
          ProtocolError: They cannot be sent. ``note`` has not been called.
        """
        client = Client("", NullOutbox(), identity=owner or ANONYMOUS, quota=quota)
        whole = Committed([run], None)
        return self.committer.commit(client, whole, now, noop, is_of_one=True, last=note)

    def making_room(self, quota: "Quota | None", run: "FrameRun", now: float) -> "Work | None":
        """Return the work that makes room for a run, or None if few messages must leave for it."""
        publisher, needs = self.publisher, Needs(None, quota, now)
        try:
            head, plan = publisher.plan(None, run.head)
            for name, each in plan.heads_by_name(head):
                needs.add(publisher.destinations.ensure(name, quota), each, run.bodies)
        except ProtocolError:
            return None  # the attempt to send them fails, too
        return publisher.making_room(needs)
