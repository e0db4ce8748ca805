"""Options in the headers of a SUBSCRIBE to a stream: where the reader begins and ends."""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from math import ceil
from typing import Any, Final

from attrs import frozen

from trio_stomp.base import MAX_INTEGER
from trio_stomp.broker.headers._dialect import capped, invalid_value, read_number
from trio_stomp.frames import Headers

MAX_DELAY_MS = 24 * 3600 * 1000


class Start(Enum):
    """The ways to give the first message."""

    FIRST = "first"
    LAST = "last"
    NEXT = "next"
    OFFSET = "offset"
    TIME = "timestamp"


@frozen
class StreamOptions:
    """The part of a stream that a reader requests.

    Args:
      start: How the first message is given.
      value: The offset, or the time in ms since 1970.
      until: The offset before which reading ends; None = no end.
      epoch: The required epoch of the stream; "" = any.
      delay_ms: The delay of the first replayed message.
      is_given: Whether any of these headers is present.
    """

    start: Start = Start.NEXT
    value: int = 0
    until: int | None = None
    epoch: str = ""
    delay_ms: int = 0
    is_given: bool = False


NO_STREAM_OPTIONS = StreamOptions()


ID_MARK = ".S"
"""Suffix of the tags in message ids of stream readers, before the offset.

A capital letter: the tags of other subscriptions end in digits and small letters.
"""
END_MARK = b"0"
"""A leading zero of the offset in the message id of an end marker. It means that the message at
this offset was not delivered."""
_OFFSET = re.compile(r"(?:offset\s*[=:]\s*)?([0-9]+)")
_TIME = re.compile(r"timestamp\s*[=:]\s*([0-9]+)(\.[0-9]{1,9})?")
_ID = re.compile(rf".+{re.escape(ID_MARK)}-([0-9]+)")


def parse_stream_options(headers: Headers) -> StreamOptions:
    """Return the options in a SUBSCRIBE's headers: ``NO_STREAM_OPTIONS`` if there are none.

    Raises:
      ProtocolError: A value is invalid.
    """
    found: dict[str, Any] = {}
    for name, text in headers:
        meaning = _MEANINGS.get(name)
        if meaning is not None:
            for field, value in meaning(name, text):
                found.setdefault(field, value)
    if not found:
        return NO_STREAM_OPTIONS
    if "delay_ms" in found:
        # A delay of the replay implies a replay.
        found.setdefault("start", Start.FIRST)
    return StreamOptions(**{**found, "is_given": True})


_Found = tuple[tuple[str, Any], ...]


def _starts(start: Start, value: int = 0) -> _Found:
    return ("start", start), ("value", min(value, MAX_INTEGER))


def _offset(name: str, text: str) -> _Found:
    word = text.strip().lower()
    if word in ("first", "last", "next"):
        return _starts(Start(word))
    match = _OFFSET.fullmatch(word)
    if match is not None:
        return _starts(Start.OFFSET, capped(match[1]))
    match = _TIME.fullmatch(word)
    if match is not None:
        return _starts(Start.TIME, ceil(Decimal(f"{capped(match[1])}{match[2] or ''}") * 1000))
    raise invalid_value(name, text, "first, last, next, offset=N or timestamp=S")


def _queue_type(_: str, text: str) -> _Found:
    """RabbitMQ's readers of a stream may say no more than that."""
    return (("is_given", True),) if text.strip().lower() == "stream" else ()


def _sequence(name: str, text: str) -> _Found:
    number = read_number(name, text, -1)
    return _starts(Start.OFFSET, number) if number >= 0 else _starts(Start.NEXT)


def _behind(name: str, text: str) -> _Found:
    match = _ID.fullmatch(text.strip())
    if match is None:
        raise invalid_value(
            name, text, "the message-id of a stream's MESSAGE, one with the header x-stream-offset"
        )
    digits = match[1]
    is_end = len(digits) > 1 and digits.startswith(END_MARK.decode())
    return _starts(Start.OFFSET, capped(digits) + (not is_end))


def _until(name: str, text: str) -> _Found:
    return (("until", read_number(name, text)),)


def _epoch(_: str, text: str) -> _Found:
    return (("epoch", text),)


def _delay(name: str, text: str) -> _Found:
    number = read_number(name, text)
    if number > MAX_DELAY_MS:
        raise invalid_value(name, text, f"a whole number up to {MAX_DELAY_MS}")
    return (("delay_ms", number),)


_MEANINGS: Final[Mapping[str, Callable[[str, str], _Found]]] = {
    "x-stream-offset": _offset,
    "x-queue-type": _queue_type,
    "from-seq": _sequence,
    "last-message-id": _behind,
    "x-stream-until": _until,
    "x-stream-epoch": _epoch,
    "replay-delay": _delay,
}
"""Header → a parser that returns the fields that it sets. The first of several counts."""

STREAM_HEADERS = frozenset(_MEANINGS)
