"""Pages of much are made in pieces: whoever else is ready does not wait for all of one.

Each piece is some 0.1 ms of work, and a page is a generator that stops between them; it gives its
answer at the end. What it tells of was there when it began, and each thing is looked at once, at
some moment since then.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from trio_stomp.base import LOOKS, Pieces, slices
from trio_stomp.transport import HttpRequest

T = TypeVar("T")


def in_one(answer: Callable[[HttpRequest], T]) -> Callable[[HttpRequest], Pieces[T]]:
    """Return what makes an answer of little, in one piece."""

    def make(request: HttpRequest) -> Pieces[T]:
        yield from ()
        return answer(request)

    return make


def chosen(things: Sequence[T], is_wanted: Callable[[T], bool]) -> Pieces[list[T]]:
    """Return those of many things that are wanted."""
    found: list[T] = []
    for some in slices(things, LOOKS):
        found += filter(is_wanted, some)
        yield
    return found
