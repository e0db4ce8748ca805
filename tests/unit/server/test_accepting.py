"""Accepting connections, also while the system has no room for more."""

import errno
import logging
from collections.abc import Sequence

import pytest
import trio
from trio.testing import memory_stream_pair

from trio_stomp.server import accept_from

RETRY_S = 0.1


class Listener(trio.abc.Listener[trio.abc.Stream]):
    """Returns the given streams, or raises the given errors; then waits."""

    def __init__(self, given: Sequence[trio.abc.Stream | OSError]) -> None:
        self.given = list(given)
        self.accepted_at: list[float] = []
        self.is_closed = False

    async def accept(self) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        self.accepted_at.append(trio.current_time())
        if not self.given:
            await trio.sleep_forever()
        given = self.given.pop(0)
        if isinstance(given, OSError):
            raise given
        return given

    async def aclose(self) -> None:
        self.is_closed = True
        await trio.lowlevel.checkpoint()


async def test_each_is_served_and_the_listener_closed_at_the_end(nursery: trio.Nursery) -> None:
    streams = [memory_stream_pair()[0] for _ in range(3)]
    listener = Listener(streams)
    served: list[trio.abc.Stream] = []

    async def serve(stream: trio.abc.Stream) -> None:
        served.append(stream)

    async with trio.open_nursery() as accepting:
        accepting.start_soon(accept_from, listener, serve, nursery)
        await trio.testing.wait_all_tasks_blocked()
        assert not listener.is_closed
        accepting.cancel_scope.cancel()
    assert sorted(map(id, served)) == sorted(map(id, streams))
    assert listener.is_closed


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS])
async def test_an_exhausted_system_is_asked_again(
    number: int, nursery: trio.Nursery, autojump_clock, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Listener([OSError(number, ""), memory_stream_pair()[0]])
    served = trio.Event()

    async def serve(stream: trio.abc.Stream) -> None:
        served.set()

    async with trio.open_nursery() as accepting:
        accepting.start_soon(accept_from, listener, serve, nursery)
        await served.wait()
        accepting.cancel_scope.cancel()
    first, second, *_ = listener.accepted_at
    assert second - first == pytest.approx(RETRY_S)
    record, *_ = caplog.records  # then, that it works again
    assert record.levelno == logging.ERROR
    assert errno.errorcode[number] in record.getMessage()


async def test_a_broken_listener_is_an_error(nursery: trio.Nursery) -> None:
    listener = Listener([OSError(errno.EBADF, "")])

    async def serve(stream: trio.abc.Stream) -> None:
        raise AssertionError(stream)

    with pytest.raises(OSError, match=str(errno.EBADF)):
        await accept_from(listener, serve, nursery)
    assert listener.is_closed
