"""Digests of local states, to compare nodes: equal states at one log entry have equal digests."""

from collections.abc import Callable
from hashlib import blake2b

import trio
from attrs import define, field

from trio_stomp.cluster._local_state import LocalState
from trio_stomp.cluster._snapshot import without_ours
from trio_stomp.store import StoreError
from trio_stomp.store.tools import View, export_lines

REACH_S = 5.0
"""Longest wait for an entry of the log."""


@define(eq=False, repr=False)
class _Moment:
    """A view of the state after an entry, taken by the thread that appends."""

    take_view: Callable[[], View]
    view: View | None = None
    failure: str = ""
    is_over: trio.Event = field(factory=trio.Event)
    _token: trio.lowlevel.TrioToken = field(factory=trio.lowlevel.current_trio_token)

    def take(self) -> None:
        try:
            self.view = self.take_view()
            self.view.fix()
        except StoreError as error:
            self.failure = str(error)  # the append goes on
        self._token.run_sync_soon(self.is_over.set)


async def digest_at(
    local: LocalState, take_view: Callable[[], View], position: int
) -> tuple[str, int]:
    """Return a digest of the state after an entry of the log, and the number of its records.

    Args:
      local: The local state, in use.
      take_view: Returns a view of it.
      position: The sequence of the entry.

    Returns:
      The digest, in hexadecimal digits; "" if the entry has passed or does not come in time.

    Raises:
      StoreError: The state cannot be read.

    Checkpoint: always. Cancel: nothing was changed.
    """
    moment = _Moment(take_view)
    try:
        await _reach(local, moment, position)
        if moment.failure:
            raise StoreError(moment.failure)
        if moment.view is None:
            return "", 0
        return await trio.to_thread.run_sync(_digest, moment.view)
    finally:
        if moment.view is not None:
            moment.view.close()


async def _reach(local: LocalState, moment: _Moment, position: int) -> None:
    try:
        if await trio.to_thread.run_sync(local.call_after, position, moment.take):
            with trio.move_on_after(REACH_S):
                await moment.is_over.wait()
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(local.forget_call)  # no view is taken afterwards


def _digest(view: View) -> tuple[str, int]:
    digest, count = blake2b(digest_size=16), 0
    lines = export_lines(view, without_ours(view.recover(_ignore)), _ignore)
    next(lines)  # the header line has numbers that differ from store to store
    for line in lines:
        digest.update(line.encode() + b"\n")
        count += 1
    return digest.hexdigest(), count - 1


def _ignore(_done: int, _total: int) -> None:
    """Ignore progress."""
