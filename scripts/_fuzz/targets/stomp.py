"""STOMP frames for fuzzing: valid ones, nearly valid ones, and pieces of both."""

import random

from _fuzz.target import pick_bytes

COMMANDS = (
    *(b"CONNECT", b"STOMP", b"SEND", b"SUBSCRIBE", b"UNSUBSCRIBE", b"ACK", b"NACK"),
    *(b"BEGIN", b"COMMIT", b"ABORT", b"DISCONNECT", b"DIAG", b"MESSAGE", b"send", b"FOO"),
)
LINES = (
    *(b"destination:/queue/a", b"destination:/topic/a.*", b"destination: /b", b"id:1", b"id:a\\cb"),
    *(b"accept-version:1.0", b"accept-version:1.1,1.2", b"accept-version:1.2", b"host:h"),
    *(b"heart-beat:0,0", b"heart-beat:1000,99999999999999999999", b"heart-beat:1", b"login:x"),
    *(b"receipt:r-1", b"receipt:a\\nb", b"receipt:", b"receipt: x", b"receipt:a\rb"),
    *(b"transaction:t", b"transaction:u", b"ack:client", b"ack:client-individual", b"ack:auto"),
    *(b"message-id:m.1-2", b"subscription:s", b"content-length:0", b"content-length:3"),
    *(b"content-length:20", b"content-length:21", b"content-length:-1", b"selector:a = 1"),
    *(b"a:b", b"a:\\c\\n\\\\", b"a:\\r", b"a:\\t", b"a:\\", b"a:b\rc", b"a:\r", b":x", b"x", b""),
    *(b"\xc3\xa9:\xf0\x9f\x98\x80", b"a:\xff", b"a:\xed\xa0\x80", b"a:\0b", b"n" * 30 + b":v"),
    *(b"\\c:x", b"recei\\pt:x", b"content\\-length:3", b"passcode:secret", b"requeue:false"),
)
BODIES = (b"", b"", b"", b"hi", b"abc", b"a\0b", b"\n", b"a\n\nb", b"\r\n\r\n", b"0123456789" * 2)
NOISE = (b"", b"", b"", b"\n", b"\r\n", b"\r", b"\0", b"\x01", b"A" * 34)
DICTIONARY = (
    *COMMANDS,
    *(line + b"\n" for line in LINES),
    *(
        b"\n\n",
        b"\r\n",
        b"\r",
        b"\0",
        b"\n\n\0",
        b"\r\n\r\n\0",
        b"\\",
        b"\\n",
        b"\\c",
        b"\\r",
        b":",
    ),
    *(b"\nreceipt:", b"\ncontent-length:", b"SEND\n\n", b"ACK\nid:1\n\n\0", b"\xc3", b"\xe2\x82"),
)


def frame(chance: random.Random) -> bytes:
    """Return a frame, valid or nearly so."""
    eol = chance.choice((b"\n", b"\n", b"\n", b"\r\n"))
    lines = [chance.choice(COMMANDS), *chance.choices(LINES, k=chance.randrange(5))]
    body = chance.choice((*BODIES, pick_bytes(chance)))
    if chance.random() < 0.2:
        lines.insert(chance.randint(1, len(lines)), b"content-length:%d" % len(body))
    return eol.join(lines) + eol * 2 + body + b"\0" + chance.choice(NOISE)


def stream(chance: random.Random) -> bytes:
    """Return some frames, one sometimes repeated, as repeated frames are decoded differently."""
    frames = [frame(chance) for _ in range(chance.randint(1, 4))]
    if chance.random() < 0.5:
        frames += [chance.choice(frames)] * chance.randint(1, 4)
    if chance.random() < 0.3:
        frames += [b"ACK\nid:%d\n\n\0" % n for n in range(chance.randint(1, 5))]
    return b"".join(frames)
