"""Names of messages: the ``message-id`` that a queue's message keeps through all deliveries.

``<boot>-<number>`` if it is in memory alone, ``<store>-<id>`` if the store has it: so it has the
same name after a restart. What is handed out to nobody twice, as a topic's messages to subscribers
that acknowledge nothing, is named by its delivery instead: ``<boot>.<subscription>-<number>``.
"""

from attrs import define, field

MAX_DIGITS = 20
"""Digits of a number in a name; int() refuses thousands of them with an error of its own."""


@define(eq=False, repr=False)
class MessageNames:
    """The prefixes of message ids.

    Args:
      boot: Of those in memory alone.
      store: Of those that the store has; "" = there is no store.
    """

    boot: str = ""
    store: str = ""
    in_memory: bytes = field(init=False)
    in_store: bytes = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.in_memory = f"{self.boot}-".encode()
        self.in_store = f"{self.store}-".encode()

    def number_of(self, name: bytes) -> int:
        """Return the number of the message that an id of this run means, or 0."""
        for begin in (self.in_memory, self.in_store):
            digits = name.removeprefix(begin)
            if digits != name and digits.isdigit() and len(digits) <= MAX_DIGITS:
                return int(digits)
        return 0

    def begins(self, name: bytes, *, is_stored: bool) -> bool:
        """Return whether an id has the prefix of transient or of stored messages."""
        return name.startswith(self.in_store if is_stored else self.in_memory)
