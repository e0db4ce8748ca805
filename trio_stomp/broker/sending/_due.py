"""Scheduled messages that are due: sent on behalf of the user who scheduled them."""

from contextlib import nullcontext
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import ProtocolError
from trio_stomp.broker.sending._room import Needs

if TYPE_CHECKING:
    from trio_stomp.base import Identity, Quota
    from trio_stomp.broker.delivery import Work
    from trio_stomp.broker.sending._publisher import Publisher
    from trio_stomp.frames import FrameRun


@define(eq=False, repr=False)
class DueSender:
    """Part of the scheduler: it sends what is due, and makes room for it."""

    publisher: "Publisher"

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
        binding = publisher.bound(is_kept=True) if is_bound else nullcontext()
        with publisher.to_topics.last_values.left_by(owner), binding:
            return publisher.send_for(run, quota, now)

    def making_room(self, quota: "Quota | None", run: "FrameRun", now: float) -> "Work | None":
        """Return the work that makes room for a run of ``quota``; None if few must leave for it."""
        publisher, needs = self.publisher, Needs(None, quota, now)
        try:
            head, plan = publisher.plan(None, run.head)
            for name, each in plan.heads_by_name(head):
                needs.add(publisher.destinations.place(name, quota), each, run.bodies)
        except ProtocolError:
            return None  # they cannot be sent at all, as the attempt will tell
        return publisher.making_room(needs)
