"""Decoding of frames, cut in several ways, compared with an independent decoder."""

import random

from _oracle.strategies import ERROR_CODES, SMALL, naive_decode, outcome

from _fuzz.target import Target, check, check_equal, cut
from _fuzz.targets import stomp
from trio_stomp.frames import (
    OPENING,
    V1_0,
    V1_1,
    V1_2,
    FrameDecoder,
    FrameLimits,
    HeadCache,
    HeaderRules,
)

RULES = {"connect": OPENING, "1.0": V1_0, "1.1": V1_1, "1.2": V1_2}
MOST_NAIVE_BYTES = 4096
"""The naive one takes microseconds for each byte."""


def make(name: str) -> Target:
    """Return the target for the STOMP version at the end of ``name``."""
    rules = RULES[name.removeprefix("decoder-")]

    def run(data: bytes) -> None:
        decode(data, rules)

    def generate(chance: random.Random) -> bytes:
        return chance.randbytes(2) + stomp.stream(chance)

    files = ("frames/_decoder.py", "frames/_headers.py", "frames/_frame.py")
    return Target(name, run, files, generate, stomp.DICTIONARY)


def decode(data: bytes, rules: HeaderRules) -> None:
    """Decode one input in several ways. The first byte selects the limits."""
    limits = SMALL if data[:1] < b"\x60" else FrameLimits()
    stream, ways = cut(data[1:])
    cache = HeadCache()  # Filled by the first way, used by the others.
    found = outcome(FrameDecoder(limits, cache, rules), [stream])
    check(found.code is None or found.code in ERROR_CODES, f"unknown code: {found.code}")
    for chunks in ways:
        again = outcome(FrameDecoder(limits, cache, rules), chunks)
        check_equal(again, found, f"cut into {list(map(len, chunks))!r:.80}")
    if len(stream) <= MOST_NAIVE_BYTES:
        check_equal(found, naive_decode(stream, rules, limits), "byte by byte")
