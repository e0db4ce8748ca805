"""Values of the header ``message-id``.

A queue's message keeps its id through all deliveries: ``<boot>-<number>`` if it is in memory only,
or ``<store>-<id>`` if it is stored, so that it has the same id after a restart. A message that
cannot be delivered again, as of a topic without acknowledgement, has the id of its delivery:
``<boot>.<subscription>-<number>``.
"""

import re

from attrs import define, field

MAX_DIGITS = 20
"""Limit of digits in an id, checked first, because int() raises ValueError for thousands."""

_GIVEN = re.compile(rb"(?:[0-9]+_)?[0-9a-z]{7,}(?:\.[0-9a-z]+)?-[0-9]{1,%d}" % MAX_DIGITS)
"""The ids that a broker gives, perhaps before a restart: the time of its start makes 7 letters."""

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def base36(number: int) -> str:
    """Return a number >= 0 in base 36, as ``<boot>`` and ``<subscription>`` are written."""
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits


def may_have_been_given(name: bytes) -> bool:
    """Return whether an unknown id has the form of ours: an ACK of it is late, not wrong."""
    return _GIVEN.fullmatch(name) is not None


@define(eq=False, repr=False)
class MessageNames:
    """The prefixes of message ids.

    Args:
      boot: The prefix of the ids of messages in memory only.
      store: The prefix of the ids of stored messages; "" = there is no store.
    """

    boot: str = ""
    store: str = ""
    in_memory: bytes = field(init=False)
    in_store: bytes = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.in_memory = f"{self.boot}-".encode()
        self.in_store = f"{self.store}-".encode()

    def id_of(self, number: int, *, is_stored: bool) -> str:
        """Return the id of a waiting message."""
        return f"{(self.in_store if is_stored else self.in_memory).decode()}{number}"

    def number_of(self, name: bytes) -> int:
        """Return the number of the message with id ``name``, or 0 if the id is not valid now."""
        for begin in (self.in_memory, self.in_store):
            digits = name.removeprefix(begin)
            if digits != name and digits.isdigit() and len(digits) <= MAX_DIGITS:
                return int(digits)
        return 0

    def begins(self, name: bytes, *, is_stored: bool) -> bool:
        """Return whether an id has the prefix of stored messages, or of others."""
        return name.startswith(self.in_store if is_stored else self.in_memory)
