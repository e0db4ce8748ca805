"""Bytes → frames, however they are cut, against two decoders that were written apart."""

import random

from _oracle.naive_decoder import Bounds, Ending, Reading, escape, read
from _oracle.strategies import ERROR_CODES, SMALL, Decoded, naive_decode, outcome

from _fuzz.target import Finding, Target, check, check_equal, cut
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
VERSIONS = {"connect": "CONNECT", "1.0": "1.0", "1.1": "1.1", "1.2": "1.2"}
MOST_NAIVE_BYTES = 1500
"""The naive one takes microseconds for each byte."""


def make(name: str) -> Target:
    """The target for the version that ends ``name``."""
    version = name.removeprefix("decoder-")
    rules = RULES[version]

    def run(data: bytes) -> None:
        decode(data, rules, VERSIONS[version])

    def generate(chance: random.Random) -> bytes:
        return chance.randbytes(2) + stomp.stream(chance)

    files = ("frames/_decoder.py", "frames/_headers.py", "frames/_frame.py")
    return Target(name, run, files, generate, stomp.DICTIONARY)


def decode(data: bytes, rules: HeaderRules, version: str) -> None:
    """Decode one input in several ways; the first byte chooses the limits."""
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
    bounds = Bounds(
        limits.max_body_bytes,
        limits.max_headers,
        limits.max_header_line_bytes,
        limits.max_header_block_bytes,
    )
    judge(found, read(stream, version, bounds), version)


def judge(found: Decoded, reading: Reading, version: str) -> None:
    """Compare with what the specification says, as far as it does."""
    frames = found.frames[: len(reading.frames)]
    check_equal(len(frames), len(reading.frames), f"frames before {found.code}")
    for frame, expected in zip(frames, reading.frames, strict=True):
        headers = dict(expected.headers)
        asked = headers.pop("receipt", None)
        if version == "1.0" and not asked:
            asked = None
        check_equal(frame.command, expected.command, "command")
        check_equal(dict(frame.headers), headers, "headers")
        check_equal(list(dict(frame.headers)), list(headers), "order of headers")
        check_equal(frame.body, expected.body, "body")
        receipt = None if asked is None else escape(asked, version).encode()
        check_equal(frame.receipt, receipt, "receipt")
    if reading.ending is Ending.FREE:
        return
    more = len(found.frames) - len(reading.frames)
    if more:
        raise Finding(f"frames beyond: {more}, {reading.ending}")
    if reading.ending in (Ending.BETWEEN, Ending.OPEN):
        check(found.code is None, f"refused, though {reading.ending.value}: {found.code}")
    if reading.ending is Ending.REFUSED:
        check(found.code is not None, "not refused: it is wrong")
