"""The kind of destinations that a SUBSCRIBE names, and the cost of a subscription."""

from collections.abc import Sequence

from trio_stomp.base import CloseReason, MemoryBudget, ProtocolError
from trio_stomp.broker.delivery import Subscription, Target
from trio_stomp.broker.headers import SubscribeOptions
from trio_stomp.broker.names import Kind, classify
from trio_stomp.broker.routing import (
    hold_selector,
    no_memory_for,
    release_selector,
    subscription_cost,
)
from trio_stomp.broker.streams import stream_name


def kind_of(targets: Sequence[Target]) -> Kind:
    """Return the kind of destinations that a SUBSCRIBE names.

    Raises:
      ProtocolError: it names queues together with other kinds.
    """
    kinds = {classify(name) for name, _ in targets}
    if Kind.QUEUE in kinds and len(kinds) > 1:
        raise ProtocolError(
            "mixed-destinations",
            "a composite SUBSCRIBE names queues and topics together; use two subscriptions",
        )
    for kind in (Kind.QUEUE, Kind.STREAM):
        if kind in kinds:
            return kind
    return classify(targets[0][0])


def stream_of(
    destination: str, targets: Sequence[Target], options: SubscribeOptions, *, is_durable: bool
) -> str:
    """Return the name of the stream that a SUBSCRIBE reads.

    Args:
      destination: The destination header, for error texts.
      targets: The destinations it names.
      options: The options.
      is_durable: It names a durable subscription.

    Raises:
      ProtocolError: it names several streams, or has options that streams do not support.
    """
    if options.selector or options.no_local or options.browser or is_durable:
        raise ProtocolError(
            "unsupported",
            f"destination:{destination[:80]} is read as a stream, by offset: leave out "
            "selector, no-local, browser and the name of a durable subscription",
            reason=CloseReason.UNSUPPORTED,
        )
    name, pattern = targets[0]
    if len(targets) > 1 or pattern is not None:
        raise ProtocolError(
            "invalid-destination",
            f"destination:{destination[:80]} names several streams; a subscription reads one",
        )
    return name if classify(name) is Kind.STREAM else stream_name(name)


def charge(
    memory: MemoryBudget,
    subscription: Subscription,
    kind: Kind,
    ack: str,
    options: SubscribeOptions,
) -> None:
    """Charge a subscription's memory until it ends.

    Raises:
      ProtocolError: there is not enough memory.
    """
    ack = options.shared or ack  # its messages wait in a queue, too
    cost = subscription_cost(subscription, kind, ack, is_durable=bool(options.durable))
    selector, quota = subscription.selector, subscription.quota
    if memory.take_table(cost, quota):
        if selector is None or hold_selector(memory, selector, quota):
            subscription.cost = cost
            return
        memory.give_table(cost, quota)
    raise no_memory_for(memory, subscription)


def refund(memory: MemoryBudget, subscription: Subscription) -> None:
    """Refund the memory of a subscription that ends."""
    memory.give_table(subscription.cost, subscription.quota)
    if subscription.selector is not None:
        release_selector(memory, subscription.selector)
