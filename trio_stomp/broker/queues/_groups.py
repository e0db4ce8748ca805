"""Message groups of a queue: all of one group go to one consumer, in order, while it is there."""

from collections import OrderedDict
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.routing import id_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from trio_stomp.broker.queues._consumer import Consumer

MAX_GROUPS = 10_000
"""Message groups remembered for each queue; the oldest is assigned anew."""


@define(eq=False, repr=False)
class Groups:
    """The message groups of a queue, and the consumer of each.

    Args:
      memory: Charged for their names; so is the quota of who has them.
    """

    memory: MemoryBudget
    owners: "OrderedDict[str, Consumer]" = field(factory=OrderedDict)

    def assign(self, group: str, consumer: "Consumer") -> None:
        """Let a consumer have a group from now on, as long as there is room to remember it."""
        cost, owners = id_cost(group), self.owners
        memory, quota = self.memory, consumer.subscription.quota
        while owners and (len(owners) >= MAX_GROUPS or cost > memory.tables_room_for(quota)):
            self._forget(next(iter(owners)))
        if memory.take_table(cost, quota):
            owners[group] = consumer

    def leave(self, consumer: "Consumer") -> None:
        """Reassign the groups of a leaving consumer."""
        self._keep(lambda owner: owner is not consumer)

    def keep_only(self, consumers: "Container[Consumer]") -> None:
        """Others are not served any more: their groups would wait for ever."""
        self._keep(lambda owner: owner in consumers)

    def _keep(self, wanted: "Callable[[Consumer], bool]") -> None:
        for group in [each for each, owner in self.owners.items() if not wanted(owner)]:
            self._forget(group)

    def _forget(self, group: str) -> None:
        consumer = self.owners.pop(group)
        self.memory.give_table(id_cost(group), consumer.subscription.quota)
