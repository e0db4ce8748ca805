"""The producers and consumers, and their destinations."""

import threading
from collections.abc import Iterator

from _crash.clients import Client, Consumer, Mover, Producer, StreamReader, Transactions
from _crash.ledger import Ledger
from _crash.link import Link

LOCK, WINDOW, TX = "/queue/crash.lock", "/queue/crash.window", "/queue/crash.tx"
AUTO, DEEP, NEWS = "/queue/crash.auto", "/queue/crash.deep", "/topic/crash.news"
HOP, HOP2 = "/queue/crash.hop", "/queue/crash.hop2"
LOGGED, LOG = "/topic/crash.log", "/stream/topic/crash.log"
"""A topic whose policy gives it a stream, and the stream."""


class Cast:
    """Makes the clients of each life of the broker.

    Args:
      has_log: There is a stream, into which transactions send, too.
    """

    def __init__(self, port: int, ledger: Ledger, *, has_log: bool = False) -> None:
        self._port = port
        self._ledger = ledger
        self._beside = (NEWS, LOGGED) if has_log else ()
        self._tracks = {
            name: ledger.track(name, is_sure=name != "auto")
            for name in ("lock", "win1", "win2", "tx", "auto", "deep", "news", "hop", "hop2", "mix")
        }

    def prepare(self) -> None:
        """Create the durable subscription. Messages sent before it exists are not promised."""
        link = Link(self._port, "crash")
        link.send(
            f"SUBSCRIBE\nid:0\ndestination:{NEWS}\nack:client-individual\n"
            "activemq.subscriptionName:news\nreceipt:made\n\n\0"
        )
        while not any(reply.command == "RECEIPT" for reply in link.receive()):
            pass
        link.close()

    def producers(self, seed: int, stop: threading.Event) -> Iterator[Client]:
        """Yield the producers."""
        tracks = self._tracks
        to = {"win1": WINDOW, "win2": WINDOW, "auto": AUTO, "news": NEWS, "hop": HOP}
        yield Producer(*self._args(seed, stop), track=tracks["lock"], to=LOCK, window=1)
        yield Producer(*self._args(seed + 1, stop), track=tracks["deep"], to=DEEP, window=5)
        yield Transactions(*self._args(seed + 2, stop), track=tracks["tx"], to=TX)
        if self._beside:
            mixed, args = (TX, *self._beside), self._args(seed + 10, stop)
            yield Transactions(*args, track=tracks["mix"], to=TX, mixed=mixed)
        for more, (name, where) in enumerate(to.items(), 3):
            window = 20 if name == "hop" else 200
            args = self._args(seed + more, stop)
            yield Producer(*args, track=tracks[name], to=where, window=window)

    def consumers(self, seed: int, stop: threading.Event) -> Iterator[Client]:
        """Yield the consumers. The deep queue has none."""
        plan = {LOCK: (1, 100), WINDOW: (100,), TX: (100,), NEWS: (100,), HOP2: (10,)}
        for more, (of, prefetches) in enumerate(plan.items(), 20):
            for prefetch in prefetches:
                yield Consumer(*self._args(seed + more + prefetch, stop), of=of, prefetch=prefetch)
        yield Consumer(*self._args(seed + 30, stop), of=AUTO, ack="auto")
        to = (HOP2, *self._beside)
        yield Mover(*self._args(seed + 31, stop), of=HOP, to=to, track=self._tracks["hop2"])

    def drainers(self, seed: int, stop: threading.Event) -> Iterator[Client]:
        """Yield the consumers that drain everything."""
        yield from self.consumers(seed, stop)
        yield Consumer(*self._args(seed + 32, stop), of=DEEP)

    def reader(self, stop: threading.Event) -> Client:
        """Return the reader of the stream."""
        return StreamReader(*self._args(0, stop), of=LOG)

    def _args(self, seed: int, stop: threading.Event) -> tuple[int, Ledger, int, threading.Event]:
        return self._port, self._ledger, seed, stop
