"""The load: producers that offer ten times what consumers read, and clients that never read.

It runs in its own process; ``Load.run`` returns plain figures.
"""

import time
from collections import Counter
from collections.abc import Iterable
from multiprocessing.connection import Connection as Pipe
from typing import Any, NamedTuple

from _proof.client import Producer, Reader
from _proof.judge import Times

PASS_S = 0.002
TICK_S = 0.05
"""Interval between a consumer's reads."""
AGAIN_S = 1.0
"""Delay before a disconnected consumer reconnects."""
STUCK_LIFE_S = 10.0
"""A client that never reads reconnects after this time if the broker may have disconnected it. It
cannot notice that, as the end of the connection is behind unread data."""
QUIET_S = 1.5
QUIET_LIMIT_S = 60.0
WIRE_BYTES = 150
"""Approximate difference between the length of a MESSAGE and of its body."""


class Place(NamedTuple):
    """One destination of the load.

    Args:
      readers: Consumers that read ``read_rate`` messages a second each, at most.
      stuck: Consumers that never read.
      offered_rate: Messages a second of all ``producers`` together.
      acks: Whether it is a queue, whose consumers acknowledge.
    """

    destination: str
    readers: int
    stuck: int
    read_rate: float
    offered_rate: float
    producers: int
    body_bytes: int
    acks: bool = False

    @property
    def read_bytes_per_s(self) -> float:
        """Return the maximum bytes per second of a reader."""
        return self.read_rate * (self.body_bytes + WIRE_BYTES)


class Crowd:
    """The clients of one destination."""

    def __init__(self, port: int, place: Place, *, stuck_lives: bool) -> None:
        self.place = place
        self.stuck_lives = stuck_lives
        mode = "ack:client-individual\n" if place.acks else ""
        frames = f"SUBSCRIBE\nid:0\ndestination:{place.destination}\n{mode}\n\0"
        self.readers = [Reader(port, frames, acks=place.acks) for _ in range(place.readers)]
        self.stuck = [Reader(port, frames) for _ in range(place.stuck)]
        rate = place.offered_rate / place.producers
        self.producers = [
            Producer(port, place.destination, n, rate, place.body_bytes)
            for n in range(place.producers)
        ]
        self.everybody: list[Reader | Producer] = [*self.readers, *self.stuck, *self.producers]
        for each in self.everybody:
            each.connect()
        self._served = 0
        self._again: list[tuple[float, Reader]] = []
        self._renew_at = STUCK_LIFE_S

    def work(self, since_s: float) -> None:
        """Send and read whatever is due ``since_s`` seconds after the start."""
        for producer in self.producers:
            producer.work(since_s)
        count = len(self.readers)
        due = int(since_s / TICK_S * count)
        limit = int(self.place.read_bytes_per_s * TICK_S)
        for number in range(max(self._served, due - 3 * count), due):
            reader = self.readers[number % count]
            if reader.is_open:
                reader.read(limit)
                if not reader.is_open:
                    self._again.append((since_s + AGAIN_S, reader))
        self._served = due
        while self._again and self._again[0][0] <= since_s:
            self._again.pop(0)[1].connect()
        if self.stuck_lives and since_s >= self._renew_at:
            self._renew_at = since_s + STUCK_LIFE_S
            self._renew()

    def _renew(self) -> None:
        for each in self.stuck:
            while each.is_open and each.read(1 << 20):
                pass
            if not each.is_open:
                each.connect()

    def stop(self, since_s: float) -> None:
        """Send the rest of incomplete frames, and read the answers."""
        for producer in self.producers:
            if producer.is_open:
                producer.work(since_s, stop=True)

    def drain(self) -> int:
        """Read as fast as possible, with the stuck clients, too. Return the number of bytes.

        A queue's stuck consumer leaves instead: its messages are for the others.
        """
        size = 0
        for each in self.readers:
            size += each.read(1 << 20)
        for each in self.stuck:
            if self.place.acks:
                each.close()
            else:
                size += each.read(1 << 20)
        return size

    def figures(self) -> dict[str, Any]:
        """Return the figures of the clients."""
        everybody = [*self.readers, *self.stuck]
        errors = sum((each.errors for each in everybody), Counter[str]())
        refusals = sum((each.refusals for each in self.producers), Counter[str]())
        return {
            "destination": self.place.destination,
            "offered": sum(each.offered for each in self.producers),
            "sent": sum(each.sent for each in self.producers),
            "receipts": sum(each.receipts for each in self.producers),
            "matched": sum(each.matched for each in self.producers),
            "refusals": dict(refusals),
            "received": sum(each.received for each in everybody),
            "received_by_readers": sum(each.received for each in self.readers),
            "received_least": min((each.received for each in self.readers), default=0),
            "acked": sum(each.acked for each in everybody),
            "disorder": sum(each.disorder for each in everybody),
            "connects": sum(each.connects for each in everybody),
            "errors": dict(errors),
            "times": Times.sum_of(each.times for each in self.readers).buckets,
        }

    def close(self) -> None:
        """Leave."""
        for each in self.everybody:
            each.close()


def run_load(
    port: int, places: Iterable[Place], seconds: float, pipe: Pipe, *, stuck_lives: bool
) -> None:
    """Send ``ready``, wait for the start, run the load, drain, and send the figures.

    Args:
      pipe: The pipe to the parent process.
      stuck_lives: Whether clients that never read may be disconnected by the broker, and connect
        again.
    """
    crowds = [Crowd(port, place, stuck_lives=stuck_lives) for place in places]
    pipe.send("ready")
    pipe.recv()
    start = time.monotonic()
    spent_s = time.process_time()
    while (since_s := time.monotonic() - start) < seconds:
        for crowd in crowds:
            crowd.work(since_s)
        time.sleep(max(0.0, PASS_S - (time.monotonic() - start - since_s)))
    spent_s = time.process_time() - spent_s
    at_end = [crowd.figures() for crowd in crowds]
    pipe.send("draining")
    _drain(crowds, start)
    # Clients with undelivered messages stay connected until the sums have been reported.
    pipe.send((at_end, [crowd.figures() for crowd in crowds], spent_s))
    pipe.recv()
    for crowd in crowds:
        crowd.close()


def _drain(crowds: list[Crowd], start: float) -> None:
    limit = time.monotonic() + QUIET_LIMIT_S
    quiet_at = time.monotonic() + QUIET_S
    before = -1
    while (now := time.monotonic()) < min(quiet_at, limit):
        moved = sum(crowd.drain() for crowd in crowds)
        for crowd in crowds:
            crowd.stop(now - start)
        result = sum(p.receipts for crowd in crowds for p in crowd.producers)
        unsettled = any(not r.is_settled for crowd in crowds for r in crowd.readers if r.is_open)
        if moved or result != before or unsettled:
            quiet_at = now + QUIET_S
        before = result
        if not moved:
            time.sleep(PASS_S)
