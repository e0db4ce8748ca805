"""Mutation of inputs, mostly by pieces of the grammar, sometimes by single bits."""

import random
import re
from collections.abc import Callable, Sequence

from _fuzz.target import Target

NUMBERS = (
    *(b"0", b"1", b"-1", b"+1", b"00", b"7", b"125", b"126", b"127", b"255", b"256", b"65535"),
    *(b"65536", b"2147483648", b"4294967296", b"9223372036854775807", b"18446744073709551616"),
    *(b"1e9", b"0x10", b"1_0", b"1.5", b" 1", b"9" * 40, "\u0661".encode(), "\u00b2".encode()),
)
"""Numbers at boundaries, and strings that resemble numbers."""
FRESH = 0.25
"""Share of inputs that are generated from scratch."""
MOST_CHANGES = 6


class Mutator:
    """Makes inputs for a target.

    Args:
      others: The corpus, which grows: a piece of another input may be put in.
    """

    def __init__(self, target: Target, others: Sequence[bytes]) -> None:
        self.target = target
        self.others = others
        self.ways: tuple[Callable[[bytes, random.Random], bytes], ...] = (
            *(self._insert_word, self._insert_word, self._replace_by_word, self._change_number),
            *(self._drop, self._repeat, self._change_byte, self._flip_bit, self._splice),
            *(self._change_lines, self._change_lines),
        )

    def make(self, data: bytes, chance: random.Random) -> bytes:
        """Return a new input, derived from ``data`` or generated."""
        if not data or chance.random() < FRESH:
            data = self.target.generate(chance)
            if chance.random() < 0.5:
                return data[: self.target.max_bytes]
        for _ in range(1 + min(int(chance.expovariate(0.7)), MOST_CHANGES)):
            data = chance.choice(self.ways)(data, chance)
        return data[: self.target.max_bytes]

    def _insert_word(self, data: bytes, chance: random.Random) -> bytes:
        at = chance.randint(0, len(data))
        return data[:at] + chance.choice(self.target.dictionary) + data[at:]

    def _replace_by_word(self, data: bytes, chance: random.Random) -> bytes:
        begin, end = _range(data, chance)
        return data[:begin] + chance.choice(self.target.dictionary) + data[end:]

    def _change_number(self, data: bytes, chance: random.Random) -> bytes:
        found = list(re.finditer(rb"[0-9]+", data))
        if not found:
            return self._insert_word(data, chance)
        place = chance.choice(found)
        number = chance.choice((*NUMBERS, b"%d" % (int(place[0][:18]) + chance.choice((-1, 1)))))
        return data[: place.start()] + number + data[place.end() :]

    def _drop(self, data: bytes, chance: random.Random) -> bytes:
        begin, end = _range(data, chance)
        return data[:begin] + data[end:]

    def _repeat(self, data: bytes, chance: random.Random) -> bytes:
        begin, end = _range(data, chance)
        times = chance.choice((1, 1, 2, 3, 40))
        return (data[:end] + data[begin:end] * times + data[end:])[: self.target.max_bytes]

    def _change_byte(self, data: bytes, chance: random.Random) -> bytes:
        at = chance.randrange(len(data) + 1)
        return data[:at] + chance.randbytes(1) + data[at + 1 :]

    def _flip_bit(self, data: bytes, chance: random.Random) -> bytes:
        if not data:
            return data
        at = chance.randrange(len(data))
        return data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]

    def _splice(self, data: bytes, chance: random.Random) -> bytes:
        other = chance.choice(self.others) if self.others else self.target.generate(chance)
        begin, end = _range(other, chance)
        at = chance.randint(0, len(data))
        return data[:at] + other[begin:end] + data[at:]

    def _change_lines(self, data: bytes, chance: random.Random) -> bytes:
        lines = data.split(b"\n")
        one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        way = chance.randrange(3)
        if way == 0:
            lines[one], lines[other] = lines[other], lines[one]
        elif way == 1:
            lines.insert(other, lines[one])
        else:
            del lines[one]
        return b"\n".join(lines)


def _range(data: bytes, chance: random.Random) -> tuple[int, int]:
    """Return a range of ``data``, short more often than long."""
    begin = chance.randint(0, len(data))
    longest = chance.choice((1, 2, 4, 16, 64, len(data)))
    return begin, min(len(data), begin + chance.randint(0, longest))
