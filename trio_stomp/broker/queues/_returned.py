"""Messages that returned to a queue, in order."""

from bisect import bisect_left, bisect_right, insort
from operator import attrgetter
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import BrokenInvariant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio_stomp.broker.queues._message import Message

PIECE = 512
"""Messages of one list, which is split at twice as many. Moving this many takes less than 1 us."""
_number = attrgetter("number")


@define(eq=False)
class Returned:
    """A sorted collection of messages by number.

    Unlike a heap, it can be iterated in order without sorting.
    """

    pieces: "list[list[Message]]" = field(factory=list)
    """Consecutive sorted lists, none of them empty. Also the test whether there is any message."""

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def __iter__(self) -> "Iterator[Message]":
        for piece in self.pieces:
            yield from piece

    @property
    def first(self) -> "Message":
        """Return the message with the lowest number. There must be one."""
        return self.pieces[0][0]

    def put(self, message: "Message") -> None:
        """Insert a message."""
        pieces = self.pieces
        if not pieces:
            pieces.append([message])
            return
        index = len(pieces) - 1
        piece = pieces[index]
        if message.number > piece[-1].number:  # the usual case: they return in order
            piece.append(message)
        else:
            index = self._index_of(message.number)
            piece = pieces[index]
            insort(piece, message, key=_number)
        if len(piece) > 2 * PIECE:
            pieces[index : index + 1] = [piece[:PIECE], piece[PIECE:]]

    def extend(self, messages: "list[Message]") -> None:
        """Insert messages that are in order."""
        if messages and self.pieces and self.pieces[-1][-1].number > messages[0].number:
            for message in messages:
                self.put(message)
        elif messages and self.pieces and len(self.pieces[-1]) < PIECE:
            self.pieces[-1] += messages
        elif messages:
            self.pieces.append(messages)

    def pop(self) -> "Message":
        """Remove and return the first message. There must be one."""
        piece = self.pieces[0]
        message = piece.pop(0)
        if not piece:
            del self.pieces[0]
        return message

    def take(self, message: "Message") -> None:
        """Remove a message.

        Raises:
          BrokenInvariant: It is not there.
        """
        index = self._index_of(message.number)
        piece = self.pieces[index] if self.pieces else []
        place = bisect_left(piece, message.number, key=_number)
        if place == len(piece) or piece[place] is not message:
            state = f"message {message.number} is not at its place among {len(self)} returned ones"
            raise BrokenInvariant("queue-order", state, message.publication.destination.name)
        del piece[place]
        if not piece:
            del self.pieces[index]

    def behind(self, number: int, most: int) -> "list[Message]":
        """Return up to ``most`` messages after ``number``, in order."""
        found: list[Message] = []
        for piece in self.pieces[self._index_of(number) :]:
            start = bisect_right(piece, number, key=_number)
            found += piece[start : start + most - len(found)]
            if len(found) == most:
                break
        return found

    def _index_of(self, number: int) -> int:
        """Return the index of the list for a number: the first that ends at or after it."""
        ends = len(self.pieces) - 1
        return min(bisect_left(self.pieces, number, key=_last), max(ends, 0))


def _last(piece: "list[Message]") -> int:
    return piece[-1].number
