"""The list of an answer: records with bodies, which become JSON and are written piece by piece."""

import base64
import codecs
import json
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from trio_stomp.web._query import LIST_BYTES, Record
from trio_stomp.web.management.requests._result import Answering

if TYPE_CHECKING:
    from trio_stomp.base import MemoryBudget

BODY_BYTES = 1024 * 1024
"""The most bytes of a body, and of its JSON."""
FOUND_BYTES = 256 * 1024
"""An operation that has found more than this waits until it is written."""
PIECE_CHARS = 32 * 1024
"""Characters that become JSON at once: 0.1 to 0.5 ms."""


@define(eq=False, repr=False)
class Items:
    """The records of an answer, up to ``LIST_BYTES``.

    Args:
      name: The name of the list.
      memory: Is charged for what is found and not written.
      shown_bytes: The most bytes of a body.
    """

    name: str
    memory: "MemoryBudget"
    shown_bytes: int = 0
    size: int = 0
    """Bytes of the list so far."""
    is_full: bool = False
    """The next record would not fit."""
    found: "deque[tuple[Record, bytes, bool]]" = field(factory=deque)
    """Records without body, what is shown of the body, and whether that is all."""
    _found_bytes: int = 0
    _charged: int = 0

    def take(self, record: Record, body: bytes) -> bool:
        """Take a record. Return whether there is room for more before ``write``."""
        shown = body[: min(self.shown_bytes, BODY_BYTES)]
        self.found.append((record, shown, len(shown) == len(body)))
        headers = record["headers"]
        assert isinstance(headers, dict)
        self._found_bytes += len(shown) + sum(map(len, headers)) + sum(map(len, headers.values()))
        return self._found_bytes < FOUND_BYTES

    async def write(self, answering: Answering) -> None:
        """Write what was found, as far as it fits. Checkpoint: for each piece of a body."""
        while self.found and not self.is_full:
            record, shown, is_whole = self.found[0]
            parts = [json.dumps(record)[:-1]]
            for part in _body(shown, is_whole=is_whole):
                parts.append(part)
                await trio.lowlevel.checkpoint()
            text = "".join([*parts, "}"])
            self.is_full = self.size > 0 and self.size + len(text) > LIST_BYTES
            if not self.is_full:
                self.size += len(text) + 2
                self.found.popleft()
                self.charge(self._found_bytes + answering.waiting_bytes + len(text))
                await answering.add(self.name, text)
        self._found_bytes = 0
        self.charge(answering.waiting_bytes)

    def charge(self, size: int) -> None:
        """Charge this many bytes, instead of what was charged before."""
        self.memory.used_bytes += size - self._charged
        self._charged = size


def _body(shown: bytes, *, is_whole: bool) -> Iterator[str]:
    """Yield the field of a body in pieces: text, or base64 if it is not UTF-8.

    It is cut off where its JSON would be longer than ``BODY_BYTES``.
    """
    try:
        # Omit an incomplete character at the end.
        text = codecs.getincrementaldecoder("utf-8")().decode(shown, is_whole)
        yield ', "body": "'
    except UnicodeDecodeError:
        text = base64.b64encode(shown[: BODY_BYTES // 4 * 3]).decode()
        yield ', "body_base64": "'
    left = BODY_BYTES
    for start in range(0, len(text), PIECE_CHARS):
        piece = json.dumps(text[start : start + PIECE_CHARS])[1:-1]
        left -= len(piece)
        if left < 0:
            break
        yield piece
    yield '"'
