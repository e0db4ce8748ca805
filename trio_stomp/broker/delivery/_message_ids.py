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
    """How the names of messages begin.

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
        """The number of the message that a name of this run's means; 0 = it means none."""
        for begin in (self.in_memory, self.in_store):
            digits = name.removeprefix(begin)
            if digits != name and digits.isdigit() and len(digits) <= MAX_DIGITS:
                return int(digits)
        return 0

    def begins(self, name: bytes, *, is_stored: bool) -> bool:
        """Whether a name begins as those in memory alone do, or those that the store has."""
        return name.startswith(self.in_store if is_stored else self.in_memory)
