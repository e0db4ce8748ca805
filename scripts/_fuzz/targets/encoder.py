"""Frames to clients: no header value may make clients read additional frames (F24)."""

import random
from collections.abc import Sequence

from _oracle.strategies import read_server_frames

from _fuzz.target import Target, check, check_equal
from _fuzz.targets import stomp
from trio_stomp.frames import (
    OPENING,
    UNTIL_NUL,
    V1_0,
    V1_1,
    V1_2,
    Frame,
    Head,
    HeaderRules,
    encode_frame,
    message_blocks,
    message_tails,
    subscription_prefix,
)

RULES = (OPENING, V1_0, V1_1, V1_2)


def make(name: str) -> Target:
    """The target."""
    files = ("frames/_encoder.py",)
    words = (*stomp.DICTIONARY, b"\x00", b"\x1f", b"\x1f:\x1f")
    return Target(name, encode, files, generate, words, 1024)


def generate(chance: random.Random) -> bytes:
    """Return version, headers and body, separated by 0x1f."""
    texts = (b"a", b"a:b", b"\\", b"\\n", b"\n", b"\r", b"\r\n\r\n\0", b"\0MESSAGE\n\n", b"", b" x")
    pieces = [chance.choice(texts) for _ in range(chance.randrange(9))]
    return chance.randbytes(1) + b"\x1f".join(pieces)


def encode(data: bytes) -> None:
    """Encode one frame, and decode it as a client does."""
    rules = RULES[data[0] % 4] if data else V1_2
    body, *texts = data[1:].decode(errors="surrogateescape").split("\x1f")
    texts = [text.encode(errors="replace").decode() for text in texts]
    pairs = [(name, text) for name, text in zip(texts[::2], texts[1::2], strict=False) if name]
    pairs = [pair for pair in pairs if pair[0] != "content-length"]
    raw = body.encode(errors="surrogateescape")
    frame = read_one(encode_frame("MESSAGE", pairs, rules, raw), rules, raw)
    headers = [pair for pair in frame.headers if pair[0] != "content-length"]
    left = iter(pairs)
    for name, text in headers:
        if rules is V1_0:  # leading space is padding there
            known = any(name == key and text == written.lstrip(" \t") for key, written in left)
        else:
            known = (name, text) in left
        check(known, f"header that nobody sent: {name!r}:{text!r}")
    if rules in (V1_1, V1_2):
        lost = [pair for pair in pairs if pair not in headers]
        check(not any("\0" not in name + text for name, text in lost), f"lost: {lost}")
    deliver(pairs, body, raw)


def read_one(wire: bytes, rules: HeaderRules, body: bytes) -> Frame:
    """Return the only frame of ``wire``."""
    frames = read_server_frames(wire, rules)
    check_equal(len(frames), 1, "frames")
    check_equal(frames[0].command, "MESSAGE", "command")
    check_equal(frames[0].body, body, "body")
    return frames[0]


def deliver(pairs: Sequence[tuple[str, str]], name: str, body: bytes) -> None:
    """Encode the headers of a SEND for subscribers of each version."""
    destination = name.encode(errors="replace").decode() or "/queue/a"
    headers = (*dict(pairs).items(), ("destination", destination))
    for length in (UNTIL_NUL, len(body)):
        head = Head("SEND", headers, length, destination)
        for block, rules in zip(message_blocks(head), RULES[1:], strict=True):
            prefix = subscription_prefix(destination, "tag", rules)
            wire = prefix.join(message_tails(head, block, [body], 7))
            frame = read_one(wire, rules, body)
            check_equal(frame.get("message-id"), "tag-7", "message-id")
            check_equal(len([key for key, _ in frame.headers if key == "destination"]), 1, "once")
            if rules is not V1_0 and "\0" not in destination:
                check_equal(frame.get("destination"), destination, "destination")
