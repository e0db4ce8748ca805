"""Lines of the log that are written together."""

import io
import logging
import os
from collections.abc import Iterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_stomp.cli._log import GATHER_LINES, GATHER_S, LineHandler, gather_lines

log = logging.getLogger()


class Stream(io.StringIO):
    """Counts writes; ``is_broken``: a pipe that nobody reads any more."""

    writes = 0
    is_broken = False

    def write(self, text: str) -> int:
        if self.is_broken:
            raise BrokenPipeError
        self.writes += 1
        return super().write(text)


@pytest.fixture
def stream() -> Iterator[Stream]:
    """The only one that the root logger writes to, with a handler of ours."""
    stream = Stream()
    handlers, level = log.handlers[:], log.level
    log.handlers[:] = [LineHandler(stream), logging.NullHandler()]
    log.setLevel(logging.INFO)
    yield stream
    log.handlers[:] = handlers
    log.setLevel(level)


@pytest.fixture
async def gathering(stream: Stream, nursery: trio.Nursery) -> trio.CancelScope:
    """Ends the gathering."""
    scope = trio.CancelScope()

    async def gather() -> None:
        with scope:
            await gather_lines()

    nursery.start_soon(gather)
    await wait_all_tasks_blocked()
    return scope


def test_each_line_is_written_at_once_without_a_gathering_task(stream: Stream) -> None:
    log.info("one")
    assert stream.getvalue() == "one\n"
    log.info("two")
    assert stream.writes == 2


async def test_lines_are_written_together_and_soon(
    autojump_clock, stream: Stream, gathering: trio.CancelScope
) -> None:
    for number in range(2):
        log.info("one")
        log.info("two")
        assert stream.writes == number
        await trio.sleep(1.5 * GATHER_S)
        assert stream.writes == number + 1
    assert stream.getvalue() == "one\ntwo\n" * 2


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR])
async def test_urgent_lines_do_not_wait(
    level: int, stream: Stream, gathering: trio.CancelScope
) -> None:
    log.info("before")
    log.log(level, "now")
    assert stream.getvalue() == "before\nnow\n"
    assert stream.writes == 1


async def test_no_more_than_a_few_wait(stream: Stream, gathering: trio.CancelScope) -> None:
    for _ in range(GATHER_LINES):
        assert not stream.writes
        log.info("x")
    assert stream.getvalue() == "x\n" * GATHER_LINES


async def test_another_thread_writes_at_once_and_in_order(
    stream: Stream, gathering: trio.CancelScope
) -> None:
    log.info("before")
    await trio.to_thread.run_sync(log.info, "thread")
    assert stream.getvalue() == "before\nthread\n"


async def test_the_end_of_gathering_writes_the_rest(
    stream: Stream, gathering: trio.CancelScope
) -> None:
    log.info("last")
    gathering.cancel()
    await wait_all_tasks_blocked()
    assert stream.getvalue() == "last\n"
    log.info("afterwards")
    assert stream.getvalue() == "last\nafterwards\n"


async def test_failed_log_write_ends_nothing(
    stream: Stream,
    gathering: trio.CancelScope,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log.info("%d", "no number")
    stream.is_broken = True
    log.warning("lost")
    stream.is_broken = False
    log.warning("told")
    assert stream.getvalue() == "told\n"


def test_lines_are_dropped_and_counted_while_nothing_reads_a_pipe(stream: Stream) -> None:
    """containerd 9342: the log's reader was stopped, and the pipe's writer served nobody."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with os.fdopen(reading) as read, os.fdopen(writing, "w") as write:
        log.handlers[:] = [LineHandler(write)]
        for number in range(1000):
            log.info("line %d %s", number, "x" * 200)
        lines = read.read().splitlines()
        log.info("read again")
        told, last = read.read().splitlines()[-2:]
    kept = [line for line in lines if line.endswith("x" * 200)]
    assert [int(line.split()[1]) for line in kept] == list(range(len(kept)))
    assert told == f"{1000 - len(kept)} lines of the log are lost, because nothing has read it"
    assert last == "read again"
