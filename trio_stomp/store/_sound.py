"""Records that no store can hold, which are left out of an append, so that the rest is stored."""

from collections.abc import Iterator, Sequence

from trio_stomp.base import MAX_INTEGER
from trio_stomp.store._port import Store, StoreError
from trio_stomp.store._records import Atomic, DropPlace, Forget, Keep, Put, Record, Turn

MAX_BYTES = 2**32 - 1
MAX_COUNT = 2**31 - 1
MAX_PLACE_BYTES = 2**16 - 1

LeftOut = tuple[Record, str]
"""A record that no store can hold, and the rule that it breaks."""


def append_sound(
    store: Store, turns: Sequence[Turn], expected: int
) -> tuple[int, Sequence[LeftOut]]:
    """Append as ``Store.append`` does, without the records that no store can hold.

    Returns:
      The commit number of the last turn, and what was left out.
    """
    try:
        return store.append(turns, expected), ()
    except StoreError:
        raise
    except Exception:
        # An encoder failed, before anything was stored. Looking at each record first would cost.
        refused = flaws_of(turns)
        if not refused:
            raise
    out = {id(record) for record, _ in refused}
    sound = [
        Turn([each for each in turn.records if id(each) not in out], turn.is_urgent)
        for turn in turns
    ]
    return store.append(sound, expected), refused


def flaws_of(turns: Sequence[Turn]) -> list[LeftOut]:
    """Return the records that no store can hold."""
    return [(each, flaw) for turn in turns for each in turn.records if (flaw := flaw_of(each))]


def flaw_of(record: Record) -> str:
    """Return why no store can hold a record of messages or settings, or ""."""
    if isinstance(record, Atomic):
        return next(filter(None, map(flaw_of, record.records)), "")
    for name, number, least, most in _numbers(record):
        if not least <= number <= most:
            return f"{name} is {number}, but must be from {least} to {most}"
    return ""


def _numbers(record: Record) -> Iterator[tuple[str, int, int, int]]:
    """Yield the numbers of a record: name, value, minimum and maximum."""
    match record:
        case Put():
            yield "first", record.first, 0, MAX_INTEGER - len(record.bodies)
            yield "level", record.level, 0, 9
            yield "received_ms", record.received_ms, -MAX_INTEGER, MAX_INTEGER
            yield "expires_ms", record.expires_ms, -MAX_INTEGER, MAX_INTEGER
            yield "deliveries", record.deliveries, 0, MAX_COUNT
            yield "place", _bytes(record.place), 0, MAX_PLACE_BYTES
            yield "head", len(record.head), 0, MAX_BYTES
            yield "body", max(map(len, record.bodies), default=0), 0, MAX_BYTES
        case Keep(key, text):
            yield "key", _bytes(key), 0, MAX_BYTES
            yield "text", _bytes(text), 0, MAX_BYTES
        case Forget(text) | DropPlace(text):
            yield "key", _bytes(text), 0, MAX_BYTES


def _bytes(text: str) -> int:
    """Return the bytes of a text, or -1 if it is no Unicode text (it has half of a pair)."""
    try:
        return len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        return -1


def shape_of(record: Record) -> str:
    """Return what a record is, for the log, without headers and bodies."""
    match record:
        case Atomic(records):
            return " + ".join(map(shape_of, records[:10]))
        case Put():
            size = sum(map(len, record.bodies))
            return f"{len(record.bodies)} messages of {size} bytes at {record.place[:200]!r}"
    return f"{type(record).__name__} {str(getattr(record, 'key', ''))[:200]!r}"
