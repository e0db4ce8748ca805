"""Answers are found bit by bit: others are served between the pieces."""

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

T = TypeVar("T")

Pieces = Generator[None, None, T]
"""Something that is found in pieces."""

LOOKS = 32
"""Events, subscriptions or clients that are looked at in one piece."""


def chosen(things: Sequence[T], is_wanted: Callable[[T], bool]) -> Pieces[list[T]]:
    """Return those of many things that are wanted."""
    found: list[T] = []
    for place in range(0, len(things), LOOKS):
        found += filter(is_wanted, things[place : place + LOOKS])
        yield
    return found


def last(things: Sequence[T], is_wanted: Callable[[T], bool]) -> Pieces[T | None]:
    """Return the last of many things that is wanted, if there is any."""
    for place in range(len(things), 0, -LOOKS):
        for each in reversed(things[max(0, place - LOOKS) : place]):
            if is_wanted(each):
                return each
        yield
    return None
