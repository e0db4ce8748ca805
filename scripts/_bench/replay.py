"""Replay of history: a stream is filled once, and each run reads it over a new connection."""

import select
import time
from pathlib import Path
from typing import NamedTuple

from _bench.load import Load, Run, Shape
from _bench.process import BenchError, Broker, cpu_of
from _bench.wire import Connection

TOPIC = "/topic/bench/0"
POLICY = f'["{TOPIC}"]\nstream = true\nstream_max_bytes = 0\n'
"""``Load`` sends its first publisher's messages there."""
FILL_LIMIT_S = 600.0

now = time.perf_counter


class ReplayShape(NamedTuple):
    """The length of the history."""

    messages: int
    body_bytes: int = 117

    @property
    def deliveries(self) -> int:
        """MESSAGEs of one run."""
        return self.messages


def write_policy(directory: str) -> str:
    """Write the policy file that makes the topic a stream, and return its path."""
    path = Path(directory) / "policies.toml"
    path.write_text(POLICY, encoding="utf-8")
    return str(path)


class ReplayLoad:
    """A stream that has been filled, for any number of runs."""

    def __init__(self, broker: Broker, shape: ReplayShape) -> None:
        self.broker = broker
        self.shape = shape
        fill = Load(
            broker,
            Shape(1, 1, shape.messages, 50, 1000, 4000, body_bytes=shape.body_bytes),
            websocket=False,
        )
        try:
            fill.run(FILL_LIMIT_S)
        finally:
            fill.close()

    def run(self, limit_s: float) -> Run:
        """Read everything from the first message on.

        Raises:
          BenchError: something was lost or out of order, or did not come within ``limit_s``.
        """
        wanted = self.shape.messages
        connection = Connection.open(self.broker.port, websocket=False)
        try:
            connection.start()
            cpu, own, start = cpu_of(self.broker.pid), time.process_time(), now()
            connection.send(
                f"SUBSCRIBE\nid:1\ndestination:/stream{TOPIC}\nx-stream-offset:first\n\n\0".encode()
            )
            while connection.received < wanted:
                select.select([connection.socket], [], [], 1.0)
                connection.read()
                if now() - start > limit_s:
                    raise BenchError(
                        f"{connection.received} of {wanted} messages came within {limit_s:g} s"
                    )
            wall_s = now() - start
            used = cpu_of(self.broker.pid).since(cpu)
            return Run(wanted, wall_s, used, time.process_time() - own, ())
        finally:
            connection.close()

    def close(self) -> None:
        """Do nothing: no connection is open between runs."""
