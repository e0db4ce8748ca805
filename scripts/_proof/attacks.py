"""Attacks: frames of one client that the limits allow, and that must not affect other clients.

An attack prepares, waits for the start, and continues until it has been answered. If a limit
refuses something, the ERROR is its answer. It runs in its own process.
"""

import contextlib
import re
import select
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import NamedTuple

from _bench.wire import HOST

from _proof.judge import MIB
from _proof.neighbours import HELLO

PATIENCE_S = 45.0
"""An attack without an answer after this time counts as this long."""
REST_S = 5.0
"""Duration of an attack that waits for no answer."""
CHUNK = 1000
DIAG_STREAM = ("--diag-stream-memory-bytes", str(1 * MIB))
"""Its default of 32 MiB is an operator's choice, and would be half of a small budget."""
CODE = re.compile(rb"\ncode:([^\n]+)\n")
Begin = Callable[[], None]


class Attacker:
    """A connection that writes at will, and reads while it waits for an answer."""

    def __init__(self, port: int, login: bytes = HELLO) -> None:
        self.refusal = ""
        self.line = socket.create_connection((HOST, port))
        self._receipts = 0
        self._data = b""
        self._write(login)
        self.hear(b"CONNECTED\n", PATIENCE_S)

    def say(self, *frames: str) -> None:
        """Write frames without reading, unless the broker does not read either."""
        self._write("".join(f"{frame}\0" for frame in frames).encode())

    def ask(self, *frames: str, patience_s: float = PATIENCE_S) -> bool:
        """Write frames, and wait until they have been carried out or an ERROR arrives."""
        self._receipts += 1
        name = f"all-{self._receipts}"
        self.say(*frames, f"SEND\ndestination:/topic/overload.none\nreceipt:{name}\n\n")
        return self.hear(f"receipt-id:{name}\n".encode(), patience_s)

    def close(self) -> None:
        """Close without DISCONNECT."""
        self.line.close()

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        until = time.monotonic() + PATIENCE_S
        while view and not self.refusal and time.monotonic() < until:
            readable, writable, _ = select.select([self.line], [self.line], [], 1.0)
            try:
                if writable:
                    view = view[self.line.send(view[: 1 << 18]) :]
                elif readable:
                    self.listen()  # neither reads, unless one of them begins
            except ConnectionError:
                self.refusal = self.refusal or "reset"

    def hear(self, wanted: bytes, patience_s: float) -> bool:
        """Read until something arrives. Return False after an ERROR, or if it does not in time."""
        until = time.monotonic() + patience_s
        while wanted not in self._data and not self.refusal:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            if select.select([self.line], [], [], left_s)[0]:
                with contextlib.suppress(ConnectionError):
                    self.listen()
        return not self.refusal

    def listen(self) -> None:
        """Read what has arrived, and note an ERROR or the end."""
        piece = self.line.recv(1 << 20)
        self._data = self._data[-256:] + piece
        if b"ERROR\n" in self._data:
            found = CODE.search(self._data)
            self.refusal = found[1].decode() if found else "?"
        elif not piece:
            self.refusal = "closed"


Attack = Callable[[int, Begin], list[Attacker]]


class Assault(NamedTuple):
    """An attack, and the broker that it is for.

    Args:
      limit_bytes: The broker's ``max_memory_bytes``.
      options: The broker's other options.
      rules: The content of its ``--acl-file``; "" = none.
      policies: The content of its ``--policies``; "" = none.
      has_users: Whether the attacker and its neighbour are users who log in.
      is_stored: Whether the broker has a store.
    """

    name: str
    run: Attack
    limit_bytes: int = 512 * MIB
    options: tuple[str, ...] = DIAG_STREAM
    rules: str = ""
    policies: str = ""
    has_users: bool = False
    is_stored: bool = False


def send(destination: str, body: str = "x", headers: str = "") -> str:
    """Return a SEND without its NUL."""
    return f"SEND\ndestination:{destination}\n{headers}\n{body}"


def subscribe(number: int, destination: str, headers: str = "") -> str:
    """Return a SUBSCRIBE without its NUL."""
    return f"SUBSCRIBE\nid:{number}\ndestination:{destination}\n{headers}\n"


