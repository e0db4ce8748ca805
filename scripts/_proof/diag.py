"""Subscribes to a broker's DIAG topics, in a thread, and records the figures for the verdicts."""

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from _bench.wire import HOST

TOPICS = (
    "DIAG/process",
    "DIAG/session",
    "DIAG/stale",
    "DIAG/destinations",
    "DIAG/queues",
    "DIAG/connections",
    "DIAG/event/drop",
    "DIAG/event/disconnect",
)
_LOST = "too-many-events"
POLL_S = 0.05


class Reports:
    """The DIAG messages so far."""

    def __init__(self) -> None:
        self.latest: dict[str, dict[str, Any]] = {}
        """The last message of each topic without a list."""
        self.items: dict[str, dict[str, dict[str, Any]]] = {}
        """The last full list of each topic, by name of the item."""
        self.drops: Counter[tuple[str, str]] = Counter()
        """Messages reported as dropped, by destination and reason."""
        self.ends: Counter[str] = Counter()
        """Sessions that ended, by reason."""
        self.events_lost = 0
        self.ticks = 0
        """The number of intervals that have been reported completely."""
        self._parts: dict[str, list[dict[str, Any]]] = {}

    def figure(self, topic: str, name: str) -> int:
        """Return a field of the last message of a topic, or 0 without any."""
        return int(self.latest.get(topic, {}).get(name) or 0)

    def sums(self, topic: str, *names: str) -> int:
        """Return the sum of fields over all items of a list."""
        listed = self.items.get(topic, {}).values()
        return sum(int(each[name] or 0) for each in listed for name in names)

    def take(self, topic: bytes, body: bytes) -> None:
        """Record a message."""
        name = topic.decode()
        record = json.loads(body)
        if name == "DIAG/event/drop":
            self._take_drop(record)
        elif name == "DIAG/event/disconnect":
            self.ends[record["reason"]] += 1
        elif "items" in record:
            self._take_items(name, record)
        else:
            self.latest[name] = record

    def _take_drop(self, reported: dict[str, Any]) -> None:
        count = int(reported["detail"])
        self.drops[reported["destination"], reported["reason"]] += count
        if reported["reason"] == _LOST or reported["destination"] == "DIAG":
            self.events_lost += count

    def _take_items(self, name: str, reported: dict[str, Any]) -> None:
        if reported["part"] == 1:
            self._parts[name] = []
        parts = self._parts.setdefault(name, [])
        parts.extend(reported["items"])
        if reported["part"] < reported["parts"]:
            return
        key = "session_id" if name == "DIAG/connections" else "destination"
        whole = {str(each[key]): each for each in parts}
        self.items[name] = whole if reported["full"] else self.items.get(name, {}) | whole
        if name == "DIAG/destinations":
            self.ticks += 1


class Diag(Reports):
    """One subscriber.

    Args:
      port: The broker's port on the loopback interface.
      topics: The topics to subscribe to.
    """

    def __init__(self, port: int, topics: Sequence[str] = TOPICS) -> None:
        super().__init__()
        self.error = ""
        self._socket = socket.create_connection((HOST, port))
        frames = ["CONNECT\naccept-version:1.2\nhost:localhost\nlogin:proof\n\n\0"]
        frames += [f"SUBSCRIBE\nid:{n}\ndestination:{t}\n\n\0" for n, t in enumerate(topics)]
        self._socket.sendall("".join(frames).encode())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_ticks(self, count: int, limit_s: float) -> None:
        """Wait for ``count`` whole intervals after this call, or for ``limit_s``."""
        wanted, until = self.ticks + count, time.monotonic() + limit_s
        while self.ticks < wanted and time.monotonic() < until:
            time.sleep(POLL_S)

    def close(self) -> None:
        """Leave."""
        self._socket.close()

    def _run(self) -> None:
        data = b""
        while True:
            try:
                more = self._socket.recv(1 << 20)
            except OSError:
                return
            if not more:
                self.error = self.error or "the broker closed the DIAG connection"
                return
            *frames, data = (data + more).split(b"\0")
            for frame in frames:
                head, _, body = frame.partition(b"\n\n")
                if b"MESSAGE\n" in head:
                    self.take(head.partition(b"\ndestination:")[2].partition(b"\n")[0], body)
                elif b"ERROR\n" in head:
                    self.error = frame.decode(errors="replace")[:300]
