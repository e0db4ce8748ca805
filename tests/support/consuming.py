"""Consumes messages of a broker over a plain socket, for tests of what others sent."""

import time

from _crash.link import Link, Reply

PATIENCE_S = 900
"""A minute of a quiet machine."""


def await_receipt(link: Link) -> None:
    """Wait for the next RECEIPT."""
    deadline = time.monotonic() + PATIENCE_S
    while not any(reply.command == "RECEIPT" for reply in link.receive()):
        assert time.monotonic() < deadline


def received(port: int, name: str, count: int) -> list[Reply]:
    """Consume ``count`` messages of a queue, and check that there are no more."""
    link = Link(port)
    link.send(f"SUBSCRIBE\nid:1\ndestination:{name}\n\n\0")
    found: list[Reply] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        found += link.receive()
    found += link.receive()
    link.close()
    assert len(found) == count
    return found