def wildcards(port: int, begin: Begin) -> list[Attacker]:
    """F2: subscriptions to all of 60,000 queues, 80 that end and 100 that stay, in one write."""
    attacker = Attacker(port)
    fill(attacker, (send(f"/queue/z.{n}") for n in range(60_000)))
    begin()
    frames: list[str] = []
    for number in range(80):
        frames.append(subscribe(number, "/queue/z*", "ack:client\n"))
        frames.append(f"UNSUBSCRIBE\nid:{number}\n\n")
    frames += [subscribe(n, "/queue/z*", "ack:client\n") for n in range(100)]
    attacker.ask(*frames)
    return [attacker]


def selectors(port: int, begin: Begin) -> list[Attacker]:
    """F3: 1,000 selectors with eight LIKEs each, and a message with a header of 16,000 letters."""
    attacker = Attacker(port)
    # The first selector of a process loads the parser.
    attacker.ask(subscribe(-1, "/topic/overload.first", "selector:a = 1\n"))
    begin()
    frames = [subscribe(n, "/topic/overload.s", f"selector:{_likes(n)}\n") for n in range(1000)]
    attacker.ask(*frames)
    attacker.ask(send("/topic/overload.s", "x", f"h:{'ab' * 8000}\n"))
    return [attacker]


def _likes(number: int) -> str:
    """Return a selector of eight LIKEs with many wildcards, different for each number."""
    like = f"%{'_' * 63}b{{}}%"
    return " OR ".join(f"h LIKE '{like.format(number * 8 + each)}'" for each in range(8))


def choosers(port: int, begin: Begin) -> list[Attacker]:
    """F3, of a queue: 50,000 messages, 1,000 consumers with such selectors, and one without.

    Some of the messages have a header of 16,000 letters.
    """
    attacker = Attacker(port)
    long = f"h:{'ab' * 8000}\n"
    fill(attacker, (send("/queue/deep", "x", f"n:{n}\n{long}") for n in range(300)))
    fill(attacker, (send("/queue/deep", "x", f"n:{n}\n") for n in range(50_000)))
    attacker.ask(subscribe(-1, "/topic/overload.first", "selector:a = 1\n"))
    begin()
    frames = [
        subscribe(n, "/queue/deep", f"ack:client\nselector:{_likes(n)}\n") for n in range(1000)
    ]
    attacker.ask(*frames)
    taker = Attacker(port)
    taker.say(subscribe(0, "/queue/deep", "ack:client\nprefetch-count:0\n"))
    time.sleep(REST_S)
    return [attacker, taker]


def browses(port: int, begin: Begin) -> list[Attacker]:
    """F1: 1,000 browses of 50,000 messages by 50 connections that read nothing, 10,000 by one."""
    attacker = Attacker(port)
    fill(attacker, (send("/queue/deep", f"{n:010d}") for n in range(50_000)))
    begin()
    attackers = [attacker]
    for count in (*[20] * 50, 10_000):
        each = Attacker(port)
        each.say(*(subscribe(n, "/queue/deep", "browser:true\n") for n in range(count)))
        attackers.append(each)
    time.sleep(REST_S)
    return attackers


def patterns(port: int, begin: Begin) -> list[Attacker]:
    """F10: 8,192 patterns of two connections each, of ``a`` and ``*``, and 100 new names."""
    attackers = [Attacker(port), Attacker(port)]
    for attacker, end in zip(attackers, ("", ".b"), strict=True):
        texts = ["/topic/" + ".".join(words) + end for words in product("*a", repeat=13)]
        frames = [subscribe(n, text) for n, text in enumerate(texts) if "*" in text]
        for place in range(0, len(frames), CHUNK):
            attacker.ask(*frames[place : place + CHUNK])
    begin()
    sender = Attacker(port)
    sender.ask(*(send(f"/topic/{'a.' * 13}{n}") for n in range(100)))
    return [*attackers, sender]


def composites(port: int, begin: Begin) -> list[Attacker]:
    """Send 1,024 SENDs to 32 queues each, which hold 2,000 messages that no consumer takes."""
    attacker = Attacker(port)
    names = [f"/queue/c.{n:02d}" for n in range(32)]
    everywhere = ",".join(names)
    fill(attacker, (send(everywhere, "x", f"n:{n}\n") for n in range(2000)))
    selector = "selector:wanted = 'yes'\nack:client\n"
    attacker.ask(*(subscribe(n, name, selector) for n, name in enumerate(names)))
    begin()
    attacker.ask(*(send(everywhere) for _ in range(1024)))
    return [attacker]


