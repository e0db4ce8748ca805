"""Events of a whole session, from CONNECT on, for bytes cut in several ways."""

import random
from collections.abc import Iterable

from _oracle.strategies import ERROR_CODES, SMALL, VERSIONS, naive_decode

from _fuzz.target import Target, check, check_equal, cut
from _fuzz.targets import stomp
from trio_stomp.base._memory import MemoryBudget
from trio_stomp.frames import OPENING, AckRun, Frame, FrameLimits, FrameRun
from trio_stomp.protocol import (
    Acked,
    Codecs,
    Committed,
    Disconnected,
    Event,
    Opened,
    ProtocolOptions,
    Queried,
    Received,
    Refused,
    ServerSession,
    Subscribed,
    Unsubscribed,
)

BUDGET_BYTES = 1 << 20
SESSION_CODES = ERROR_CODES | {
    *("already-connected", "duplicate-transaction", "header-missing", "invalid-ack-mode"),
    *("invalid-heart-beat", "not-allowed", "not-connected", "transaction-too-large"),
    *("unknown-command", "unknown-transaction", "unsupported-version"),
}
GREETINGS = (
    b"CONNECT\naccept-version:1.2\n\n\0",
    b"STOMP\r\naccept-version:1.0,1.1\r\nheart-beat:5,6\r\n\r\n\0\n",
    b"CONNECT\n\n\0",
    b"\nCONNECT\naccept-version:1.1\nhost:h\nlogin:a:b\\c\n\n\0",
    b"DIAG\n\nstale\0",
    b"",
)
STORY = (
    *(b"BEGIN\ntransaction:t\nreceipt:1\n\n\0", b"BEGIN\ntransaction:u\n\n\0"),
    *(b"SEND\ndestination:/queue/a\ntransaction:t\n\nx\0",) * 3,
    b"SEND\ndestination:/queue/a\ntransaction:u\nreceipt:2\ncontent-length:3\n\na\0b\0",
    b"SEND\ndestination:/queue/a\nreceipt:3\n\ny\0",
    *(b"COMMIT\ntransaction:t\nreceipt:4\n\n\0", b"ABORT\ntransaction:u\n\n\0"),
    *(b"ACK\nid:1\nmessage-id:1\nsubscription:s\ntransaction:t\n\n\0", b"ACK\nid:7\n\n\0"),
    b"NACK\nid:2\nmessage-id:2\nsubscription:s\nrequeue:false\n\n\0",
    *(b"SUBSCRIBE\nid:s\ndestination:/queue/a\nack:client\n\n\0", b"UNSUBSCRIBE\nid:s\n\n\0"),
    *(b"DISCONNECT\nreceipt:9\n\n\0", b"\n"),
)
"""Frames that are usually valid in this order."""


def make(name: str) -> Target:
    """The target."""
    files = (
        "protocol/_server_session.py",
        "protocol/_requests.py",
        "protocol/_transactions.py",
        "protocol/_heartbeat.py",
        "protocol/_versions.py",
    )
    return Target(name, run, files, generate, (*stomp.DICTIONARY, *GREETINGS, *STORY))


def generate(chance: random.Random) -> bytes:
    """Return a greeting, then frames."""
    if chance.random() < 0.6:
        places = sorted(chance.choices(range(len(STORY)), k=chance.randint(1, 9)))
        reported = b"".join(STORY[place] for place in places)
        return chance.randbytes(2) + chance.choice(GREETINGS[:4]) + reported
    rest = b"".join(stomp.stream(chance) for _ in range(chance.randint(1, 3)))
    return chance.randbytes(2) + chance.choice(GREETINGS) + rest


