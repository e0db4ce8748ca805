"""The ids of accepted messages, for duplicate detection."""

from collections import OrderedDict

from attrs import define

from trio_stomp.base import Quota

UNWRITTEN = -1


@define(eq=False, repr=False)
class SeenId:
    """The record of an id for duplicate detection.

    Args:
      commit: The commit number of its message.
      stored: The id of this record in the store; 0 = it is not stored, UNWRITTEN = the log gets it
        at the end of the turn.
      quota: The quota charged for this record.
    """

    commit: int = 0
    stored: int = 0
    quota: Quota | None = None


Seen = OrderedDict[str, SeenId]
"""The ids of a destination, oldest first."""
