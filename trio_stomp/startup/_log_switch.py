"""Logging of a broker to a logger of the embedding program."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

OURS = logging.getLogger("trio_stomp")
TARGET: ContextVar[logging.Logger | None] = ContextVar("trio_stomp_logger", default=None)
"""The logger for tasks of this context; None = the usual one."""


class _Switch(logging.Filter):
    """A filter on the logger ``trio_stomp`` while at least one broker logs elsewhere.

    That logger must create the records of all targets, so meanwhile its level is their lowest. The
    output of other brokers does not change.
    """

    def __init__(self) -> None:
        super().__init__()
        self.own_level = OURS.level
        self.targets: list[logging.Logger] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the usual handlers get a record. Pass others to their target."""
        target = TARGET.get()
        if target is None:
            return record.levelno >= self.usual_level()
        if target.isEnabledFor(record.levelno):
            target.handle(record)
        return False

    def usual_level(self) -> int:
        above = OURS.parent
        assert above is not None
        return self.own_level or above.getEffectiveLevel()

    def adjust(self) -> None:
        if self.targets:
            wanted = [target.getEffectiveLevel() for target in self.targets]
            OURS.setLevel(min(self.usual_level(), *wanted))
        else:
            OURS.setLevel(self.own_level)
            OURS.removeFilter(self)


@contextmanager
def log_to(target: logging.Logger | None) -> Iterator[None]:
    """Let this task, and tasks started within the block, log to ``target``.

    Args:
      target: The logger; None or the logger ``trio_stomp`` = the usual one.
    """
    if target is None or target is OURS:
        yield
        return
    switch = next((each for each in OURS.filters if isinstance(each, _Switch)), None)
    if switch is None:
        OURS.addFilter(switch := _Switch())
    switch.targets.append(target)
    switch.adjust()
    token = TARGET.set(target)
    try:
        yield
    finally:
        TARGET.reset(token)
        switch.targets.remove(target)
        switch.adjust()


def trace_logger() -> logging.Logger:
    """Return the logger of live traces: the chosen target, or the broker's own."""
    return TARGET.get() or OURS.getChild("trace")
