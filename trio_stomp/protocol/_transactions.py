"""The open transactions of a session: their frames are buffered until COMMIT or ABORT."""

from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import CloseReason, MemoryBudget, ProtocolError, Quota
from trio_stomp.frames import FrameRun, head_cost, text_cost
from trio_stomp.protocol._events import Acked
from trio_stomp.protocol._options import ProtocolOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Action = FrameRun | Acked

_ACTION_BYTES = 256
"""Overhead of an action in addition to bodies and headers; of a transaction, to its name."""
_RECEIPT_BYTES = 128
"""Overhead of a receipt that waits for COMMIT, in addition to its id."""


@define(eq=False)
class _Transaction:
    actions: list[Action] = field(factory=list)
    count: int = 0
    size: int = 0


@define(eq=False)
class Transactions:
    """The buffers of open transactions, with limits on their number, actions and bytes (T09).

    The bytes are those of all open transactions together: bodies, headers, and overhead. A header
    block that is repeated after other frames is charged again.

    Args:
      options: The options with the limits of transactions.
      memory: The budget that is charged.
      quota_of: Returns the quota of the session, which may change.
    """

    options: ProtocolOptions
    memory: MemoryBudget
    quota_of: "Callable[[], Quota | None]"
    quota: Quota | None = None
    """The quota that is charged for all open transactions now."""
    size: int = 0
    """Charged bytes of all open transactions."""
    _open: dict[str, _Transaction] = field(factory=dict)

    @property
    def count(self) -> int:
        """Return the number of open transactions."""
        return len(self._open)

    @property
    def are_open(self) -> bool:
        """Return whether any transaction is open."""
        return bool(self._open)

    def has(self, name: str) -> bool:
        """Return whether a transaction is open."""
        return name in self._open

    def begin(self, name: str) -> None:
        """Open a transaction.

        Raises:
          ProtocolError: it is already open (T02), too many are open, or memory is short.
        """
        if name in self._open:
            raise ProtocolError(
                "duplicate-transaction", f"transaction:{name[:60]} has been begun and is still open"
            )
        limit = self.options.max_transactions
        if len(self._open) >= limit:
            raise _too_much(f"{limit} transactions are open", "max_transactions")
        size = _ACTION_BYTES + text_cost(name)
        self._charge(name, size)
        self._open[name] = _Transaction(size=size)

    def add(self, name: str, action: Action) -> None:
        """Buffer a run of SENDs, ACKs or NACKs.

        Raises:
          ProtocolError: there is no such transaction (T03), or it would become too large.
        """
        transaction = self._find(name)
        bodies = action.bodies if isinstance(action, FrameRun) else action.ids
        limit = self.options.max_transaction_actions
        if transaction.count + len(bodies) > limit:
            what = f"transaction:{name[:60]} has {limit} actions"
            raise _too_much(what, "max_transaction_actions")
        size = _cost(action, transaction.actions[-1] if transaction.actions else None)
        self._charge(name, size)
        transaction.actions.append(action)
        transaction.count += len(bodies)
        transaction.size += size

    def size_of(self, name: str) -> int:
        """Return the bytes that a transaction is charged.

        Raises:
          ProtocolError: there is no such transaction (T03).
        """
        return self._find(name).size

    def take(self, name: str) -> list[Action]:
        """End a transaction, and return its actions in order (T10).

        Raises:
          ProtocolError: there is no such transaction (T03).
        """
        transaction = self._find(name)
        del self._open[name]
        self.size -= transaction.size
        self.memory.give_kept(transaction.size, self.quota)
        return transaction.actions

    def abort_all(self) -> None:
        """Discard all open transactions (T05)."""
        for name in list(self._open):
            self.take(name)

    def _charge(self, name: str, size: int) -> None:
        """Charge bytes to the budget and the quota.

        Args:
          name: The transaction, for the error text.
          size: The number of bytes.

        Raises:
          ProtocolError: a limit of this connection, its user or the process is exceeded.
        """
        memory, quota = self.memory, self.quota_of()
        if quota is not self.quota:
            memory.give_kept(self.size, self.quota)
            memory.force_kept(self.size, quota)
            self.quota = quota
        limit = self.options.max_transaction_bytes
        if self.size + size > limit or not memory.take_kept(size, quota):
            what = (
                f"transaction:{name[:60]} needs {size} bytes more, and the open transactions of"
                f" this connection have {self.size} of {limit}"
            )
            raise _too_much(what, "max_transaction_bytes, max_memory_bytes or max_share_per_user")
        self.size += size

    def _find(self, name: str) -> _Transaction:
        transaction = self._open.get(name)
        if transaction is None:
            raise ProtocolError(
                "unknown-transaction",
                f"transaction:{name[:60]} was not begun on this connection, or has ended",
            )
        return transaction


def _cost(action: Action, before: Action | None) -> int:
    """Return the bytes to charge for an action. A header block shared with ``before`` is free."""
    parts: Sequence[bytes]
    receipts = 0
    if isinstance(action, FrameRun):
        parts, head = action.bodies, action.head
        receipts = sum(_RECEIPT_BYTES + len(name) for _, name in action.receipts)
        # Frames of a run that are added one by one share its headers, but not its head.
        is_shared = isinstance(before, FrameRun) and before.head.headers is head.headers
        shared = 0 if is_shared else head_cost(head)
    else:
        parts, shared = action.ids, text_cost(action.subscription or "")
    return shared + receipts + _ACTION_BYTES * len(parts) + sum(map(len, parts))


def _too_much(what: str, option: str) -> ProtocolError:
    return ProtocolError(
        "transaction-too-large",
        f"{what}, which is the limit (option {option})",
        reason=CloseReason.LIMIT_EXCEEDED,
    )