def commits(port: int, begin: Begin) -> list[Attacker]:
    """8 COMMITs in one write of two connections each, of 1,024 frames."""
    attackers = [Attacker(port), Attacker(port)]
    for attacker, number in product(attackers, range(8)):
        frames = [f"BEGIN\ntransaction:{number}\n\n"]
        frames += [
            send(f"/queue/t.{each % 8}", "x" * 100, f"transaction:{number}\n")
            for each in range(1023)
        ]
        attacker.ask(*frames)
    begin()
    asked = [f"COMMIT\ntransaction:{number}\n\n" for number in range(8)]
    for attacker in attackers:
        attacker.say(*asked)
    for attacker in attackers:
        attacker.ask()
    return attackers


def topics(port: int, begin: Begin) -> list[Attacker]:
    """Send a COMMIT of 1,023 frames to a topic with 1,024 subscriptions of 16 connections."""
    attackers = [Attacker(port) for _ in range(16)]
    for attacker in attackers:
        attacker.ask(*[subscribe(number, "/topic/t") for number in range(64)])
    sender = Attacker(port)
    sender.ask(
        "BEGIN\ntransaction:t\n\n",
        *[send("/topic/t", "x", f"transaction:t\nn:{number}\n") for number in range(1023)],
    )
    begin()
    sender.ask("COMMIT\ntransaction:t\n\n")
    return [*attackers, sender]


def cleared(port: int, begin: Begin) -> list[Attacker]:
    """F11: 30 connections that send once to 4,090 long names each, and stay."""
    begin()
    attackers = []
    for number in range(30):
        attacker = Attacker(port)
        name = f"/topic/{number:03d}." + "x" * 990
        fill(attacker, (send(f"{name}.{n:04d}") for n in range(4090)))
        attackers.append(attacker)
    return attackers


def pages(port: int, begin: Begin) -> list[Attacker]:
    """Request metrics and lists, four at a time, from a broker with many objects."""
    attacker = Attacker(port)
    fill(attacker, (send(f"/queue/z.{n}") for n in range(60_000)))
    fill(attacker, (subscribe(n, f"/topic/z.{n}.*") for n in range(9_000)))
    begin()
    until = time.monotonic() + REST_S

    def ask(path: str) -> None:
        while time.monotonic() < until and not attacker.refusal:
            if not _get(port, path).startswith(b"HTTP/1.1 200 "):
                attacker.refusal = f"no {path}"

    paths = ("/metrics", "/queuez?limit=1000&sort=bytes", "/queuez?state=waiting&offset=30000")
    with ThreadPoolExecutor() as pool:
        list(pool.map(ask, (*paths, "/subsz?limit=1000&offset=8000")))
    return [attacker]


def lasts(port: int, begin: Begin) -> list[Attacker]:
    """Subscriptions to 20,000 last values, half of them with acknowledgements, in one write."""
    attackers = [Attacker(port) for _ in range(4)]
    fill(attackers[0], (send(f"/topic/last.{n}", "x", "retain:set\n") for n in range(20_000)))
    begin()
    for attacker in attackers:
        acks = ("", "ack:client-individual\n") * 5
        attacker.say(*[subscribe(n, "/topic/last.*", ack) for n, ack in enumerate(acks)])
    for attacker in attackers:
        attacker.ask()
    return attackers


def _get(port: int, path: str) -> bytes:
    """Request a page, and return the whole response."""
    with socket.create_connection((HOST, port), PATIENCE_S) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = bytearray()
        while piece := line.recv(1 << 20):
            answer += piece
    return bytes(answer)


def fill(attacker: Attacker, frames: Iterable[str]) -> None:
    """Send many frames, in batches that do not affect others."""
    some: list[str] = []
    for frame in frames:
        some.append(frame)
        if len(some) == CHUNK:
            attacker.ask(*some)
            some.clear()
    if some:
        attacker.ask(*some)


ANYBODY = '[[rule]]\nallow = ["send", "receive", "create"]\nto = "**"\nuser = "anonymous"\n'
ASSAULTS = (
    Assault("wildcards", wildcards),
    Assault("selectors", selectors),
    Assault("choosers", choosers),
    Assault("browses", browses, 64 * MIB),
    Assault("patterns", patterns),
    Assault("composites", composites),
    Assault("commits", commits),
    Assault("topics", topics),
    Assault("pages", pages),
    Assault("lasts", lasts),
    Assault("names", cleared, 64 * MIB, rules=ANYBODY),
)
