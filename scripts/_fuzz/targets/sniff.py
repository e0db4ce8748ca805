"""Detection of a connection's protocol by its first bytes: more bytes never change the result."""

import random

from _fuzz.target import Target, check, check_equal
from trio_stomp.transport import Speech, sniff

VERBS = (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT")
MOST_BYTES = 8
"""The length of the longest verb with its space. X12 bounds what is examined."""
WORDS = (*VERBS, *(verb + b" " for verb in VERBS), b"\x16\x03\x01", b"CONNECT\n", b"STOMP\r\n")
WORDS += (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", b"\r\n\r\n\0\r\nQUIT\n", b"\n", b"\0", b"SEND\n")


def make(name: str) -> Target:
    """The target."""
    return Target(name, run, ("transport/http/_sniff.py",), generate, WORDS, 64)


def generate(chance: random.Random) -> bytes:
    """Return a word and data after it."""
    return chance.choice(WORDS) + chance.choice((b"", b" ", b"/ HTTP/1.1\r\n", b"\n"))


def run(data: bytes) -> None:
    """Detect the protocol byte by byte, and compare with the rules X11 and X12."""
    reported: object = None
    for size in range(len(data) + 1):
        answer = sniff(data[:size])
        if reported is None:
            reported = answer
        check(answer is reported, f"changed: {reported} is now {answer}")
    verb, space, _ = data.partition(b" ")
    if len(data) > MOST_BYTES:
        check(reported is not None, "undecided: it has all it needs")
        if data[0] == 0x16:
            expected: object = Speech.TLS
        else:
            expected = Speech.HTTP if space and verb in VERBS else reported
        check_equal(reported, expected, "speech")
        if reported is Speech.HTTP:
            check(bool(space) and verb in VERBS, "no verb: but HTTP")
