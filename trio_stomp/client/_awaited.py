"""Requests to the broker that wait for their RECEIPT."""

from collections.abc import Callable, Mapping

from attrs import define, frozen

from trio_stomp.base import StompError, noop
from trio_stomp.client.loops import Event
from trio_stomp.protocol import ClientFrames


@frozen
class Receipt:
    """The headers of a RECEIPT beside its id.

    Args:
      headers: All headers, as in docs/reference/wire.md or of another broker.
    """

    headers: Mapping[str, str]

    @property
    def stored(self) -> str:
        """Return where the message is stored (``memory``, ``journal``, …), or "" if unknown."""
        return self.headers.get("stored", "")

    @property
    def matched(self) -> int | None:
        """Return the number of subscribers that the message matched, or None if unknown."""
        return _number(self.headers.get("matched"))

    @property
    def duplicate(self) -> bool:
        """Return whether the broker discarded it as a duplicate by its ``x-dedup-id``."""
        return self.headers.get("duplicate") == "true"

    @property
    def stream_offset(self) -> int | None:
        """Return the message's offset in the topic's stream, or None if unknown."""
        return _number(self.headers.get("x-stream-offset"))


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


@define(eq=False, repr=False)
class Awaited:
    """A pending answer: a RECEIPT, or the reply to a request.

    Args:
      settled: A new event.
      again: Builds the frame again for the next link; None = the answer is lost with the link.
      on_settled: Called at once with the outcome: the answer, or an error.
    """

    _settled: Event
    again: Callable[[ClientFrames], bytes] | None = None
    on_settled: Callable[[object], None] = noop
    outcome: object = None
    """The answer or the error; None = pending."""

    def settle(self, outcome: object) -> None:
        """Set the outcome. Only the first one counts."""
        if self.outcome is None:
            self.outcome = outcome
            self.on_settled(outcome)
            self._settled.set()

    async def wait(self) -> object:
        """Wait for the answer, and return it.

        Raises:
          StompError: the outcome is an error.
        """
        await self._settled.wait()
        if isinstance(self.outcome, StompError):
            raise self.outcome
        return self.outcome
