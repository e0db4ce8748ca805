"""Cumulative ACKs of a subscription whose messages come from several partitions.

An ACK includes all earlier messages of its subscription. Each owner knows only the order of its own
messages, so the order in which the client got them is kept here until they are acknowledged. The
owners' prefetch limits bound their number.
"""

import re
from collections import deque
from collections.abc import Mapping

from attrs import define, field

from trio_stomp.cluster.routing._placement import Placement
from trio_stomp.frames import HeaderRules, encode_header

_SUBSCRIPTION = re.compile(rb"\nsubscription:[^\n]*\n")


@define(eq=False)
class Cumulative:
    """The unacknowledged messages of a client's cumulative subscriptions.

    Args:
      by_ack: MESSAGEs are acknowledged by their header ``ack``; else by ``message-id``.
    """

    by_ack: bool
    _ids: dict[bytes, deque[bytes]] = field(factory=dict)
    """The ids of messages in the order of their delivery, by the header line of the subscription.
    """
    _header: "re.Pattern[bytes]" = field(init=False)

    def __attrs_post_init__(self) -> None:
        name = b"ack" if self.by_ack else b"message-id"
        self._header = re.compile(rb"\n%b:([^\n]*)\n" % name)

    def __bool__(self) -> bool:
        return bool(self._ids)

    def add(self, subscription: str, rules: HeaderRules) -> None:
        """Begin to record the order of a subscription's messages."""
        self._ids[encode_header("subscription", subscription, rules)] = deque()

    def remove(self, subscription: str, rules: HeaderRules) -> None:
        """Forget a subscription, if it is known."""
        self._ids.pop(encode_header("subscription", subscription, rules), None)

    def note(self, message: bytes) -> None:
        """Record a MESSAGE that the client gets."""
        line = _SUBSCRIPTION.search(message)
        ids = self._ids.get(line[0][1:]) if line is not None else None
        if ids is not None:
            found = self._header.search(message)
            if found is not None:
                ids.append(found[1])

    def take(self, name: bytes, placement: Placement) -> Mapping[int, bytes]:
        """Return the last message of each other partition that an ACK includes, and forget them.

        Args:
          name: The id in the ACK.
          placement: Returns the partition of an id.
        """
        for ids in self._ids.values():
            if name not in ids:
                continue
            own, last = placement.marked(name.decode()), dict[int, bytes]()
            while (first := ids.popleft()) != name:
                last[placement.marked(first.decode())] = first
            last.pop(own, None)
            return last
        return {}
