"""Searches in pieces, so that other clients are served between them."""

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

T = TypeVar("T")

Pieces = Generator[None, None, T]
"""A result that is found in pieces."""

LOOKS = 32
"""Events, subscriptions or clients checked in one piece."""


def chosen(things: Sequence[T], is_wanted: Callable[[T], bool]) -> Pieces[list[T]]:
    """Return the items for which ``is_wanted`` is true."""
    found: list[T] = []
    for index in range(0, len(things), LOOKS):
        found += filter(is_wanted, things[index : index + LOOKS])
        yield
    return found


def last(things: Sequence[T], is_wanted: Callable[[T], bool]) -> Pieces[T | None]:
    """Return the last item for which ``is_wanted`` is true, or None."""
    for stop in range(len(things), 0, -LOOKS):
        for each in reversed(things[max(0, stop - LOOKS) : stop]):
            if is_wanted(each):
                return each
        yield
    return None
