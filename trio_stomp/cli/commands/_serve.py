"""``trio-stomp serve``: runs a broker until a signal stops it."""

import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from trio_stomp.base import OptionError, first_of
from trio_stomp.cli._arguments import parse
from trio_stomp.cli._banner import banner
from trio_stomp.cli._log import gather_lines, set_up_log
from trio_stomp.cli._tool import PROGRAM, cause_of, remedy_of_listening, say
from trio_stomp.cli.process import (
    Allocator,
    feed_watchdog,
    handed_over,
    notify,
    raise_file_limit,
    set_up_garbage_collection,
    set_up_threads,
    tell_starting,
)
from trio_stomp.config import ListenOptions, Settings
from trio_stomp.store import StoreError

if TYPE_CHECKING:
    from trio_stomp.server import Changes, ServerHandle

STOPPED = 0
NO_ADDRESS = 1
BAD_OPTION = 2

logger = logging.getLogger(__name__)


class CannotStart(Exception):
    """The address or the store is not available. The text is one line for the operator."""


class CannotListen(CannotStart):
    """The broker cannot listen on the address."""


def main(argv: Sequence[str]) -> int:
    """Run a broker with the options of the command line, and return the exit code.

    Args:
      argv: The arguments, without the names of the program and the command.

    Returns:
      0 after a stop, ordered or hard; 1 if the address or the store is not available; 2 for a bad
      option.

    Limits: this sets up the whole process: logging, file limit, garbage collection, signals.
    A program that embeds a broker calls ``trio_stomp.serve`` instead.
    """
    try:
        arguments = parse(argv)
    except OptionError as error:
        return _failed(error, BAD_OPTION)
    log = arguments.settings.log
    set_up_log(log.log_level, log.log_format)
    warning = raise_file_limit(arguments.settings.server.max_connections)
    set_up_garbage_collection()
    set_up_threads()
    try:
        _make_directory(arguments.new_directory)
        trio.run(run, arguments.settings, warning, arguments.reload)
    except CannotStart as error:
        return _failed(error, NO_ADDRESS)
    except OptionError as error:
        return _failed(error, BAD_OPTION)
    except BaseExceptionGroup as group:
        _, others = group.split((StoreError, OptionError))
        if others is not None:
            raise
        first = first_of(group)  # of a node that ends after its start
        return _failed(first, BAD_OPTION if isinstance(first, OptionError) else NO_ADDRESS)
    return STOPPED


def _make_directory(path: str) -> None:
    if path:
        try:
            os.makedirs(path, 0o700, exist_ok=True)
        except OSError as error:
            raise CannotStart(
                f"{path} cannot be created: {error.strerror}; name another"
            ) from error


def _failed(error: BaseException, code: int) -> int:
    say(f"{PROGRAM}: error: {error}", to=sys.stderr)
    return code


async def run(
    settings: Settings, warning: str | None = None, reread: Callable[[], Settings] | None = None
) -> None:
    """Serve until a signal stops the broker.

    Args:
      settings: The settings of the broker.
      warning: Logged once the broker runs, because the first line of the log is the address.
      reread: Reads the settings from the files again; None = there are no files.

    Raises:
      CannotStart, OptionError: the broker cannot start with these settings; nothing was started.

    Checkpoint: always. Cancel: stops hard.
    """
    # Imported late, so that --help and bad options do not import the server.
    from trio_stomp.startup import serve

    allocator = Allocator.of_process()
    allocator.keep_free_memory()
    failure: Exception | None = None
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as watchers:
            async with trio.open_nursery() as servers:
                async with trio.open_nursery() as waiting:
                    waiting.start_soon(_give_up, signals, servers.cancel_scope)
                    try:
                        listeners = handed_over() or None
                        call = partial(serve, listeners=listeners, on_starting=tell_starting)
                        handle: ServerHandle = await servers.start(call, settings)
                    except (OSError, UnicodeError, StoreError, OptionError) as error:
                        # Raised outside the nursery, which would wrap it in a group.
                        failure = error
                    waiting.cancel_scope.cancel()
                if failure is None:
                    handle.reread = partial(_reload, handle, reread)
                    logger.info("%s", banner(handle.addresses, handle.tls_addresses, settings))
                    if warning is not None:
                        logger.warning("%s", warning)
                    notify(f"READY=1\nSTATUS=listening on {', '.join(handle.addresses)}")
                    watchers.start_soon(gather_lines)
                    watchers.start_soon(feed_watchdog)
                    watchers.start_soon(allocator.return_free_pages)
                    watchers.start_soon(_obey, signals, handle, servers.cancel_scope, reread)
            watchers.cancel_scope.cancel()
    if isinstance(failure, OptionError):
        raise failure
    if isinstance(failure, StoreError):
        raise CannotStart(str(failure)) from failure
    if failure is not None:
        raise CannotListen(explain(failure, settings.listen)) from failure


async def _reload(handle: "ServerHandle", reread: Callable[[], Settings] | None) -> "Changes":
    """Read the files again, and put them in force. Return what has changed.

    Raises:
      OptionError: a file is wrong; nothing has changed.
    """
    # In a thread, as reading 5,000 policies takes 0.3 s.
    settings = await trio.to_thread.run_sync(reread) if reread is not None else None
    changes = await handle.reload(settings)
    if settings is not None:
        logging.getLogger().setLevel(settings.log.log_level.upper())
    return changes


async def _give_up(signals: AsyncIterator[int], servers: trio.CancelScope) -> None:
    """Stop a broker that reads its store at the first signal."""
    while (number := await anext(signals)) == signal.SIGHUP:
        pass
    logger.info("stopping before the start is over: got %s", signal.Signals(number).name)
    servers.cancel()


async def _obey(
    signals: AsyncIterator[int],
    handle: "ServerHandle",
    servers: trio.CancelScope,
    reread: Callable[[], Settings] | None,
) -> None:
    """Reload at SIGHUP, stop in order at the first other signal, and at once at the next."""
    while (number := await anext(signals)) == signal.SIGHUP:
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            await _reload(handle, reread)
        except OptionError as error:
            logger.error("got SIGHUP, but changed nothing: %s", error)
        else:
            logger.info("got SIGHUP: reloaded settings, users, rules, keys and certificates")
        notify("READY=1")
    notify("STOPPING=1")
    logger.info("stopping: got %s; a second signal stops at once", signal.Signals(number).name)
    handle.stop()
    while (number := await anext(signals)) == signal.SIGHUP:
        pass
    logger.warning("stopping at once: got %s again", signal.Signals(number).name)
    servers.cancel()


def explain(error: Exception, listen: ListenOptions) -> str:
    """Return one line with the address, the cause and the remedy."""
    address = f"[{listen.host}]" if ":" in listen.host else listen.host
    remedy = remedy_of_listening(error) or "check --host and --port"
    return f"cannot listen on {address}:{listen.port}: {cause_of(error)}; {remedy}"
