"""Memory of names, subscriptions and ids, and the errors when there is none left.

The figures were measured and rounded up. They are charged to the tables of the budget, apart from
messages, so that many subscriptions do not stop messages, nor full queues a SUBSCRIBE.
"""

from typing import TYPE_CHECKING

from trio_stomp.base import CloseReason, MemoryBudget, ProtocolError, Quota
from trio_stomp.broker.names import Kind
from trio_stomp.broker.routing._quotas import no_names
from trio_stomp.frames import text_cost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trio_stomp.broker.delivery import Subscription, Target
    from trio_stomp.broker.selectors import Selector

_AUTO = "auto"

DESTINATION_BYTES = 1184
QUEUE_BYTES = 1664
"""A queue, in addition to its destination."""
SUBSCRIPTION_BYTES = 768
CONSUMER_BYTES = 768
"""The consumer of a subscription."""
JOIN_BYTES = 128
"""A queue that a wildcard matches: its entries in the lists of queue and consumer."""
PASSED_BYTES = 256
"""A consumer's scan position in a queue, for one priority."""
BINDING_BYTES = 2176
"""A subscription's own queue, or its place in a stream."""
PATTERN_BYTES = 512
TOKEN_BYTES = 320
"""A word or separator of a pattern."""
ID_BYTES = 256
"""An id for duplicate detection, or the name of a message group."""


def destination_cost(name: str, kind: Kind) -> int:
    """Return the bytes of a destination in use."""
    queue = QUEUE_BYTES if kind is Kind.QUEUE else 0
    return DESTINATION_BYTES + queue + 2 * text_cost(name)


def targets_cost(targets: "Iterable[Target]") -> int:
    """Return the bytes of the names and patterns of a subscription."""
    cost = 0
    for name, pattern in targets:
        cost += 2 * text_cost(name)
        if pattern is not None:
            cost += PATTERN_BYTES + TOKEN_BYTES * len(pattern.tokens)
    return cost


def subscription_cost(
    subscription: "Subscription", kind: Kind, ack: str, *, is_durable: bool
) -> int:
    """Return the bytes of a subscription without its selector.

    The queue of a durable subscription outlives it and is charged separately.
    """
    # Three times: the id, the same as key, and escaped in the prefix of each MESSAGE.
    cost = SUBSCRIPTION_BYTES + 3 * text_cost(subscription.key)
    cost += 2 * text_cost(subscription.destination)
    if kind is Kind.QUEUE:
        return cost + CONSUMER_BYTES + targets_cost(subscription.targets)
    if ack == _AUTO and kind is not Kind.STREAM and not is_durable:
        return cost + targets_cost(subscription.targets)
    cost += CONSUMER_BYTES
    return cost if is_durable else cost + BINDING_BYTES + targets_cost(subscription.targets)


def id_cost(name: str) -> int:
    """Return the bytes of an id that a client made up."""
    return ID_BYTES + text_cost(name)


def hold_selector(memory: MemoryBudget, selector: "Selector", quota: Quota | None = None) -> bool:
    """Charge a selector to its first user, or only count one more user.

    Returns:
      False if there is no memory; then nothing has changed.
    """
    if not selector.users:
        if not memory.take_table(selector.cost, quota):
            return False
        selector.payer = quota
    selector.users += 1
    return True


def force_selector(memory: MemoryBudget, selector: "Selector", quota: Quota | None = None) -> None:
    """Do the same for a selector that must not be refused."""
    if not selector.users:
        memory.force_table(selector.cost, quota)
        selector.payer = quota
    selector.users += 1


def release_selector(memory: MemoryBudget, selector: "Selector") -> None:
    """Count one user less. The last one returns the memory."""
    selector.users -= 1
    if not selector.users:
        memory.give_table(selector.cost, selector.payer)
        selector.payer = None


def no_table_memory(memory: MemoryBudget, what: str, quota: Quota | None = None) -> ProtocolError:
    """Return the error for a name or subscription that memory or a quota has no room for."""
    if quota is not None and memory.tables_room_for(quota) < memory.tables_room:
        return no_names(memory, quota, what)
    return ProtocolError(
        "memory-limit",
        f"there is no memory for {what}: names and subscriptions take what they may, half as much"
        " as option max_memory_bytes; UNSUBSCRIBE what is not needed, or use fewer names",
        reason=CloseReason.MEMORY_LIMIT,
    )


def no_memory_for(memory: MemoryBudget, subscription: "Subscription") -> ProtocolError:
    """Return the error for a subscription that finds no memory."""
    what = f"a subscription to {subscription.destination[:80]}"
    return no_table_memory(memory, what, subscription.quota)
