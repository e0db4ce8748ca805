"""The interface to systemd: readiness, the watchdog, sockets.

Source: sd_notify(3), sd_listen_fds(3). Without systemd these functions do nothing.
"""

import os
import socket
from collections.abc import Mapping

import trio

NOTIFY, WATCHDOG, LISTEN = "NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS"
FIRST_FD = 3
EXTEND_US = 60_000_000
"""The time for the next part of the store, at most a segment."""


def notify(state: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send a notification such as ``READY=1`` to systemd, and return whether it listens.

    This never raises: a broker must not end because systemd does not listen.
    """
    address = environment.get(NOTIFY, "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]  # an abstract socket
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(address)
            sender.sendall(state.encode())
    except OSError:
        return False
    return True


def tell_starting(share: float) -> None:
    """Tell systemd that a long start goes on, and extend its time limit."""
    notify(f"EXTEND_TIMEOUT_USEC={EXTEND_US}\nSTATUS=starting, {share:.0%}")


def watchdog_s(environment: Mapping[str, str] = os.environ) -> float:
    """Return the watchdog's interval in seconds, or 0 if there is no watchdog."""
    interval_us = environment.get(WATCHDOG, "")
    pid = environment.get("WATCHDOG_PID", str(os.getpid()))
    if not interval_us.isdecimal() or pid != str(os.getpid()):
        return 0.0
    return int(interval_us) / 1_000_000


async def feed_watchdog(environment: Mapping[str, str] = os.environ) -> None:
    """Notify systemd's watchdog twice per interval, until cancelled.

    The event loop does so itself: if it hangs, systemd restarts the broker.
    Checkpoint: always.
    """
    every = watchdog_s(environment) / 2
    while every:
        notify("WATCHDOG=1", environment)
        await trio.sleep(every)


def handed_over(environment: Mapping[str, str] = os.environ) -> list[trio.SocketListener]:
    """Return the listening sockets that systemd passed (socket activation), usually none.

    Raises:
      OSError: one of them is not a listening socket.
    """
    count = environment.get(LISTEN, "")
    if not count.isdecimal() or environment.get("LISTEN_PID", "") != str(os.getpid()):
        return []
    raw = [socket.socket(fileno=FIRST_FD + offset) for offset in range(int(count))]
    return [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in raw]
