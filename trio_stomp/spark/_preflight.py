"""Checks before Spark starts: its own errors come late, and in hundreds of lines."""

import time
from collections.abc import Callable

from trio_stomp.spark._client import Bounds, StreamAddress, StreamAway, StreamClient, StreamError
from trio_stomp.spark._frames import FrameError

REPORT_S = 5.0
PAUSE_S = 0.5


def await_stream(
    address: StreamAddress,
    say: Callable[[str], object],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Bounds:
    """Return the bounds of a stream as soon as the broker answers, for at most ``retry_s``.

    Args:
      address: The stream.
      say: Is told every five seconds that the broker is awaited.
      clock: Returns seconds.
      sleep: Waits for some seconds.

    Raises:
      StreamError: an option is wrong, or the broker refuses: one line with the remedy.
      StreamAway: the broker does not answer: one line with the address and the remedy.
    """
    host, port, _ = address.address()
    began, said = clock(), 0
    while True:
        try:
            return StreamClient(address).ask()
        except FrameError as error:
            raise StreamError(
                f"what answers at {address.url} is no STOMP broker ({error}): check --url"
            ) from None
        except OSError as error:
            reason = error.strerror or f"{error}"
        waited_s = clock() - began
        if waited_s >= address.retry_s:
            raise StreamAway(
                f"{address.url} did not answer for {waited_s:.0f} s ({reason}): is a broker running"
                f" on port {port} of {host}? check --url, or wait longer with --retry-s"
            )
        if waited_s >= said * REPORT_S:
            said += 1
            say(f"waiting for {address.url}: {reason}")
        sleep(PAUSE_S)
