"""The broker under test."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from _crash.link import Gone, Link

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}
PATIENCE_S = 30.0
BAD_LINES = ("Traceback", "damaged", "a bug in the broker", "cannot be restored", "missing")


class NotReady(Exception):
    """The broker ended, or does not accept clients."""


class Broker:
    """A broker's process. Its data outlives it."""

    def __init__(self, port: int, options: Sequence[str], log: Path) -> None:
        self.port = port
        self._log: IO[bytes] = log.open("ab")
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trio_stomp", "--port", str(port), *options],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdout=self._log,
            stderr=self._log,
        )

    def wait_ready(self) -> float:
        """Wait until it accepts a CONNECT, and return the seconds since its start.

        Raises:
          NotReady: it ended, or takes too long.
        """
        while time.monotonic() - self._started < PATIENCE_S:
            if self._process.poll() is not None:
                raise NotReady(f"the broker ended with {self._process.returncode}")
            with contextlib.suppress(Gone):
                Link(self.port).close()
                return time.monotonic() - self._started
            time.sleep(0.01)
        raise NotReady("the broker does not accept a CONNECT")

    def kill(self) -> None:
        """Kill the process, as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it in order, and return its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how: int) -> int:
        self._process.send_signal(how)
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            # Log the stacks of its threads.
            self._process.send_signal(signal.SIGABRT)
            return self._process.wait()
        finally:
            self._log.close()


def exported(target: str, destination: str) -> list[str]:
    """Return the bodies that wait in a queue, from an export of the store.

    Args:
      target: The store's directory, or the URL of its database.

    Raises:
      NotReady: the tool failed.
    """
    command = [sys.executable, "-m", "trio_stomp", "store", "export", target]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, check=False)
    if done.returncode != 0:
        raise NotReady(f"store export: {done.stderr.decode(errors='replace')}")
    lines = map(json.loads, done.stdout.splitlines())
    return [line["body"] for line in lines if line.get("place") == f"queue:{destination}"]


def bad_lines(log: Path) -> list[str]:
    """Return the unexpected lines of the log."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return [line for line in text.splitlines() if any(word in line for word in BAD_LINES)]
