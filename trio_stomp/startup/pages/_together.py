"""Requests that several partitions answer, each for its part: their answers become one."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from trio_stomp.base import Identity
from trio_stomp.broker import Action
from trio_stomp.server import Send
from trio_stomp.startup.pages._exchange import Absent, Asked, ask_all
from trio_stomp.startup.pages._lists import HEADERS
from trio_stomp.transport import HttpError, HttpRequest, encode_response

Record = dict[str, Any]

Shown = tuple[int, tuple[tuple[str, str], ...], bytes]
"""Status, headers and body."""


def as_json(record: Record) -> Shown:
    """Return a record as the answer to a client."""
    return 200, HEADERS, f"{json.dumps(record)}\n".encode()


@frozen
class Together:
    """A request that several partitions answer. Implements ``WebOperation``.

    Args:
      request: The request of the client.
      asked: What each partition is asked.
      merge: Returns their answers as one.
      rehearsal: What each is asked before. If one refuses or has no owner, nothing is changed.
      shown: Returns the whole answer to the client.
      max_body_bytes: The largest body.
    """

    request: HttpRequest
    asked: Asked
    merge: Callable[[Sequence[Record]], Record]
    rehearsal: Asked = ()
    shown: Callable[[Record], Shown] = as_json
    max_body_bytes: int = 0
    rights: Sequence[tuple[Action, str]] = ()
    """Each broker checks them for the user."""

    async def run(self, identity: Identity, send: Send, body: bytes) -> None:
        """Implement ``WebOperation.run``.

        Raises:
          HttpError: A partition has no owner, or refuses. The text says what others have done.
        """
        if self.rehearsal:
            await self._answers(self.rehearsal, identity, send, body)
        record = self.merge(await self._answers(self.asked, identity, send, body))
        is_head = self.request.method == "HEAD"
        await send(encode_response(*self.shown(record), head_only=is_head))

    async def _answers(
        self, asked: Asked, identity: Identity, send: Send, body: bytes
    ) -> list[Record]:
        """Return the answers of those who have what is asked for. Raises: as ``run``."""
        answers = await ask_all(asked, identity, send.hold, body)
        changes = asked is self.asked and self.request.method == "POST"
        done = [
            place.name
            for (place, _), answer in zip(asked, answers, strict=True)
            if changes and answer is not None and answer.status == 200
        ]
        rest = f"; {', '.join(done)} did it: ask again, which is harmless" if done else ""
        found: list[Record] = []
        lacking: HttpError | None = None
        for (place, _), answer in zip(asked, answers, strict=True):
            if answer is None:
                raise Absent(place, rest)
            record = answer.record()
            if answer.status == 200:
                found.append(record)
                continue
            error = HttpError(
                answer.status, f"{record.get('error')}{rest}", code=f"{record.get('code', '')}"
            )
            if answer.status != 404:
                raise error
            lacking = lacking or error
        if lacking is not None and not found:
            raise lacking
        return found


def sums(records: Sequence[Record]) -> Record:
    """Return the sums of numbers; of other fields, the first."""
    return {
        name: sum(each[name] for each in records) if type(value) is int else value
        for name, value in records[0].items()
    }


def definitions(records: Sequence[Record]) -> Record:
    """Return what several partitions export, or what they import. Each has all policies."""
    return {
        name: _joined([each[name] for each in records]) if isinstance(value, list) else value
        for name, value in records[0].items()
    }


def _joined(lists: Sequence[list[Any]]) -> list[Any]:
    """Return the names, or records, of several lists in order, names once."""
    found = [each for one in lists for each in one]
    if any(isinstance(each, str) for each in found):
        return sorted(set(found))
    return sorted(found, key=lambda record: str(record["name"]))
