"""The connections of a scenario: frames, answers and deliveries that are not judged yet."""

import json
import time
from collections import deque
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode

from _crash.link import Gone, Link, Reply

PATIENCE_S = 20.0
HEARD_S = 0.05


class Finding(Exception):
    """The broker did what the model does not allow. The text says what."""


def frame(command: str, headers: dict[str, str], body: str = "") -> str:
    """Return a frame. Empty headers are left out."""
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items() if value)
    return f"{command}\n{lines}\n{body}\0"


def manage(port: int, what: str, **parameters: str) -> dict[str, Any]:
    """Make a request of the management interface: ``purge`` is POST, ``GET queues`` is not."""
    way, _, verb = what.rpartition(" ")
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request(way or "POST", f"/api/v1/{verb}?{urlencode(parameters)}")
    answer: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return answer


class Wires:
    """Connections by number, opened as they are needed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.links: dict[int, Link] = {}
        self.heard: dict[tuple[int, str], deque[Reply]] = {}
        """Deliveries that are not judged yet, by connection and subscription."""
        self.waits: dict[int, str] = {}
        """Connections whose SEND waits for room, and its receipt."""
        self._receipts = 0

    def receipt(self) -> str:
        """Return a new id for a RECEIPT."""
        self._receipts += 1
        return f"r{self._receipts}"

    def send(self, link: int, text: str) -> None:
        """Send frames, and connect before if necessary."""
        if link not in self.links:
            self.links[link] = Link(self.port, timeout_s=HEARD_S)
            self.links[link].send(
                frame("SUBSCRIBE", {"id": "ping", "destination": "/topic/ping"})
                + frame("UNSUBSCRIBE", {"id": "ping"})
            )
        self.links[link].send(text)

    def ask(self, link: int, text: str, *wanted: str) -> dict[str, Reply]:
        """Send frames, and return the RECEIPTs, or an ERROR as ``error``."""
        self.send(link, text)
        found: dict[str, Reply] = {}
        deadline = time.monotonic() + PATIENCE_S
        while not all(each in found for each in wanted):
            if "error" in found:
                self.listen_to_end(link)
                break
            if time.monotonic() > deadline:
                raise Finding(f"no RECEIPT within {PATIENCE_S:g} s")
            found |= self._hear(link)
        return found

    def _hear(self, link: int) -> dict[str, Reply]:
        found: dict[str, Reply] = {}
        for reply in self.links[link].receive():
            if reply.command == "MESSAGE":
                at = link, reply.headers["subscription"]
                self.heard.setdefault(at, deque()).append(reply)
            elif reply.command == "RECEIPT":
                found[reply.headers["receipt-id"]] = reply
            else:
                found["error"] = reply
        return found

    def listen(self) -> dict[str, Reply]:
        """Hear what the broker has sent until now. Return RECEIPTs of SENDs that waited."""
        marks: dict[int, str] = {}
        for link in self.links:
            if link not in self.waits:
                marks[link] = mark = self.receipt()
                # A late frame, which changes nothing, and needs no memory.
                self.send(link, frame("UNSUBSCRIBE", {"id": "ping", "receipt": mark}))
        found: dict[str, Reply] = {}
        for link, mark in marks.items():
            heard = self.ask(link, "", mark)
            if "error" in heard:
                raise Finding(f"connection {link}: unexpected ERROR {heard['error'].headers}")
        for link in self.waits:
            while self.links[link].has_more():
                found |= self._hear(link)
        if "error" in found:
            raise Finding(f"a SEND that waits: unexpected ERROR {found['error'].headers}")
        return found

    def overhear(self) -> None:
        """Hear what has come on connections whose SENDs do not wait."""
        time.sleep(HEARD_S)
        for link in self.links:
            while link not in self.waits and self.links[link].has_more():
                self._hear(link)

    def listen_to_end(self, link: int) -> None:
        """Hear the rest, until the broker closes, and forget the connection."""
        deadline = time.monotonic() + PATIENCE_S
        try:
            while time.monotonic() < deadline:
                self._hear(link)
        except Gone:
            pass
        self.links.pop(link).close()
        self.waits.pop(link, None)

    def open_connections(self) -> int:
        """Return the number of the broker's open connections."""
        answer = manage(self.port, "GET connections", state="open", limit="1")
        total = answer["total"]
        assert isinstance(total, int)
        return total

    def drop(self, link: int) -> None:
        """Close without a word, and wait until the broker knows."""
        before = self.open_connections()
        self.links.pop(link).close()
        deadline = time.monotonic() + PATIENCE_S
        while self.open_connections() >= before and time.monotonic() < deadline:
            time.sleep(0.002)