def run(data: bytes) -> None:
    """Feed one session. The first byte selects its options."""
    choice = data[0] if data else 0
    stream, ways = cut(data[1:])
    codecs = Codecs(
        SMALL if choice & 1 else FrameLimits(),
        ProtocolOptions(max_transactions=2, max_transaction_actions=3, max_transaction_bytes=2048),
        MemoryBudget(BUDGET_BYTES),
        is_lenient=bool(choice & 2),
        survives_errors=bool(choice & 4),
        reopens=bool(choice & 8),
    )
    may_ask = bool(choice & 16)
    expected = feed(codecs, may_ask, [stream])
    for chunks in ways:
        check_equal(feed(codecs, may_ask, chunks), expected, "cut")
    if not choice & 13:
        compare(stream, expected)


def feed(codecs: Codecs, may_ask: bool, chunks: Iterable[bytes]) -> list[tuple[object, ...]]:
    """Return the events of a session. They do not depend on where runs are split."""
    session = ServerSession(codecs, may_ask)
    reported: list[tuple[object, ...]] = []
    is_over = False
    for chunk in chunks:
        for event in session.receive_data(chunk):
            check(not is_over, f"after the end: {event!r}")
            reported += flat(event)
            is_end = isinstance(event, Refused) and not codecs.survives_errors
            is_over = is_end or (isinstance(event, Disconnected) and not codecs.reopens)
    session.close()
    check_equal(codecs.memory.used_bytes, 0, "memory held by a closed session")
    return reported


def flat(event: Event | AckRun) -> list[tuple[object, ...]]:
    """Return an event as plain values, one for each frame."""
    match event:
        case FrameRun():
            return [
                ("send", frame.headers, frame.body, frame.receipt, event.head.destination)
                for frame in event.frames()
            ]
        case Acked():
            asked = dict(event.receipts)
            kind = (event.header, event.subscription, event.negative, event.requeue)
            return [("ack", *kind, id, asked.get(n)) for n, id in enumerate(event.ids, 1)]
        case Committed():
            parts = [part for action in event.actions for part in flat(action)]
            return [("commit", tuple(parts), event.receipt)]
        case Received():
            return [("received", asked) for _, asked in event.receipts]
        case Refused():
            code = event.error.code
            check(code in SESSION_CODES, f"unknown code: {code}")
            return [("refused", code, event.error.receipt_id)]
        case Opened():
            return [("opened", event.version.name, repr(event.heartbeats), event.headers)]
        case Subscribed():
            fields = (event.id, event.destination, event.ack, event.headers)
            return [("subscribed", *fields, event.receipt)]
        case Unsubscribed():
            return [("unsubscribed", event.id, event.destination, event.receipt)]
        case Disconnected():
            return [("left", event.receipt)]
        case Queried():
            return [("asked", event.query)]
    raise AssertionError(f"unknown event: {event!r}")


def compare(stream: bytes, reported: list[tuple[object, ...]]) -> None:
    """Check that SENDs outside of transactions are those of the naive decoder, in order."""
    greeting = naive_decode(stream, OPENING, FrameLimits()).frames[:1]
    opened = [each for each in reported if each[0] == "opened"]
    if not opened or not greeting or greeting[0].command not in ("CONNECT", "STOMP"):
        return
    offered = (greeting[0].get("accept-version") or "1.0").split(",")
    rules = max(
        (each for each in VERSIONS if each.name in map(str.strip, offered)),
        key=lambda each: each.name,
    )
    check_equal(opened[0][1], rules.name, "version")
    frames = naive_decode(after_first_frame(stream, greeting[0]), rules, FrameLimits()).frames
    wanted = [
        (frame.get("destination"), frame.body)
        for frame in frames
        if frame.command == "SEND" and frame.get("transaction") is None
    ]
    shown = [(each[4], each[2]) for each in reported if each[0] == "send"]
    check_equal(shown[: len(wanted)], wanted[: len(shown)], "SENDs")
    if not any(each[0] in ("refused", "left") for each in reported):
        check(len(shown) >= len(wanted), f"SENDs lost: {wanted[len(shown) :]}")


def after_first_frame(stream: bytes, first: Frame) -> bytes:
    """Return the data after the first frame, which ends with the first NUL after a command."""
    start = stream.index(first.command.encode())
    return stream[stream.index(b"\0", start) + 1 :]
