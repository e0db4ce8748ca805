"""Exchange messages with another client through the broker, with stomp.py over TCP.

    python scripts/examples/exchange.py stomp.py stompjs --port 61613

sends 10,000 messages to the topic /topic/exchange/stompjs, expects as many in order on
/topic/exchange/stomp.py, and prints the broker's next message on DIAG/session. The other
client is ``tests/js/exchange.mjs``, or this program with the names swapped. Either may be started
first: both greet when they have subscribed, and again when they receive a greeting.
"""

import argparse
import json
import sys
import threading

import stomp

TOPIC = "/topic/exchange/"
STATISTICS = "DIAG/session"
HELLO = "hello"
CLIENTS = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}


class Exchange(stomp.ConnectionListener):  # type: ignore[misc]
    """The messages that this client has received."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.received = 0
        self.subscribed = threading.Event()
        self.greeted = threading.Event()
        self.complete = threading.Event()
        self.said_all = threading.Event()
        self.statistics = ""
        self.error = ""

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        """Note that the broker has processed the request."""
        event = {"subscribed": self.subscribed, "said-all": self.said_all}
        if asked := event.get(frame.headers["receipt-id"]):
            asked.set()

    def on_message(self, frame: stomp.utils.Frame) -> None:
        """Count a message, print a statistic, or answer a greeting."""
        if frame.headers["destination"] == STATISTICS:
            self.statistics = frame.body if self.received == self.wanted else ""
        elif frame.body == HELLO:
            self.greeted.set()
        elif frame.body == str(self.received):
            self.received += 1
        else:
            self.fail(f"message {self.received} was due, message {frame.body!r} came")
        if self.received == self.wanted and self.statistics:
            self.complete.set()

    def on_error(self, frame: stomp.utils.Frame) -> None:
        """Report an ERROR of the broker."""
        self.fail(frame.headers["message"])

    def on_disconnected(self) -> None:
        """Report the end of the connection, if it is unexpected."""
        if not self.complete.is_set():
            self.fail("the connection was lost")

    def fail(self, error: str) -> None:
        """End all waits with an error."""
        self.error = self.error or error
        for event in (self.subscribed, self.greeted, self.complete, self.said_all):
            event.set()

    def wait(self, event: threading.Event, seconds: float, what: str) -> None:
        """Wait for an event; end the program with one line if it does not come."""
        if not event.wait(seconds):
            self.error = f"no {what} within {seconds:g} s; {self.received} messages so far"
        if self.error:
            sys.exit(f"exchange: {self.error}")


def exchange(version: str, name: str, peer: str, port: int, *, count: int, seconds: float) -> None:
    """Send ``count`` messages, and receive as many."""
    broker = CLIENTS[version]([("127.0.0.1", port)], reconnect_attempts_max=1)
    result = Exchange(count)
    broker.set_listener("", result)
    broker.connect(wait=True)
    broker.subscribe(STATISTICS, id="statistics")
    broker.subscribe(TOPIC + name, id="messages", receipt="subscribed")
    result.wait(result.subscribed, seconds, "receipt")
    print(f"{name}: subscribed over TCP, waiting for {peer}", flush=True)
    broker.send(TOPIC + peer, HELLO)
    result.wait(result.greeted, seconds, f"hello from {peer}")
    broker.send(TOPIC + peer, HELLO)
    for number in range(count):
        last = {"receipt": "said-all"} if number == count - 1 else {}
        broker.send(TOPIC + peer, str(number), **last)
    result.wait(result.said_all, seconds, "receipt for the last message")
    result.wait(result.complete, seconds, "last message and statistics")
    print(f"{name}: sent {count}, received {result.received} in order")
    record = json.loads(result.statistics)
    shown = ("clients", "websockets", "stomp_connected", "subscriptions")
    print(f"{name}: {STATISTICS} says", {key: record[key] for key in shown}, flush=True)
    broker.disconnect()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", help="name of this client")
    parser.add_argument("peer", help="name of the other client")
    parser.add_argument("--port", type=int, default=61613)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of each wait")
    parser.add_argument("--version", choices=CLIENTS, default="1.2", help="of STOMP")
    given = parser.parse_args()
    exchange(
        given.version, given.name, given.peer, given.port, count=given.count, seconds=given.seconds
    )


if __name__ == "__main__":
    main()
