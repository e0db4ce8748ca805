"""A broker in its own process, and its figures in the kernel."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from _bench.process import LISTENING, ROOT, STOP_S

START_S = 90.0
_HIGH_WATER = re.compile(r"VmHWM:\s+(\d+) kB")
_BAD = ("Traceback", "a bug in the broker", "damaged")


class ProofError(Exception):
    """A run failed. The text is one line with the reason."""


class Watched(NamedTuple):
    """A running broker."""

    port: int
    pid: int
    log: Path

    def high_water_bytes(self) -> int:
        """Return the peak resident memory."""
        found = _HIGH_WATER.search(Path(f"/proc/{self.pid}/status").read_text())
        return int(found[1]) * 1024 if found else 0

    def files(self) -> dict[str, int]:
        """Return the open descriptors by kind: ``socket:``, ``anon_inode:``, or a path below /."""
        kinds: dict[str, int] = {}
        directory = Path(f"/proc/{self.pid}/fd")
        for name in os.listdir(directory):
            try:
                target = os.readlink(directory / name)
            except OSError:
                continue  # closed meanwhile
            kind = target.partition(":")[0] if not target.startswith("/") else "file"
            kinds[kind] = kinds.get(kind, 0) + 1
        return kinds

    def bad_lines(self) -> list[str]:
        """Return the unexpected lines of its log, with their tracebacks."""
        lines = self.log.read_text(errors="replace").splitlines()
        found = [n for n, line in enumerate(lines) if any(word in line for word in _BAD)]
        return ["\n".join(lines[n : n + 25]) for n in found]


@contextmanager
def watched_broker(
    options: Sequence[str],
    log: Path,
    *,
    tree: Path = ROOT,
    program: Sequence[str] = ("-m", "trio_stomp"),
) -> Iterator[Watched]:
    """Run a broker of a checkout on a free port of the loopback interface, then stop it.

    Args:
      program: The arguments of Python.

    Raises:
      ProofError: it did not start, or did not stop cleanly.
    """
    path = os.pathsep.join([str(tree), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    command = [sys.executable, *program, "--port", "0", *options]
    with (
        log.open("wb") as out,
        subprocess.Popen(
            command,
            # There, since Python looks for a module in the working directory first.
            cwd=tree,
            env=os.environ | {"PYTHONPATH": path},
            stdout=out,
            stderr=out,
        ) as process,
    ):
        try:
            yield Watched(_port_of(process, log), process.pid, log)
            process.send_signal(signal.SIGTERM)
            code = process.wait(STOP_S)
            if code:
                raise ProofError(f"the broker stopped with exit code {code}")
        finally:
            process.kill()


def _port_of(process: "subprocess.Popen[bytes]", log: Path) -> int:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        found = LISTENING.search(log.read_text(errors="replace"))
        if found is not None:
            return int(found[1])
        time.sleep(0.05)
    raise ProofError(f"the broker did not start: {log.read_text(errors='replace')[-500:].strip()}")
