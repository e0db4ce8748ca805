"""The answer of an operation: its result, after lines of progress if the client wants them."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from attrs import define, field

from trio_stomp.transport import HttpRequest, encode_response
from trio_stomp.web._query import JSON, NOT_KEPT, with_list
from trio_stomp.web._query import Record as Record

if TYPE_CHECKING:
    from trio_stomp.server import Send

LINES = "application/x-ndjson"


FLUSH_BYTES = 64 * 1024
"""A list that is longer is written while it is made."""


@define(eq=False, repr=False)
class Answering:
    """The answer to one request.

    Args:
      send: Sends bytes to the client.
      in_lines: Whether the client wants lines of progress.
    """

    send: "Send"
    in_lines: bool = False
    waiting_bytes: int = 0
    """Bytes of the list that were added and are not written."""
    _waiting: list[str] = field(factory=list)
    _has_begun: bool = False
    _is_listing: bool = False
    """The beginning of a list was written."""

    @classmethod
    def to(cls, request: HttpRequest, send: "Send") -> Self:
        """Return the answer to ``request``, in the form that it accepts."""
        return cls(send, LINES.encode() in request.tokens(b"accept"))

    async def progress(self, record: Mapping[str, object]) -> None:
        """Send a line of progress, if the client wants any. Checkpoint: only then."""
        if self.in_lines and not self._is_listing:
            await self._write(json.dumps(record) + "\n")

    async def add(self, name: str, item: str) -> None:
        """Add JSON to the list of this name, which is written if it is long. Checkpoint: then."""
        self._waiting.append(item)
        self.waiting_bytes += len(item)
        if self.waiting_bytes >= FLUSH_BYTES:
            begin = ", " if self._is_listing else f"{{{json.dumps(name)}: ["
            self._is_listing = True
            await self._write(begin + self._listed())

    async def end(self, record: Mapping[str, object], status: int = 200, name: str = "") -> None:
        """Send the result. If a part was sent before, the status was, too. Checkpoint: always.

        Args:
          record: The fields of the result.
          status: The status.
          name: The name of the list, if there is one.
        """
        if self._is_listing:
            rest = f", {self._listed()}" if self._waiting else ""
            await self._write(f"{rest}], {json.dumps(record)[1:]}\n")
            return
        text = with_list(record, name, [self._listed()]) if name else json.dumps(record)
        if self.in_lines:
            await self._write(f"{text}\n")
        else:
            await self.send(encode_response(status, JSON, f"{text}\n".encode()))

    def _listed(self) -> str:
        text = ", ".join(self._waiting)
        self._waiting.clear()
        self.waiting_bytes = 0
        return text

    async def _write(self, text: str) -> None:
        data = text.encode()
        if not self._has_begun:
            self._has_begun = True
            # nginx must not hold the lines back.
            headers = (("Content-Type", LINES), *NOT_KEPT, ("X-Accel-Buffering", "no"))
            data = encode_response(200, headers if self.in_lines else JSON, None) + data
        await self.send(data)
