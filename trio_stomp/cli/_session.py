"""A tool's session with the broker: connect, work, and report errors in one line."""

import argparse
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeVar

import trio

from trio_stomp.base import OptionError
from trio_stomp.cli._command import Argument
from trio_stomp.cli._connect_options import (
    Address,
    read_access,
    read_address,
    remedy_of,
    tls_context,
)
from trio_stomp.cli._tool import CannotDo, printable, say
from trio_stomp.client import (
    AuthenticationError,
    Client,
    ClientError,
    ConnectFailed,
    LinkLost,
    NotAuthorized,
    ReconnectPolicy,
    open_client,
)

T = TypeVar("T")

HEARTBEAT_S = 10.0
MAX_OUTGOING_BYTES = 1 << 40
"""The client's limit of unsent bytes. It is high because tools limit them themselves."""


RECONNECT = Argument(
    "--reconnect", "connect again whenever the connection breaks, instead of ending"
)


def opener(
    given: argparse.Namespace, *, client_id: str | None = None
) -> Callable[[], AbstractAsyncContextManager[Client]]:
    """Return a function that opens a client with the options of the command line.

    Prompts for the passcode at once, and only once.

    Raises:
      OptionError: an option is wrong.
    """
    address, access = read_address(given), read_access(given)
    return partial(
        open_client,
        address.stomp_url,
        login=access.login or None,
        passcode=access.passcode if access.login else None,
        token=access.token or None,
        client_id=client_id,
        ssl_context=tls_context(given, address),
        reconnect=ReconnectPolicy() if getattr(given, "reconnect", False) else None,
        # The reader of our output may pause, and nothing is sent meanwhile.
        heart_beat=(0, HEARTBEAT_S),
        max_outgoing_bytes=MAX_OUTGOING_BYTES,
    )


def run_session(
    given: argparse.Namespace,
    work: Callable[[Client], Awaitable[T]],
    note: Callable[[], str] = str,
    *,
    client_id: str | None = None,
) -> T:
    """Connect with the options of the command line, run ``work``, and disconnect in order.

    Args:
      given: The parsed command line, with the options of ``add_access``.
      work: The function to run with the client.
      note: Returns a text to add to an error of the broker: the progress so far.
      client_id: The client id that owns durable subscriptions.

    Raises:
      OptionError: an option is wrong.
      CannotDo: the broker cannot be reached, or refuses.
      KeyboardInterrupt: Ctrl-C was pressed.
    """
    address, opened = read_address(given), opener(given, client_id=client_id)

    async def main() -> T:
        async with opened() as client, trio.open_nursery() as nursery:
            nursery.start_soon(_report, client, address)
            result = await work(client)
            nursery.cancel_scope.cancel()
        return result

    try:
        return trio.run(main)
    except (ClientError, OptionError, BaseExceptionGroup) as error:
        raise _blame(error, partial(_explained, address=address), note) from None


async def _report(client: Client, address: Address) -> None:
    """Write to standard error that the connection broke, and that there is one again."""
    is_lost = False
    async for event in client.events:
        if event.kind == "reconnecting" and not is_lost:
            is_lost = True
            cause = "" if event.error is None else f": {event.error}"
            say(f"{address.netloc}: the connection broke{cause}; connecting again", to=sys.stderr)
        elif event.kind == "connected" and is_lost:
            is_lost = False
            say(f"{address.netloc}: connected again", to=sys.stderr)


def _blame(
    error: BaseException, text_of: Callable[[ClientError], str], note: Callable[[], str]
) -> BaseException:
    """Return the one error to report of a group."""
    leaves = list(_leaves(error))
    for kind in (KeyboardInterrupt, BrokenPipeError, CannotDo):
        if found := next((each for each in leaves if isinstance(each, kind)), None):
            return found
    for each in leaves:
        if isinstance(each, OptionError):
            return OptionError(f"{each}{note()}")
    if all(isinstance(each, ClientError) for each in leaves):
        first = leaves[0]
        assert isinstance(first, ClientError)
        return CannotDo(f"{text_of(first)}{note()}")
    return leaves[0] if len(leaves) == 1 else error


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _explained(error: ClientError, address: Address) -> str:
    """Return the cause and the remedy."""
    cause = printable(str(error))
    if isinstance(error, ConnectFailed):
        return f"{cause}; {remedy_of(error)}"
    if isinstance(error, AuthenticationError):
        return f"{cause}; check --login and the passcode, or --token-file"
    if isinstance(error, NotAuthorized):
        return f"{cause}; its operator can find out why: trio-stomp acl test"
    if isinstance(error, LinkLost):
        return f"{address.netloc}: {cause}; try again"
    return cause
