"""Requests of the core to read from the store."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define

if TYPE_CHECKING:
    from trio_stomp.store import Store


@define(eq=False, repr=False)
class StoreRead:
    """A request to read from the store.

    Args:
      read: Reads up to ``max_bytes``, in a thread.
      max_bytes: The limit of the read.
      take: Called with the result and the time, in a turn. None = the read failed and may be
        repeated.
    """

    read: Callable[["Store", int], Any]
    max_bytes: int
    take: Callable[[Any, float], None]
