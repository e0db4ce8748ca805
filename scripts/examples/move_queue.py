"""Move the messages of a queue from another STOMP broker to this one, with stomp.py.

    python scripts/examples/move_queue.py /queue/orders old:61613 127.0.0.1:61613

Each message is acknowledged there once it is stored here. If a connection breaks in between, a
message may be in both brokers, but is never lost. The program ends when no message has arrived for
--quiet-s seconds.
Passcodes are read from the variables OLD_PASSCODE and NEW_PASSCODE.
"""

import argparse
import os
import queue
import sys
import threading

import stomp

VERSIONS = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}
PATIENCE_S = 30.0

# Headers that belong to the delivery by the old broker.
OF_ONE_HOP = frozenset(
    {
        "ack",
        "content-length",
        "delivery-count",
        "destination",
        "message-id",
        "receipt",
        "redelivered",
        "subscription",
        "transaction",
    }
)


class Arrivals(stomp.ConnectionListener):  # type: ignore[misc]
    """The messages from the old broker, and its disconnection."""

    def __init__(self) -> None:
        self.frames: queue.Queue[stomp.utils.Frame | None] = queue.Queue()

    def on_message(self, frame: stomp.utils.Frame) -> None:
        """Queue a message of the old broker."""
        self.frames.put(frame)

    def on_disconnected(self) -> None:
        """Note that no more messages will arrive."""
        self.frames.put(None)


class Receipts(stomp.ConnectionListener):  # type: ignore[misc]
    """The receipts of the new broker."""

    def __init__(self) -> None:
        self.stored = threading.Semaphore(0)

    def on_receipt(self, _frame: stomp.utils.Frame) -> None:
        """Count a receipt."""
        self.stored.release()


def connected(
    address: str, version: str, vhost: str | None, *, login: str, passcode: str, listener: object
) -> stomp.connect.BaseConnection:
    """Return a connection to ``host:port``. Bodies stay bytes."""
    host, _, port = address.rpartition(":")
    options: dict[str, object] = {"auto_decode": False, "try_loopback_connect": False}
    if version != "1.0":
        options["vhost"] = vhost
    connection = VERSIONS[version]([(host, int(port))], **options)
    connection.set_listener("", listener)
    connection.connect(login or None, passcode or None, wait=True)
    return connection


def acknowledge(old: stomp.connect.BaseConnection, version: str, frame: stomp.utils.Frame) -> None:
    """Send ACK in the form of the version."""
    headers = frame.headers
    if version == "1.1":
        old.ack(headers["message-id"], headers["subscription"])
    else:
        old.ack(headers.get("ack") or headers["message-id"])


def move(given: argparse.Namespace) -> int:
    """Move all waiting messages, and return their number."""
    arrivals, receipts = Arrivals(), Receipts()
    passcodes = os.environ.get("OLD_PASSCODE", ""), os.environ.get("NEW_PASSCODE", "")
    new = connected(
        given.new, "1.2", None, login=given.new_login, passcode=passcodes[1], listener=receipts
    )
    old = connected(
        given.old,
        given.version,
        given.vhost,
        login=given.old_login,
        passcode=passcodes[0],
        listener=arrivals,
    )
    known = {"id": "move"} if given.version != "1.0" else {}
    # A cumulative ACK is equivalent here, as messages are acknowledged in order.
    old.subscribe(given.queue, ack="client", **known, headers={"prefetch-count": "1"})
    moved = 0
    while True:
        try:
            frame = arrivals.frames.get(timeout=given.quiet_s)
        except queue.Empty:
            break
        if frame is None:
            sys.exit(f"the old broker is gone; {moved} moved")
        kept = {name: text for name, text in frame.headers.items() if name not in OF_ONE_HOP}
        new.send(given.queue, frame.body, headers={**kept, "persistent": "true", "receipt": "1"})
        if not receipts.stored.acquire(timeout=PATIENCE_S):
            sys.exit(f"no RECEIPT came; {moved} moved")
        acknowledge(old, given.version, frame)
        moved += 1
    old.disconnect()
    new.disconnect()
    return moved


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Move a queue's messages to another broker.")
    parser.add_argument("queue", help="as /queue/orders")
    parser.add_argument("old", help="host:port of the old broker")
    parser.add_argument("new", help="host:port of the new broker")
    parser.add_argument("--version", choices=VERSIONS, default="1.2", help="the old broker's STOMP")
    parser.add_argument("--vhost", help="virtual host of the old broker; RabbitMQ's is /")
    parser.add_argument("--old-login", default="", help="user at the old broker")
    parser.add_argument("--new-login", default="", help="user at the new broker")
    parser.add_argument("--quiet-s", type=float, default=5.0, help="end after this silence")
    print(f"{move(parser.parse_args())} moved")


if __name__ == "__main__":
    main()
