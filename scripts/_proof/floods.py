"""Floods: frames without end that the limits allow, by 1, 4 and 30 connections of one client.

A flood sends what is cheap to send and dear to decode or to apply. A neighbour, which is another
user or anybody else on this machine, must hardly notice. The last ones are of readers that do not
read.
"""

import select
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from _proof.attacks import (
    REST_S,
    Assault,
    Attacker,
    Begin,
    fill,
    send,
    subscribe,
)
from _proof.judge import MIB
from _proof.neighbours import ATTACKER, hello

CONNECTIONS = (1, 4, 30)
BLOB_BYTES = 1 << 18
WRITE_BYTES = 1 << 16
STREAM = "/topic/overload.log"
STREAM_POLICY = f'["{STREAM}"]\nstream = true\n'
RECEIVERS, SUBSCRIPTIONS = 40, 10
UNREAD_S = 20.0


def _pair(number: int) -> str:
    return f"BEGIN\ntransaction:{number}\n\n\0ABORT\ntransaction:{number}\n\n\0"


def _escaped(number: int) -> str:
    lines = "".join(f"h{each}:\\c\\c\\c{number}\n" for each in range(250))
    return send("/topic/overload.flood", "", lines) + "\0"


def _passing(number: int) -> str:
    started = subscribe(number, "/topic/overload.passing")
    return f"{started}\0UNSUBSCRIBE\nid:{number}\n\n\0"


def _confirmed(number: int) -> str:
    return send("/topic/overload.flood", "", f"receipt:{number}\n") + "\0"


FRAMES: Mapping[str, Callable[[int], str]] = MappingProxyType(
    {
        "smallest": lambda _: send("/topic/f", "") + "\0",
        "begins": _pair,
        "escapes": _escaped,
        "passing": _passing,
        "confirmed": _confirmed,
    }
)
"""The frames of each flood, by a number that makes them different."""


def flood(
    frames: Callable[[int], str], count: int, login: bytes, port: int, begin: Begin
) -> list[Attacker]:
    """Write frames to ``count`` connections as fast as the broker takes them, and read answers."""
    blob = bytearray()
    number = 0
    while len(blob) < BLOB_BYTES:
        blob += frames(number).encode()
        number += 1
    attackers = [Attacker(port, login) for _ in range(count)]
    begin()
    poll = select.poll()
    by_file = {each.line.fileno(): each for each in attackers}
    for file, each in by_file.items():
        each.line.setblocking(False)
        poll.register(file, select.POLLIN | select.POLLOUT)
    places = dict.fromkeys(by_file, 0)
    view = memoryview(blob)
    until = time.monotonic() + REST_S
    while time.monotonic() < until:
        for file, flags in poll.poll(100):
            each, place = by_file[file], places[file]
            if flags & ~select.POLLOUT:
                each.listen()
            if each.refusal:
                poll.unregister(file)
            elif flags & select.POLLOUT:
                sent = each.line.send(view[place : place + WRITE_BYTES])
                places[file] = (place + sent) % len(blob)
    return attackers


def unread(headers: str, port: int, begin: Begin) -> list[Attacker]:
    """40 connections that subscribe ten times each to a stream of 200,000, and read nothing."""
    sender = Attacker(port)
    fill(sender, (send(STREAM) for _ in range(200_000)))
    begin()
    attackers = [Attacker(port) for _ in range(RECEIVERS)]
    for each in attackers:
        first = f"{headers}x-stream-offset:first\n"
        each.say(*(subscribe(number, STREAM, first) for number in range(SUBSCRIPTIONS)))
    time.sleep(UNREAD_S)
    return attackers


def _floods() -> Iterator[Assault]:
    for name, frames in FRAMES.items():
        for count in CONNECTIONS:
            run = partial(flood, frames, count, hello())
            yield Assault(f"{name}-{count}", run)
            named = partial(flood, frames, count, hello(ATTACKER))
            yield Assault(f"{name}-{count}-user", named, has_users=True)


FLOODS = (
    *_floods(),
    *(
        Assault(
            f"unread-{ack}",
            partial(unread, f"ack:{ack}\n"),
            128 * MIB,
            policies=STREAM_POLICY,
            is_stored=True,
        )
        for ack in ("auto", "client")
    ),
)
