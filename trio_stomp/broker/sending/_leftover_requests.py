"""Answers requests to ``DIAG/left``: users' scheduled messages, last values and quotas."""

import json
from collections.abc import Generator, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import ANONYMOUS_NAME, Identity, ProtocolError
from trio_stomp.broker.headers import MAX_NUMBER
from trio_stomp.broker.routing import Destinations, Quotas
from trio_stomp.broker.sending._scheduler import Scheduler
from trio_stomp.broker.topics import LastValueOwner, LastValues

if TYPE_CHECKING:
    from trio_stomp.broker.sending._scheduled import Scheduled

SCHEDULES, LAST_VALUES, QUOTAS = "schedules", "last-values", "quotas"
MAX_ROWS = 200
"""Maximum number of rows in an answer."""
MAX_LOOKED = 2000
"""Maximum number of items examined for an answer."""
MAX_QUESTION_CHARS = 4096

Row = dict[str, object]


@define(eq=False, repr=False)
class LeftoverRequests:
    """Lists users' scheduled messages, last values and quotas, in pages. Changes nothing."""

    scheduler: Scheduler
    destinations: Destinations
    last_values: LastValues
    quotas: Quotas

    def answering(self, question: str) -> Generator[None, None, dict[str, object]]:
        """Answer a request, which is JSON with ``what``, ``user`` and ``after``, or "".

        If the answer has ``next``, there is more: request it with that value as ``after``.

        Raises:
          ProtocolError: the request is invalid.
        """
        what, user, after = read_question(question)
        if what == QUOTAS:
            return {
                "what": what,
                "left": self.quotas.figures(),
                "refused_total": self.quotas.refused,
            }
        found = self._last_values(after) if what == LAST_VALUES else self._schedules(after)
        rows: list[Row] = []
        for looked, (index, row) in enumerate(found):
            if looked == MAX_LOOKED or len(rows) == MAX_ROWS:
                return {"what": what, "left": rows, "next": after}
            after = index
            if user is None or row["user"] == user:
                rows.append(row)
            if what == SCHEDULES:
                yield  # it may hold very many messages
        return {"what": what, "left": rows}

    def _schedules(self, after: int) -> Iterator[tuple[int, Row]]:
        for item in self.scheduler.jobs.beginning_at(after + 1):
            if item.timer and item.first > after:
                yield item.first, self.schedule(item)

    def schedule(self, item: "Scheduled") -> Row:
        """Return the row of scheduled messages."""
        first, last = item.numbers[0], item.numbers[-1]
        return {
            "id": f"{first}-{last}" if last > first else f"{first}",
            "user": _name(item.owner),
            "destination": item.destination,
            "messages": len(item.bodies),
            "bytes": sum(map(len, item.bodies)),
            "due_ms": self.scheduler.due_ms(item),
            "sent": item.sent,
            "repeats": bool(item.schedule.repeat or item.schedule.cron),
            "stored": bool(item.ids),
        }

    def _last_values(self, after: int) -> Iterator[tuple[int, Row]]:
        found = islice(self.last_values.owners.items(), after, None)
        for index, (name, owner) in enumerate(found, after + 1):
            yield index, self.last_value(name, owner)

    def last_value(self, name: str, owner: LastValueOwner) -> Row:
        """Return the row of the last value of a topic, without figures if it has none any more."""
        destination = self.destinations.find(name)
        value = None if destination is None else destination.retained
        return {
            "user": _name(owner.owner),
            "destination": name,
            "bytes": 0 if value is None else len(value.bodies[-1]),
            "set_ms": 0 if value is None else self.scheduler.wall.ms(value.received_at),
            "stored": destination is not None and bool(destination.retained_id),
        }


def _name(owner: Identity | None) -> str | None:
    """Return the owner's name in the rules, or None if it is unknown."""
    return None if owner is None else owner.name or ANONYMOUS_NAME


def read_question(question: str) -> tuple[str, str | None, int]:
    """Return the kind, the user and the row to begin after, as a request names them.

    Raises:
      ProtocolError: It is not a valid request.
    """
    request: object = {}
    try:
        if question.strip():
            request = json.loads(question) if len(question) <= MAX_QUESTION_CHARS else None
    except (ValueError, RecursionError):
        request = None
    if isinstance(request, Mapping):
        what, user, after = (
            request.get("what", SCHEDULES),
            request.get("user"),
            request.get("after", 0),
        )
        is_known = what in (SCHEDULES, LAST_VALUES, QUOTAS) and isinstance(user, str | None)
        if is_known and type(after) is int and 0 <= after <= MAX_NUMBER:
            return what, user, after
    raise ProtocolError(
        "invalid-question",
        f"{question[:80]!r} is not a request for DIAG/left; send JSON such as"
        ' {"what": "schedules", "user": "alice"}, {"what": "last-values"} or {"what": "quotas"}',
    )
