"""Unaffected clients: a topic with a moderate rate, to measure latency.

It runs in its own process, so that the figures exclude the load's own work.
"""

import select
import time
from multiprocessing.connection import Connection as Pipe

from _proof.client import Producer, Reader

DESTINATION = "/topic/proof.side"
BODY_BYTES = 120
SUBSCRIBE = f"SUBSCRIBE\nid:0\ndestination:{DESTINATION}\n\n\0"
END_S = 5.0
"""Time to wait at the end for messages in delivery."""


def run_side(
    port: int, subscribers: int, rate: float, seconds: float, pipe: Pipe, *, skip_s: float
) -> None:
    """Send ``ready``, wait for the start, publish at ``rate`` for ``seconds``, send the results.

    Args:
      skip_s: Messages that arrive within this time of the start do not count.
    """
    readers = [Reader(port, SUBSCRIBE) for _ in range(subscribers)]
    poll = select.epoll()
    by_file: dict[int, Reader] = {}
    for reader in readers:
        reader.connect()
        by_file[reader.socket.fileno()] = reader
        poll.register(reader.socket, select.EPOLLIN)
    producer = Producer(port, DESTINATION, 0, rate, BODY_BYTES, is_steady=True)
    producer.connect()
    time.sleep(0.5)
    pipe.send("ready")
    pipe.recv()
    start = time.monotonic()
    skips = True
    while (since_s := time.monotonic() - start) < seconds + END_S:
        is_over = since_s > seconds
        producer.work(since_s, stop=is_over)
        if is_over and all(each.received >= producer.sent for each in readers if each.is_open):
            break
        if skips and since_s > skip_s:
            skips = False
            for each in readers:
                each.times.buckets.clear()
        for file, _ in poll.poll(0.002):
            each = by_file[file]
            if not each.read(1 << 20) and not each.is_open:
                del by_file[file]
    pipe.send(
        {
            "sent": producer.sent,
            "offered": producer.offered,
            "received": sum(each.received for each in readers),
            "lost": sum(producer.sent - each.received for each in readers),
            "disorder": sum(each.disorder for each in readers),
            "errors": {name: n for each in readers for name, n in each.errors.items()},
            "times": _sum(readers),
        }
    )
    pipe.recv()


def _sum(readers: list[Reader]) -> dict[int, int]:
    whole: dict[int, int] = {}
    for each in readers:
        for bucket, count in each.times.buckets.items():
            whole[bucket] = whole.get(bucket, 0) + count
    return whole
