"""The dead-letter queues: their names, and ``dlq ls``."""

import argparse

from trio_stomp.base import OptionError
from trio_stomp.cli._http_get import open_site
from trio_stomp.cli.commands._manage._kinds import KINDS, print_records

PREFIX, LAST_RESORT = "/queue/DLQ.", "/queue/deadletter"


def dead_letters_of(name: str) -> str:
    """Return the default dead-letter queue of a destination."""
    if name.startswith(PREFIX) or name == LAST_RESORT:
        return name
    return PREFIX + name.removeprefix("/queue/").removeprefix("/").removeprefix("#")


def queue_of(given: argparse.Namespace) -> dict[str, str]:
    """Return the dead-letter queue that a command of ``dlq`` means; {} for other commands.

    Raises:
      OptionError: the name is empty.
    """
    if "exact" not in given:
        return {}
    if not given.queue:
        raise OptionError("dlq: QUEUE is empty")
    return {"queue": given.queue if given.exact else dead_letters_of(given.queue)}


def list_dead(given: argparse.Namespace) -> int:
    """Print the dead-letter queues.

    Raises:
      CannotDo: the broker cannot be reached, or refuses.
    """
    kind = KINDS["queue"]
    found = open_site(given).records(kind.path, {})
    return print_records(given, kind, [each for each in found if each["dead_letters"]])
