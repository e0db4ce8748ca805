"""The parts of the core that requests use, other than its figures."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import trio
from attrs import frozen

from trio_stomp.base import Pieces
from trio_stomp.web._query import Record

if TYPE_CHECKING:
    from trio_stomp.broker import Manager


async def _nothing() -> Sequence[Mapping[str, object]]:
    await trio.lowlevel.checkpoint()
    return ()


@frozen(eq=False, repr=False)
class Core:
    """The parts of the core that requests use.

    Args:
      manager: Carries out the operations of operators.
      explain: Answers a question as at ``DIAG/explain``, in pieces.
      settings: Returns a record of each option.
      policies: Returns a record of each policy in its order, the last one of the defaults.
      as_toml: Returns a value as TOML.
      node: The node of a cluster whose settings these are, or "".
      reload: Reads the settings, users, rules and certificates again, as at SIGHUP, and returns
        what has changed.
    """

    manager: "Manager"
    explain: Callable[[str], Pieces[dict[str, object]]]
    settings: Callable[[], Sequence[Record]] = tuple
    policies: Callable[[], Sequence[Record]] = tuple
    as_toml: Callable[[object], str] = repr
    node: str = ""
    reload: Callable[[], Awaitable[Sequence[Mapping[str, object]]]] = _nothing
