"""A client that sends continuously, to measure the longest silence of a cluster."""

import threading
import time

from _crash.link import Gone, Link

QUEUE = "/queue/pulse"
PAUSE_S = 0.002


class Pulse(threading.Thread):
    """Sends stored messages one after the other, to any node that answers.

    Args:
      ports: The ports of nodes, tried in turn.
    """

    def __init__(self, ports: list[int]) -> None:
        super().__init__(daemon=True)
        self._ports = ports
        self._stop_asked = threading.Event()
        self.silences: list[float] = []
        """The time from each RECEIPT to the next."""

    def run(self) -> None:
        """Send until it is stopped, over as many connections as that takes."""
        last = time.monotonic()
        number = 0
        while not self._stop_asked.is_set():
            number += 1
            try:
                link = Link(self._ports[number % len(self._ports)], timeout_s=0.5)
            except Gone:
                time.sleep(PAUSE_S)
                continue
            try:
                while not self._stop_asked.is_set():
                    self._send(link)
                    now = time.monotonic()
                    self.silences.append(now - last)
                    last = now
                    time.sleep(PAUSE_S)
            except Gone:
                link.close()
        self.silences.append(time.monotonic() - last)

    def _send(self, link: Link) -> None:
        frame = f"SEND\ndestination:{QUEUE}\npersistent:true\nexpires:1\nreceipt:1\n\n.\0"
        link.send(frame)
        while not self._stop_asked.is_set():
            if any(reply.command == "RECEIPT" for reply in link.receive()):
                return

    def stop(self) -> float:
        """Stop, and return the longest silence in seconds."""
        self._stop_asked.set()
        self.join()
        return max(self.silences)
