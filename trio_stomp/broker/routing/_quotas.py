"""Quotas: the shares of memory, names and disk that one user or network may take.

A client that has not logged in uses the quota of its network. No quota applies to local clients
without access rules, to the broker itself, and to stored messages without a recorded owner.
"""

from collections import Counter
from heapq import nlargest
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import (
    ANONYMOUS_NAME,
    CloseReason,
    Identity,
    MemoryBudget,
    ProtocolError,
    Quota,
    RemoteError,
)
from trio_stomp.broker.headers import decode_head
from trio_stomp.frames import V1_2, encode_header
from trio_stomp.store import CHARGED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trio_stomp.broker.delivery import Client

FIRST_SWEEP = 1024
"""The number of quotas at which unused ones are first searched."""
KINDS = ("user", "network")
HEADER = CHARGED.decode().rstrip(":")
"""The header of a stored message that names its quota. Clients can neither send nor see it."""
REFUSAL_CHARS = 300
"""The characters of an ERROR's message in the event of the client's end."""
MAX_SHOWN = 10
"""Quotas shown to operators, the largest ones."""


@define(eq=False, repr=False)
class Quotas:
    """The quotas of connected clients, and of others whose messages are still there.

    Args:
      clients: Returns all connected clients.
    """

    clients: "Callable[[], Iterable[Client]]"
    refused: int = 0
    """ERRORs because of a full quota since the start, forgotten quotas included."""
    refusals: "Counter[str]" = field(factory=Counter)
    """All ERRORs to clients since the start, by code."""
    _quotas: dict[tuple[str, str], Quota] = field(factory=dict)
    _sweep_at: int = FIRST_SWEEP

    def __len__(self) -> int:
        return len(self._quotas)

    def of(self, client: "Client") -> Quota | None:
        """Return the quota of a client: its user's, or its network's if it has not logged in."""
        if client.rights is None:
            return self._named("network", client.network) if client.network else None
        if client.identity.name:
            return self.of_user(client.identity.name)
        return self._named("network", client.network or ANONYMOUS_NAME)

    def of_user(self, name: str) -> Quota:
        """Return the quota of a user."""
        return self._named("user", name)

    def left_by(self, owner: Identity | None) -> Quota | None:
        """Return the quota of the owner of something in the store, or None if unknown."""
        return self.of_user(owner.name) if owner is not None and owner.name else None

    def charged(self, line: bytes) -> Quota | None:
        """Return the quota named in a line of a stored header block, or None."""
        if not line:
            return None
        try:
            kind, _, name = (decode_head(line).get(HEADER) or "").partition(" ")
        except RemoteError:
            return None
        return self._named(kind, name) if kind in KINDS and name else None

    def largest(self, count: int) -> list[Quota]:
        """Return at most ``count`` quotas, those with the most bytes first."""

        def total(quota: Quota) -> int:
            return quota.kept_bytes + quota.tables_bytes + quota.stored_bytes

        return nlargest(count, self._quotas.values(), total)

    def figures(self) -> list[dict[str, object]]:
        """Return the figures of the largest quotas, for operators."""
        return [
            {
                "owner": quota.owner,
                "kind": quota.kind,
                "kept_bytes": quota.kept_bytes,
                "stored_bytes": quota.stored_bytes,
                "tables_bytes": quota.tables_bytes,
                "destinations": quota.destinations,
                "scheduled": quota.scheduled,
                "refused_total": quota.refused,
            }
            for quota in self.largest(MAX_SHOWN)
        ]

    def note_refused(self, client: "Client", error: RemoteError) -> None:
        """Count an ERROR to a client, and note its cause for the event of its end."""
        self.refusals[error.code] += 1
        client.refusal = f"{error.code}: {error.message[:REFUSAL_CHARS]}"
        if error.is_by_quota:
            self.refused += 1
            if client.quota is not None:
                client.quota.refused += 1

    def _named(self, kind: str, name: str) -> Quota:
        quota = self._quotas.get((kind, name))
        if quota is None:
            if len(self._quotas) >= self._sweep_at:
                self._sweep()
            quota = self._quotas[kind, name] = Quota(name, kind=kind)
            quota.line = encode_header(HEADER, f"{kind} {name}", V1_2)
        return quota

    def _sweep(self) -> None:
        """Forget unused quotas of clients that are gone."""
        present = {client.quota for client in self.clients()}
        for key, quota in list(self._quotas.items()):
            if quota.is_unused and quota not in present:
                del self._quotas[key]
        self._sweep_at = max(FIRST_SWEEP, 2 * len(self._quotas))


def beyond_quota(code: str, text: str) -> ProtocolError:
    """Return the error for a full quota."""
    error = ProtocolError(code, text, reason=CloseReason.LIMIT_EXCEEDED)
    error.is_by_quota = True
    return error


def no_names(memory: MemoryBudget, quota: Quota, what: str) -> ProtocolError:
    """Return the error for a name or subscription that a quota has no room for."""
    return beyond_quota(
        "quota-exceeded",
        f"there is no room for {what}: {quota.owner[:60]} has {quota.destinations} destinations and"
        f" {quota.tables_bytes} bytes of names and subscriptions, as much as {_rule(memory)};"
        " UNSUBSCRIBE what is not needed, empty queues, or use fewer names",
    )


def kept_rule(memory: MemoryBudget, quota: Quota) -> str:
    """Explain that a user's waiting messages have filled the quota."""
    return (
        f"messages of {quota.owner[:60]} that wait take {quota.kept_bytes} bytes, as much as"
        f" {_rule(memory)}"
    )


def stored_rule(memory: MemoryBudget, quota: Quota) -> str:
    """Explain that a user's stored messages have filled the quota."""
    return (
        f"messages of {quota.owner[:60]} take {quota.stored_bytes} bytes in the store, as much as"
        f" {_rule(memory)}"
    )


def _rule(memory: MemoryBudget) -> str:
    return (
        f"one user may have (option max_share_per_user: {memory.quota_percent} % of what others"
        " leave)"
    )
