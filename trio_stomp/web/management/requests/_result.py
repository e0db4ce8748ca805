"""The answer of an operation: its result, after lines of progress if the client wants them."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from attrs import define

from trio_stomp.transport import HttpRequest, encode_response
from trio_stomp.web._query import JSON, NOT_KEPT, with_list
from trio_stomp.web._query import Record as Record

if TYPE_CHECKING:
    from trio_stomp.server import Send

LINES = "application/x-ndjson"


@define(eq=False, repr=False)
class Answering:
    """The answer to one request.

    Args:
      send: Sends bytes to the client.
      in_lines: Whether the client wants lines of progress.
    """

    send: "Send"
    in_lines: bool = False
    _has_begun: bool = False

    @classmethod
    def to(cls, request: HttpRequest, send: "Send") -> Self:
        """Return the answer to ``request``, in the form that it accepts."""
        return cls(send, LINES.encode() in request.tokens(b"accept"))

    async def progress(self, record: Mapping[str, object]) -> None:
        """Send a line of progress, if the client wants any. Checkpoint: only then."""
        if self.in_lines:
            await self._line(json.dumps(record))

    async def end(
        self,
        record: Mapping[str, object],
        status: int = 200,
        items: tuple[str, Sequence[str]] = ("", ()),
    ) -> None:
        """Send the result. With lines of progress, the status was sent before. Checkpoint: always.

        Args:
          record: The fields of the result.
          status: The status.
          items: A list after these fields: its name, and its items as JSON.
        """
        name, listed = items
        text = with_list(record, name, listed) if name else json.dumps(record)
        if self.in_lines:
            await self._line(text)
        else:
            await self.send(encode_response(status, JSON, f"{text}\n".encode()))

    async def _line(self, text: str) -> None:
        line = f"{text}\n".encode()
        if not self._has_begun:
            self._has_begun = True
            # nginx must not hold the lines back.
            headers = (("Content-Type", LINES), *NOT_KEPT, ("X-Accel-Buffering", "no"))
            line = encode_response(200, headers, None) + line
        await self.send(line)
