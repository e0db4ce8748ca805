"""Message groups: all messages of a group go to one consumer, in order, while it is subscribed."""

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.routing import id_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from trio_stomp.broker.queues._consumer import Consumer

MAX_GROUPS = 10_000
"""Limit of message groups of a queue. Above it, the oldest is assigned anew."""


@define(eq=False, repr=False)
class Groups:
    """The message groups of a queue, and the consumer of each.

    Args:
      memory: Charged for their names, with the quota of their consumer.
    """

    memory: MemoryBudget
    owners: "OrderedDict[str, Consumer]" = field(factory=OrderedDict)
    held: Counter[str] = field(factory=Counter)
    """Groups with messages that are delayed for redelivery, and how many. Later ones wait."""

    def hold(self, group: str, change: int) -> None:
        """Add to the number of delayed messages of a group, or subtract from it."""
        if group:
            self.held[group] += change
            if not self.held[group]:
                del self.held[group]

    def assign(self, group: str, consumer: "Consumer") -> "list[Consumer]":
        """Assign a group to a consumer, if there is memory for it.

        Returns:
          The consumers that lost a group to make room.
        """
        cost, owners = id_cost(group), self.owners
        memory, quota = self.memory, consumer.subscription.quota
        losers: list[Consumer] = []
        while owners and (len(owners) >= MAX_GROUPS or cost > memory.tables_room_for(quota)):
            losers.append(self._forget(next(iter(owners))))
        if memory.take_table(cost, quota):
            owners[group] = consumer
        return losers

    def leave(self, consumer: "Consumer") -> None:
        """Forget the groups of a departing consumer. They are assigned anew."""
        self._keep(lambda owner: owner is not consumer)

    def keep_only(self, consumers: "Container[Consumer]") -> None:
        """Forget the groups of all other consumers, which are no longer served."""
        self._keep(lambda owner: owner in consumers)

    def _keep(self, stays: "Callable[[Consumer], bool]") -> None:
        for group in [each for each, owner in self.owners.items() if not stays(owner)]:
            self._forget(group)

    def _forget(self, group: str) -> "Consumer":
        consumer = self.owners.pop(group)
        self.memory.give_table(id_cost(group), consumer.subscription.quota)
        return consumer
