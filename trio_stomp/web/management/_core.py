"""The parts of the core that requests use, other than its figures."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import frozen

from trio_stomp.base import Pieces

if TYPE_CHECKING:
    from trio_stomp.broker import Manager


@frozen(eq=False, repr=False)
class Core:
    """The parts of the core that requests use.

    Args:
      manager: Carries out what operators do.
      explain: Answers a question as at ``DIAG/explain``, in pieces.
    """

    manager: "Manager"
    explain: Callable[[str], Pieces[dict[str, object]]]
