"""Brokers of this tree with their stores, whose streams go to tables of one root."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from _bench.process import running_broker
from _crash.link import Link
from deltalake import DeltaTable

from tests.support.consuming import await_receipt
from trio_stomp.cli import main

POLICY = '["/topic/>"]\nstream = true\n'
A, B, DIAG = "/stream/topic/a", "/stream/topic/b", "/stream/DIAG"
STATISTICS = ("event", "session", "process", "destination", "queue", "connection", "latency", "raw")


class Fleet:
    """Brokers that keep their streams, and a root of tables."""

    def __init__(self, root: Path) -> None:
        self._root, self.out = root, str(root / "out")
        self.policies = root / "policies.toml"
        self.policies.write_text(POLICY, encoding="utf-8")
        self._running: dict[str, tuple[ExitStack, int]] = {}

    def start(self, name: str = "north", port: int = 0) -> int:
        """Start a broker, or start it again, and return its port."""
        stack = ExitStack()
        options = ("--policies", str(self.policies), "--data-dir", str(self._root / name))
        options += ("--diag-interval-s", "3600", *(("--port", str(port)) if port else ()))
        port = int(stack.enter_context(running_broker(options)).port)
        self._running[name] = stack, port
        return port

    def restart(self, name: str = "north") -> None:
        """Stop a broker and start it on the same port."""
        stack, port = self._running.pop(name)
        stack.close()
        self.start(name, port)

    def stop(self) -> None:
        """Stop all."""
        for stack, _ in self._running.values():
            stack.close()

    def send(self, topic: str, *bodies: str, name: str = "north") -> None:
        """Send messages, and wait until they are stored."""
        link = Link(self._running[name][1])
        head = f"SEND\ndestination:{topic}\npersistent:true\n"
        link.send("".join(f"{head}\n{body}\0" for body in bodies[:-1]))
        link.send(f"{head}receipt:r\n\n{bodies[-1]}\0")
        await_receipt(link)
        link.close()

    def tables(self, stream: str, table: str = "", name: str = "north") -> None:
        """Write what is in a stream to a table, as the command does."""
        words = ["tables", "--once", "--url", self.url(name), "--root", self.out]
        assert main([*words, "--stream", stream, *(["--table", table] if table else [])]) == 0

    def url(self, name: str = "north") -> str:
        """Return the address of a broker."""
        return f"stomp://127.0.0.1:{self._running[name][1]}"

    def rows(self, table: str) -> list[tuple[str, int, str]]:
        """Return destination, offset and body of all rows of a table of messages, in order."""
        found = DeltaTable(f"{self.out}/tables/{table}").to_pyarrow_table().to_pylist()
        return sorted((row["destination"], row["offset"], str(row["body"])) for row in found)

    def statistics(self) -> dict[str, list[int]]:
        """Return the offsets of all messages of the statistics, by epoch."""
        found: dict[str, list[int]] = {}
        for name in STATISTICS:
            if (Path(self.out) / "tables" / name).exists():
                table = DeltaTable(f"{self.out}/tables/{name}").to_pyarrow_table()
                for row in table.select(["epoch", "offset"]).to_pylist():
                    found.setdefault(row["epoch"], []).append(row["offset"])
        return {epoch: sorted(offsets) for epoch, offsets in found.items()}


def of_topic(topic: str, count: int) -> list[tuple[str, int, str]]:
    """Return the rows of a topic to which its numbers were sent."""
    return [(topic, number, str(str(number).encode())) for number in range(count)]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Yield a fleet whose brokers end with the test."""
    fleet = Fleet(tmp_path)
    try:
        yield fleet
    finally:
        fleet.stop()
