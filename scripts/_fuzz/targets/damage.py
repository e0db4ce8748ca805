"""Damage to files: an input is a list of harms, each of five bytes or a few more."""

import importlib
import random
from collections.abc import Mapping
from typing import Any

HARM_BYTES = 5
"""Kind, file, three bytes of a place."""
MOST_HARMS = 12
KINDS = 10
LONGEST_COPY = 16
"""Less than a record, as a duplicate record would count as two in the stores."""


def harm(files: Mapping[str, bytes], data: bytes) -> dict[str, bytes]:
    """Return copies of ``files`` with the damage that ``data`` describes."""
    left = dict(files)
    for at in range(0, min(len(data), MOST_HARMS * HARM_BYTES), HARM_BYTES):
        one = data[at : at + HARM_BYTES].ljust(HARM_BYTES, b"\0")
        if left:
            _harm_one(left, one, data)
    return left


def _harm_one(files: dict[str, bytes], one: bytes, data: bytes) -> None:
    kind, where = one[0] % KINDS, sorted(files)[one[1] % len(files)]
    old = files[where]
    # From either end, as the last bytes matter most.
    number = int.from_bytes(one[2:5], "little")
    at = number % (len(old) + 1)
    size = 1 << one[0] // KINDS % 8
    match kind:
        case 0:
            changed = bytes(byte ^ 1 << one[4] % 8 for byte in old[at : at + 1])
            files[where] = old[:at] + changed + old[at + 1 :]
        case 1:
            files[where] = old[:at]
        case 2:
            files[where] = old[:at] + bytes(size) + old[at + size :]
        case 3:
            files[where] = old[:at] + old[at + size :]
        case 4:
            files[where] = old[: at + min(size, LONGEST_COPY)] + old[at:]
        case 5:
            files[where] = old[:at] + data[-size:] + old[at:]
        case 6:
            files[where] = old + data[-size:] * (1 + one[4] % 4)
        case 7:
            files[where] = old + bytes(size * 8)
        case 8:
            # A piece of another file, or of another place of this one.
            other = files[sorted(files)[one[4] % len(files)]]
            piece = other[one[3] : one[3] + min(size, LONGEST_COPY)]
            files[where] = old[:at] + piece + old[at + size * 2 :]
        case _:
            if one[4] % 4 == 0:
                del files[where]
            else:
                files[where] = old[: len(old) - at % 64]


def generate(chance: random.Random) -> bytes:
    """Return harms, usually one."""
    return chance.randbytes(1 + HARM_BYTES * chance.choice((1, 1, 1, 2, 3, 8)))


def fix_markers(module: str) -> None:
    """Have a store choose the same markers in each process, so that an input means the same."""
    chance = random.Random(0)
    store: Any = importlib.import_module(module)
    store.token_bytes = chance.randbytes
