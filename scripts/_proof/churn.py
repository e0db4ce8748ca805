"""The churn: random acts, and the removal of the state that they leave on purpose."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable

import trio

from _proof.actor import FEW
from _proof.peer import dialled, noise
from _proof.regular import Regular
from _proof.unruly import Unruly

POLICIES = """
["/topic/soak.stream.>"]
stream = true
stream_max_bytes = 1048576
stream_max_age_ms = 60000
["/topic/soak.durable.>"]
max_messages = 100
overflow = "drop-oldest"
["/queue/soak.many.>"]
ttl_ms = 2000
["/queue/soak.kept.>"]
persistent = "always"
max_messages = 200
dedup_window = 10
overflow = "drop-oldest"
backoff_s = [0.1]
["/queue/soak.block"]
max_messages = 50
overflow = "block"
["/queue/soak.reject"]
max_messages = 50
"""
DEDUP_WINDOW = 10
KEPT = [f"/queue/soak.kept.{n}" for n in range(FEW)]
DRAINED = [*KEPT, "/queue/soak.block", "/queue/soak.reject", "/queue/DLQ.>", "/queue/deadletter"]


class Churn(Regular, Unruly):
    """All random actions. Arguments as for ``Actor``."""

    def __init__(self, port: int, dice: random.Random) -> None:
        super().__init__(port, dice)
        self.done: Counter[str] = Counter()
        self.refused = 0
        """Actions that the broker or the system ended early, as many of them provoke."""

    def acts(self) -> list[Callable[[], Awaitable[None]]]:
        """Return all actions."""
        return [
            self.orderly,
            self.orderly,
            self.abrupt,
            self.silent,
            self.cut,
            self.dead,
            self.unacked,
            self.durable,
            self.shared_durable,
            self.temporary,
            self.stream,
            self.transaction,
            self.big,
            self.wrong,
            self.wrong,
            self.many_names,
            self.many_names,
            self.wildcards,
            self.last_value,
            self.scheduled,
            self.slow,
            self.full,
            self.browse,
            self.http,
            self.bad_websocket,
            self.garbage,
            self.ask,
            self.work_queue,
            self.parked,
        ]

    async def act(self) -> None:
        """Do a random action."""
        await self.do(self.dice.choice(self.acts()))

    async def do(self, act: Callable[[], Awaitable[None]]) -> None:
        """Do an action."""
        self.done[getattr(act, "__name__", "?")] += 1
        try:
            await act()
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            self.refused += 1


async def tidy(port: int, drain_s: float) -> None:
    """Remove persistent state: messages of queues (for ``drain_s``), durable subscriptions, last
    values.

    The ids for duplicate detection cannot be removed. Their table is filled, so that its size is
    constant.
    """
    async with dialled(port, websocket=False) as peer:
        await peer.connect()
        for queue in KEPT:
            ids = [f"x-dedup-id:{noise(8).hex()}" for _ in range(DEDUP_WINDOW)]
            await peer.say(*[f"SEND\ndestination:{queue}\n{each}\n\nx" for each in ids])
        for n, queue in enumerate(DRAINED):
            await peer.say(f"SUBSCRIBE\nid:{n}\ndestination:{queue}\n\n")
        for n in range(FEW):
            await peer.say(
                f"SEND\ndestination:/topic/soak.last.{n}\nretain:remove\npersistent:true\n\nx"
            )
            await peer.say(
                f"SUBSCRIBE\nid:shared{n}\ndestination:/topic/soak.durable.{n}\ndurable:true\n"
                "auto-delete:false\n\n",
                f"UNSUBSCRIBE\nid:shared{n}\ndurable:true\nauto-delete:false\n\n",
            )
        await peer.hear(b"never", drain_s)
        await peer.leave()
    for n in range(FEW):
        async with dialled(port, websocket=False) as peer:
            await peer.connect(f"client-id:c{n}\n")
            end = f"activemq.subscriptionName:d{n}\n"
            await peer.say(
                f"SUBSCRIBE\nid:1\ndestination:/topic/soak.durable.{n}\n{end}\n",
                f"UNSUBSCRIBE\nid:1\n{end}\n",
            )
            await peer.leave()
