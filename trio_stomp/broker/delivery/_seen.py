"""The ids of messages that a destination has taken, for duplicate detection."""

from collections import OrderedDict

from attrs import define

from trio_stomp.base import Quota


@define(eq=False, repr=False)
class Known:
    """The record of an id for duplicate detection.

    Args:
      commit: The commit that its message belongs to.
      stored: Its id in the store; 0 = not stored.
      quota: The quota charged for it.
    """

    commit: int = 0
    stored: int = 0
    quota: Quota | None = None


Seen = OrderedDict[str, Known]
"""The ids of a destination, oldest first."""
