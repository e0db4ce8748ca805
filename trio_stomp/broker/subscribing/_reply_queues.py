"""Subscriptions to reply queues: the broker creates them, and the client may replace them."""

from collections.abc import Sequence

from trio_stomp.broker.delivery import Client, Subscription, Target
from trio_stomp.broker.queues import AUTO
from trio_stomp.protocol import Subscribed


def needed(client: Client, private: str, public: str) -> Subscribed | None:
    """Return the SUBSCRIBE that gives a client its reply queue, or None if it has one.

    Args:
      client: The subscriber.
      private: The queue's name for the client, and the subscription's id.
      public: The queue's name for other clients.
    """
    named = (name for each in client.subscriptions.values() for name, _ in each.targets)
    if public in named or private in client.subscriptions:
        return None
    return Subscribed(private, private, AUTO, (("destination", private),), None)


def with_id(client: Client, key: str) -> Subscription | None:
    """Return the automatic subscription with an id, or None. A SUBSCRIBE may reuse its id."""
    made = client.subscriptions.get(key)
    is_automatic = made is not None and key in client.temporary and made.destination == key
    return made if is_automatic else None


def replaced(client: Client, targets: Sequence[Target]) -> list[Subscription]:
    """Return the automatic subscriptions that an explicit SUBSCRIBE to ``targets`` replaces."""
    names = {name for name, _ in targets}
    made = (
        client.subscriptions.get(private)
        for private, public in client.temporary.items()
        if public in names
    )
    return [each for each in made if each is not None and each.id == each.key]
