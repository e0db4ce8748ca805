"""Long pages are made in pieces, so that other tasks need not wait for a whole page.

A page is a generator that yields after each piece of some 0.1 ms and returns its answer at the end.
It covers the items that existed at its start, and reads each item once, at some moment since then.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from trio_stomp.base import LOOKS, Identity, Pieces, slices
from trio_stomp.transport import HttpRequest

T = TypeVar("T")


def in_one(answer: Callable[[HttpRequest], T]) -> Callable[[HttpRequest, Identity], Pieces[T]]:
    """Return a generator function for an answer made in one piece, the same for all users."""

    def make(request: HttpRequest, _identity: Identity) -> Pieces[T]:
        yield from ()
        return answer(request)

    return make


def chosen(
    things: Sequence[T], is_wanted: Callable[[T], bool], size: int = LOOKS
) -> Pieces[list[T]]:
    """Return the wanted items of many. A piece examines ``size`` of them."""
    found: list[T] = []
    for some in slices(things, size):
        found += filter(is_wanted, some)
        yield
    return found
