"""Bounds of what one event may cost: a little less is accepted, a little more is refused.

Each bound is tried by a number of connections at once. First all of them do what is just allowed,
and none may be refused. Then the first one asks for more, and must be refused with the code of the
limit. What it asked for has no effect.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from _proof.attacks import Assault, Attacker, Begin, fill, send, subscribe
from _proof.judge import MIB

CHANGED = "what was refused took effect"
ACKED = "/topic/acked", 8, "ack:client\n"
CHOSEN = "/topic/chosen", 25, ""
"""Subscriptions: the destination, the terms of each selector, and the ack mode."""
MORE = range(20_000, 24_000)
"""The numbers of subscriptions that are too many."""
FULL_COMMIT = 1024
COSTLY = 20
"""Subscribers that acknowledge: a SEND to them in a COMMIT takes 165 us."""
COSTLY_SENDS = 590, 640
"""SENDs to them that take a little less and a little more than 100 ms."""
LARGEST_WINDOW = 16_384
NEWLINE = b"\n"


class Bound(NamedTuple):
    """A bound, and how it is tried.

    Args:
      below: Does what is just allowed, on one of some connections. It may be prepared before.
      above: Asks for more than is allowed; None = there is no more that could be asked for.
      code: The code of the ERROR.
      prepare: Called for each connection before the measurement begins.
      is_unchanged: Asks on another connection whether what was refused had no effect; None = it
        could have none that others see.
    """

    name: str
    below: Callable[[Attacker, int, int], object]
    above: Callable[[Attacker], object] | None
    code: str = ""
    prepare: Callable[[Attacker, int], object] = lambda *_: None
    is_unchanged: Callable[[Attacker], bool] | None = None


def tried(bound: Bound, count: int, port: int, begin: Begin) -> list[Attacker]:
    """Try a bound with ``count`` connections, and return them with what was refused."""
    attackers = [Attacker(port) for _ in range(count)]
    for number, attacker in enumerate(attackers):
        bound.prepare(attacker, number)
    begin()
    for number, attacker in enumerate(attackers):
        bound.below(attacker, number, count)
    for attacker in attackers:
        attacker.ask()
        if attacker.refusal:
            attacker.refusal = f"below: {attacker.refusal}"
    if bound.above is not None and not attackers[0].refusal:
        bound.above(attackers[0])
        attackers[0].ask()
        if bound.is_unchanged is not None:
            witness = Attacker(port)
            if not bound.is_unchanged(witness):
                witness.refusal = CHANGED
            attackers.append(witness)
    return attackers


def is_silent(destination: str, witness: Attacker) -> bool:
    """Return whether a queue has no message for a new consumer."""
    witness.ask(subscribe(0, destination))
    return not witness.hear(b"MESSAGE\n", 0.3)


def _share(most: int, number: int, count: int) -> range:
    """Return the numbers of the subscriptions of one of some connections, ``most`` in all."""
    return range(number * most // count, (number + 1) * most // count)


def _selector(number: int, terms: int) -> str:
    """Return a selector of four words for each term, different for each number."""
    return f"selector:{' OR '.join(f'a = {number * 100 + n}' for n in range(terms))}\n"


def _subscribers(attacker: Attacker, number: int, count: int) -> None:
    # One user may take half of what the others leave of 3,846 at 26 us each.
    _all_subscribe(attacker, _share(1_850 if count == 1 else 3_000, number, count), *ACKED)
    if number == count - 1:
        attacker.ask(send(ACKED[0], "x", "a:-1\n"))


def _selectors(attacker: Attacker, number: int, count: int) -> None:
    # The same of 1,666 at 60 us each.
    _all_subscribe(attacker, _share(800 if count == 1 else 1_300, number, count), *CHOSEN)
    if number == count - 1:
        attacker.ask(send(CHOSEN[0], "x", "a:-1\n"))


def _all_subscribe(
    attacker: Attacker, numbers: range, destination: str, terms: int, ack: str
) -> None:
    fill(attacker, (subscribe(n, destination, f"{ack}{_selector(n, terms)}") for n in numbers))


def _transaction(attacker: Attacker, destinations: Sequence[str]) -> None:
    name = "transaction:t\n"
    attacker.ask(f"BEGIN\n{name}\n", *(send(each, "x" * 100, name) for each in destinations))


def _full_commit(attacker: Attacker, number: int) -> None:
    _transaction(attacker, [f"/queue/full.{number}"] * (FULL_COMMIT - 1))


def _commit(attacker: Attacker, _number: int, _count: int) -> None:
    attacker.say("COMMIT\ntransaction:t\n\n")


def _more_actions(attacker: Attacker) -> None:
    _transaction(attacker, ["/queue/refused"] * (FULL_COMMIT + 1))


def _costly_commit(attacker: Attacker, number: int) -> None:
    if number == 0:
        attacker.ask(*(subscribe(n, "/topic/costly", "ack:client\n") for n in range(COSTLY)))
    _transaction(attacker, ["/topic/costly"] * COSTLY_SENDS[0])


def _more_costly(attacker: Attacker) -> None:
    _transaction(attacker, ["/queue/refused", *["/topic/costly"] * COSTLY_SENDS[1]])
    attacker.say("COMMIT\ntransaction:t\n\n")


def _window(attacker: Attacker, number: int) -> None:
    queue = f"/queue/window.{number}"
    fill(attacker, (send(queue, "x") for _ in range(LARGEST_WINDOW)))
    # A window above the bound is lowered to it.
    headers = f"ack:client\nprefetch-count:{2 * LARGEST_WINDOW}\n"
    attacker.say(subscribe(number, queue, headers))


def _ack_all(attacker: Attacker, _number: int, _count: int) -> None:
    data = bytearray()
    while data.count(b"\nack:") < LARGEST_WINDOW and (piece := attacker.line.recv(1 << 20)):
        data += piece
    last = data.rindex(b"\nack:") + len(b"\nack:")
    attacker.say(f"ACK\nid:{data[last : data.index(NEWLINE, last)].decode()}\n\n")


def _parts(count: int) -> str:
    return ",".join(f"/queue/part.{n}" for n in range(count))


def _headers(count: int) -> str:
    return "".join(f"h{n}:{chr(92)}c{chr(92)}c\n" for n in range(count))


BOUNDS = (
    Bound(
        "subscribers",
        _subscribers,
        lambda attacker: _all_subscribe(attacker, MORE, *ACKED),
        "too-many-subscriptions",
    ),
    Bound(
        "selectors",
        _selectors,
        lambda attacker: _all_subscribe(attacker, MORE, *CHOSEN),
        "too-many-subscriptions",
    ),
    Bound(
        "actions",
        _commit,
        _more_actions,
        "transaction-too-large",
        _full_commit,
        partial(is_silent, "/queue/refused"),
    ),
    Bound(
        "cost of a COMMIT",
        _commit,
        _more_costly,
        "transaction-too-large",
        _costly_commit,
        partial(is_silent, "/queue/refused"),
    ),
    Bound("window", _ack_all, None, prepare=_window),
    Bound(
        "composite",
        lambda attacker, _number, _count: attacker.say(*[send(_parts(64))] * 50),
        lambda attacker: attacker.ask(send(f"/queue/refused,{_parts(64)}")),
        "invalid-destination",
        is_unchanged=partial(is_silent, "/queue/refused"),
    ),
    Bound(
        "headers",
        lambda attacker, _number, _count: attacker.say(
            *[send("/topic/h", "x", _headers(255))] * 60
        ),
        lambda attacker: attacker.ask(send("/queue/refused", "x", _headers(256))),
        "too-many-headers",
        is_unchanged=partial(is_silent, "/queue/refused"),
    ),
)


def assaults(connections: int) -> list[Assault]:
    """Return the attacks that try each bound with a number of connections."""
    return [Assault(each.name, partial(tried, each, connections), 512 * MIB) for each in BOUNDS]
