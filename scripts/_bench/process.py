"""The broker under test: its start, and its figures in the kernel."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
LISTENING = re.compile(r"listening on 127\.0\.0\.1:(\d+)")
STOP_S = 30.0
AS_IT_IS: Mapping[str, str] = {}
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class BenchError(Exception):
    """A run failed or is invalid. The text is one line with the reason."""


class Cpu(NamedTuple):
    """Processor time of a process since its start, in seconds.

    Args:
      user, system: From ``/proc/PID/stat``, in ticks of 10 ms.
      exact: The time by the kernel's clock of the process, which includes threads that have ended.
    """

    user: float
    system: float
    exact: float

    @classmethod
    def total(cls, parts: Iterable["Cpu"]) -> "Cpu":
        """Return the total of several. There must be at least one."""
        return cls(*map(sum, zip(*parts, strict=True)))

    def since(self, start: "Cpu") -> "Cpu":
        """Return the use between ``start`` and this."""
        return Cpu(self.user - start.user, self.system - start.system, self.exact - start.exact)


def cpu_of(pid: int) -> Cpu:
    """Read the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]) / TICKS_PER_S, int(fields[12]) / TICKS_PER_S
    # The result of clock_getcpuclockid(3), which Python does not offer.
    exact = time.clock_gettime(~pid << 3 | 2)
    return Cpu(user, system, exact)


def rss_bytes(pid: int) -> int:
    """Read how much memory of a process is resident."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def family(pid: int) -> list[int]:
    """Return the ids of a process and its present descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


class Broker(NamedTuple):
    """A broker's address and process.

    Args:
      family: Whether its child processes count as well.
      others: Ports of more nodes, if they are one broker for their clients.
    """

    port: int
    pid: int
    family: bool = False
    others: Sequence[int] = ()

    @property
    def ports(self) -> Sequence[int]:
        """Return the ports to which clients connect in turn."""
        return (self.port, *self.others)

    def cpu(self) -> Cpu:
        """Read the processor time that it has used."""
        if not self.family:
            return cpu_of(self.pid)
        used = [cpu_of(self.pid)]
        for pid in family(self.pid)[1:]:
            with suppress(OSError):
                used.append(cpu_of(pid))
        return Cpu.total(used)

    def rss_bytes(self) -> int:
        """Read how much of its memory is resident."""
        if not self.family:
            return rss_bytes(self.pid)
        total = rss_bytes(self.pid)
        for pid in family(self.pid)[1:]:
            with suppress(OSError):
                total += rss_bytes(pid)
        return total


@contextmanager
def running_broker(
    options: Sequence[str],
    environment: Mapping[str, str] = AS_IT_IS,
    tree: Path = ROOT,
    *,
    program: Sequence[str] = ("-m", "trio_stomp"),
) -> Iterator[Broker]:
    """Run a broker of a checkout on a free port of the loopback interface, then stop it.

    Args:
      environment: Variables added to the environment of this process.
      tree: The checkout.
      program: The arguments of Python.

    Raises:
      BenchError: it did not start.
    """
    command = [sys.executable, *program, "--port", "0", *options]
    path = os.pathsep.join([str(tree), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    variables = os.environ | {"PYTHONPATH": path, **environment}
    # There, since Python looks for a module in the working directory first.
    with subprocess.Popen(
        command, cwd=tree, env=variables, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = LISTENING.search(line)
            if found is None:
                raise BenchError(f"the broker did not start: {line.strip() or 'no output'}")
            # A full pipe would stop the broker, so the rest of its log is read and discarded.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield Broker(int(found[1]), process.pid)
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_S)
        finally:
            process.kill()
