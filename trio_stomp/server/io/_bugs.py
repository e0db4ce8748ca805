"""Counts and logs faults of the broker itself, by kind."""

import logging
import sys
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import BrokenInvariant, FrameBug
from trio_stomp.frames import FrameRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.protocol import Event

CONNECTION, TURN, STORE, INVARIANT = KINDS = ("connection", "turn", "store", "invariant")
"""A bug that ended a connection, that cut a turn's work short, of the store; a broken invariant."""
MAX_SHOWN = 10

logger = logging.getLogger("trio_stomp")


@define(eq=False)
class Bugs:
    """The bugs since the start.

    Most end one connection, or one piece of work. A broken invariant leaves the core's state in
    doubt, so the broker is not ready for clients until it is restarted (docs/inside/invariants.md).
    """

    counts: dict[str, int] = field(factory=lambda: dict.fromkeys(KINDS, 0))
    broken: str = ""
    """One line about the first broken invariant, for /readyz; "" = none."""
    _told: set[str] = field(factory=set)

    def note(self, kind: str, text: str, *arguments: object) -> BrokenInvariant | None:
        """Count and log the exception that is being handled.

        Args:
          kind: One of KINDS, for an exception other than ``BrokenInvariant``.
          text: The line for the log.
          *arguments: The values of its placeholders.

        Returns:
          The exception, if it is a broken invariant. Each is logged once.
        """
        error = sys.exception()
        error = error.__cause__ if isinstance(error, FrameBug) else error
        if not isinstance(error, BrokenInvariant):
            self.tell(kind, text, *arguments)
            return None
        self.counts[INVARIANT] += 1
        what = f"broken invariant {error.name}{error.concerns and ' of '}{error.concerns[:200]}"
        if what not in self._told and len(self._told) < MAX_SHOWN:
            self._told.add(what)
            told = "%s: %s; restart the broker, which is not ready until then"
            logger.critical(told, what, error.state, exc_info=True, extra={"bug": INVARIANT})
        self.broken = self.broken or f"{what}: restart the broker (the log has the cause)"
        return error

    def tell(self, kind: str, text: str, *arguments: object) -> None:
        """Count and log a bug, with the exception that is being handled, if any."""
        self.counts[kind] += 1
        logger.error(text, *arguments, exc_info=sys.exception(), extra={"bug": kind})


def shape_of(events: "Sequence[Event]") -> str:
    """Return the commands, names of headers and sizes in events, without values and bodies."""
    shown = []
    for event in events[:MAX_SHOWN]:
        text = type(event).__name__
        if isinstance(event, FrameRun):
            names = ",".join(name for name, _ in event.head.headers[: 2 * MAX_SHOWN])
            text = f"SEND({names[:200]}) of {len(event.bodies)} x {len(event.bodies[0])} bytes"
        shown.append(text)
    return f"{len(events)} events: {'; '.join(shown)}"
