"""The standard process metrics of Prometheus clients; only on Linux.

prometheus-client's own collector lists all open files, which takes 16 ms for 19,000.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from trio_stomp.web._health import files_limit

_STAT, _SYSTEM = Path("/proc/self/stat"), Path("/proc/stat")
_USER, _KERNEL, _START, _VIRTUAL, _RESIDENT = 11, 12, 19, 20, 21
"""Indices of the fields after the name of the program (proc_pid_stat(5))."""
_BOOT = "btime "


def process_figures(open_files: int) -> Iterator[Metric]:
    """Yield the kernel's figures of the process, or nothing without ``/proc``."""
    try:
        fields = _STAT.read_text().rpartition(")")[2].split()
        lines = _SYSTEM.read_text().splitlines()
    except OSError:
        return
    booted = next((line for line in lines if line.startswith(_BOOT)), f"{_BOOT}0")
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    cpu_s = (int(fields[_USER]) + int(fields[_KERNEL])) / ticks
    started_s = int(fields[_START]) / ticks + int(booted.removeprefix(_BOOT))
    for name, help, value in (
        ("virtual_memory_bytes", "Virtual memory size in bytes.", int(fields[_VIRTUAL])),
        ("resident_memory_bytes", "Resident memory size in bytes.", int(fields[_RESIDENT]) * page),
        ("start_time_seconds", "Start time of the process since unix epoch in seconds.", started_s),
        ("open_fds", "Number of open file descriptors.", open_files),
        ("max_fds", "Maximum number of open file descriptors.", files_limit()),
    ):
        yield GaugeMetricFamily(f"process_{name}", help, value=value)
    help = "Total user and system CPU time spent in seconds."
    yield CounterMetricFamily("process_cpu_seconds", help, value=cpu_s)
