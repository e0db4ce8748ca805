"""The log: its lines, for people and programs, and how they are written together."""

import io
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.support.tool_fakes import Terminal
from trio_stomp.cli._log import GATHER_LINES, GATHER_S, LineHandler, gather_lines, set_up_log

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


@contextmanager
def bare_root_logger() -> Iterator[logging.Logger]:
    """Lend the root logger without its handlers, and put it back afterwards."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    logger.handlers.clear()
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)


def test_a_record_is_one_line_whatever_a_client_put_into_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with bare_root_logger() as logger:
        set_up_log("info", "human")
        logger.info("client %s", "a\nb\x1b[31m\x9b")
        logger.debug("not shown")
    line = capsys.readouterr().err
    assert line.endswith(" INFO client a\\x0ab\\x1b[31m\\x9b\n")
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("stream", "format", "is_json"),
    [
        (Terminal(), "auto", False),
        (io.StringIO(), "auto", True),
        (Terminal(), "json", True),
        (io.StringIO(), "human", False),
    ],
)
def test_the_log_is_for_people_on_a_terminal_and_json_otherwise(
    stream: io.StringIO, format: str, is_json: bool
) -> None:
    with bare_root_logger() as logger:
        set_up_log("info", format, stream)
        logger.info("%s closed: %s", "tcp", "a\nb", extra={"connection": "7", "user": "ann"})
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert line.startswith("{") == is_json
    if is_json:
        printed = json.loads(line)
        assert printed.pop("time").endswith("+00:00")
        assert printed == {
            "level": "info",
            "message": "tcp closed: a\nb",
            "connection": "7",
            "user": "ann",
        }


def test_a_bug_is_one_line_of_json_too() -> None:
    stream = io.StringIO()
    with bare_root_logger() as logger:
        set_up_log("info", "json", stream)
        try:
            raise ZeroDivisionError("bug")
        except ZeroDivisionError:
            logger.exception("a bug")
    printed = json.loads(stream.getvalue())
    assert "ZeroDivisionError: bug" in printed["traceback"]
