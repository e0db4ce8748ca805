"""Messages that came back to a queue, in order."""

from bisect import bisect_left, bisect_right, insort
from operator import attrgetter
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio_stomp.broker.queues._message import Message

PIECE = 512
"""Messages that stand in one list; twice as many are parted. To move so many takes less than 1 us.
"""
_number = attrgetter("number")


@define(eq=False)
class Returned:
    """Messages by their number: any may be put in, the first is taken, and all can be looked at.

    A heap would do for the first two, but the order of a heap costs a sort each time that somebody
    looks into the queue.
    """

    pieces: "list[list[Message]]" = field(factory=list)
    """Lists that follow each other; none is empty. Read by who asks whether there is anything."""

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def __iter__(self) -> "Iterator[Message]":
        for piece in self.pieces:
            yield from piece

    @property
    def first(self) -> "Message":
        """Return the one with the least number. There must be one."""
        return self.pieces[0][0]

    def put(self, message: "Message") -> None:
        """Put a message into its place."""
        pieces = self.pieces
        if not pieces:
            pieces.append([message])
            return
        place = len(pieces) - 1
        piece = pieces[place]
        if message.number > piece[-1].number:  # they mostly come back in order
            piece.append(message)
        else:
            place = self._place(message.number)
            piece = pieces[place]
            insort(piece, message, key=_number)
        if len(piece) > 2 * PIECE:
            pieces[place : place + 1] = [piece[:PIECE], piece[PIECE:]]

    def pop(self) -> "Message":
        """Take the first out. There must be one."""
        piece = self.pieces[0]
        message = piece.pop(0)
        if not piece:
            del self.pieces[0]
        return message

    def take(self, message: "Message") -> None:
        """Take out one that is there."""
        place = self._place(message.number)
        piece = self.pieces[place]
        del piece[bisect_left(piece, message.number, key=_number)]
        if not piece:
            del self.pieces[place]

    def count_up_to(self, number: int) -> int:
        """Return how many there are with no greater number."""
        if not self.pieces:
            return 0
        place = self._place(number)
        before = sum(map(len, self.pieces[:place]))
        return before + bisect_right(self.pieces[place], number, key=_number)

    def behind(self, number: int, most: int) -> "list[Message]":
        """Return the first of those with a greater number, at most so many."""
        found: list[Message] = []
        for piece in self.pieces[self._place(number) :]:
            start = bisect_right(piece, number, key=_number)
            found += piece[start : start + most - len(found)]
            if len(found) == most:
                break
        return found

    def _place(self, number: int) -> int:
        """Which list a number belongs into: the first that does not end before it, or the last."""
        ends = len(self.pieces) - 1
        return min(bisect_left(self.pieces, number, key=_last), max(ends, 0))


def _last(piece: "list[Message]") -> int:
    return piece[-1].number
