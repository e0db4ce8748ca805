"""Frames of one large write take many turns, and other clients are answered between them."""

from collections.abc import Callable

import pytest
import trio

from tests.support.fakes import TCP, open_dial
from tests.support.hostile import QUIET

QUEUES = 3_000
TIMES = 5
SELECTORS = 1_000


def send(destination: str, headers: str = "", body: str = "x") -> bytes:
    return f"SEND\ndestination:{destination}\n{headers}\n{body}\0".encode()


def wildcards() -> tuple[bytes, bytes]:
    """Queues, and wildcards over all of them that come and go (F2)."""
    frames = [
        f"SUBSCRIBE\nid:{number}\nack:client\ndestination:/queue/z*\n\n\0"
        f"UNSUBSCRIBE\nid:{number}\n\n\0".encode()
        for number in range(TIMES)
    ]
    return b"".join(send(f"/queue/z{n}") for n in range(QUEUES)), b"".join(frames)


def selectors() -> tuple[bytes, bytes]:
    """Subscriptions with a selector each, and messages for which all of them are evaluated (F3)."""
    frames = [
        f"SUBSCRIBE\nid:{number}\ndestination:/topic/s\nselector:k = '{number}'\n\n\0"
        for number in range(SELECTORS)
    ]
    asked = [send("/topic/s", f"n:{number}\nk:none\n") for number in range(100)]
    return "".join(frames).encode(), b"".join(asked)


@pytest.mark.parametrize("attack", [wildcards, selectors], ids=lambda each: each.__name__)
async def test_others_are_answered_while_one_client_asks_for_much(
    attack: Callable[[], tuple[bytes, bytes]],
) -> None:
    async with open_dial(TCP, **QUIET) as dial:
        before, data = attack()
        attacker, other = await dial.connect(), await dial.connect()
        await attacker.send_bytes(before)
        await attacker.fence()
        dispatcher = dial.server.dispatcher
        turns, answers = dispatcher.turns, 0

        async def answer() -> None:
            nonlocal answers
            while True:
                await other.publish("/topic/ping", b"x", receipt=True)
                answers += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            await attacker.send_bytes(data + send("/topic/end", "receipt:end\n"))
            await attacker.receive_until_receipt("end")
            nursery.cancel_scope.cancel()
        assert dispatcher.turns - turns > 10
        assert answers > 5
        await attacker.aclose()
        for queue in list(dial.server.broker.queues):
            dial.server.broker.queues.end(queue.name, 0.0)
