"""The output of a NATS server, split in several ways, compared with a slow model."""

import json
import random

from _fuzz.target import Target, check, check_equal, cut, pick_bytes
from trio_stomp.nats.codec import (
    Event,
    Headers,
    Info,
    Message,
    NatsDecoder,
    NatsError,
    ServerFault,
    Signal,
    encode_headers,
    parse_headers,
)

WORDS = (
    *(b"MSG ", b"HMSG ", b"INFO {}", b"PING", b"PONG", b"+OK", b"-ERR 'x'", b"\r\n", b"\n", b"\r"),
    *(b" ", b"\t", b" 0\r\n\r\n", b" 3\r\nabc\r\n", b"-1", b"99999999999", b"67108865", b"{", b"["),
    *(b"NATS/1.0", b"NATS/1.0 503\r\n\r\n", b"NATS/1.0 409 x\r\nNats-Pending-Messages: 1\r\n\r\n"),
)


def make(name: str) -> Target:
    """The target."""
    files = ("nats/codec/_protocol.py", "nats/codec/_headers.py")
    return Target(name, run, files, generate, WORDS)


def run(data: bytes) -> None:
    """Decode in every way in which the input is cut."""
    rest, ways = cut(data)
    expected, is_sound = slowly(rest)
    for way in ways:
        decoder = NatsDecoder()
        found = [event for piece in way for event in decoder.feed(piece)]
        check_equal(found, expected, "the events")
        if is_sound is not None:
            check_equal(decoder.error is None, is_sound, "whether a rule was broken")
    for event in expected:
        if isinstance(event, Message) and event.headers:
            read_back(event.headers)


def read_back(block: bytes) -> None:
    """Check that a header block that is read, written and read again gives the same headers."""
    try:
        headers = parse_headers(block)
        again = parse_headers(encode_headers(headers.fields))
    except NatsError:
        return
    check_equal(again, Headers(0, "", headers.fields), "the headers")


def slowly(data: bytes) -> tuple[list[Event], bool | None]:
    """Return the events, and whether the data obey the rules. None = more data would decide it."""
    events: list[Event] = []
    while b"\n" in data:
        line, _, rest = data.partition(b"\n")
        words = line.split()
        if not line.endswith(b"\r") or not words:
            return events, False
        if words[0] in (b"MSG", b"HMSG"):
            sizes = words[-1:] if words[0] == b"MSG" else words[-2:]
            if not all(word.isdigit() and len(word) < 10 for word in sizes):
                return events, False
            head, size = int(sizes[0]) if len(sizes) == 2 else 0, int(sizes[-1])
            if size > 1 << 26 or head > 1 << 26:
                return events, False
            if len(rest) < size + 2:
                return events, True
            rule = 3 + len(sizes) <= len(words) <= 4 + len(sizes) and head <= size
            if not rule or rest[size : size + 2] != b"\r\n":
                return events, False
            reply = words[3] if len(words) == 4 + len(sizes) else b""
            content, data = rest[:size], rest[size + 2 :]
            events.append(Message(words[1], words[2], reply, content[:head], content[head:]))
            continue
        data = rest
        if words[0] in (b"PING", b"PONG"):
            events.append(Signal(words[0].decode()))
        elif words[0] == b"-ERR":
            text = line[:-1].partition(b"-ERR")[2].decode("utf-8", "replace")
            events.append(ServerFault(text.strip(" '")))
        elif words[0] == b"INFO":
            try:
                fields = json.loads(line.partition(b"INFO")[2].decode())
            except (ValueError, RecursionError):
                return events, False
            if not isinstance(fields, dict):
                return events, False
            events.append(Info(fields))
        elif words[0] != b"+OK":
            return events, False
    check(len(data) < 1 << 16, "inputs are shorter than any line may be")
    return events, True


def generate(chance: random.Random) -> bytes:
    """Return the byte that selects the cuts, and a few operations, mostly well-formed."""
    parts = [bytes((chance.randrange(256),))]
    for _ in range(chance.randint(1, 6)):
        body = pick_bytes(chance, most=40)
        words = chance.choice((b"a.b 7", b"a 12 re.ply", b"$JS.x 1 r"))
        block = chance.choice((b"", b"NATS/1.0\r\na: b\r\n\r\n", b"NATS/1.0 503\r\n\r\n"))
        parts.append(
            chance.choice(
                (
                    b"MSG %b %d\r\n%b\r\n" % (words, len(body), body),
                    b"HMSG %b %d %d\r\n%b%b\r\n"
                    % (words, len(block), len(block) + len(body), block, body),
                    b'INFO {"max_payload":%d}\r\n' % chance.randrange(99),
                    chance.choice((b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR 'Slow'\r\n")),
                    chance.choice(WORDS),
                )
            )
        )
    return b"".join(parts)
