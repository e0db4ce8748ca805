"""Admission: limits on all connections, and on those from one address."""

import logging

from attrs import define, field

from trio_stomp.base import CloseReason, ProtocolError, RemoteError
from trio_stomp.security import address_key
from trio_stomp.server._limits import ServerLimits
from trio_stomp.transport import Wire

logger = logging.getLogger("trio_stomp")

REFUSALS_AT_ONCE = 256
"""Maximum number of refused peers that receive the reason at once. Others are just closed."""


@define(eq=False, repr=False)
class Admission:
    """Counts connections, and decides whether a new one may stay."""

    limits: ServerLimits
    admitted: int = 0
    refused: int = 0
    _by_address: dict[str, int] = field(factory=dict)
    _being_refused: int = 0

    def enter(self, wire: Wire) -> RemoteError | None:
        """Count a new connection, and return the reason to refuse it, or None."""
        refusal = self._refusal(wire)
        if refusal is None:
            self.admitted += 1
            if not wire.is_loopback:
                host = _host(wire)
                self._by_address[host] = self._by_address.get(host, 0) + 1
        else:
            self.refused += 1
            self._being_refused += 1
        return refusal

    @property
    def is_flooded(self) -> bool:
        """Return whether too many refusals are pending to send the next one a reason."""
        return self._being_refused >= REFUSALS_AT_ONCE

    def leave(self, wire: Wire, refusal: RemoteError | None) -> None:
        """Count a closed connection. ``refusal`` is the result of ``enter`` for it."""
        if refusal is not None:
            self._being_refused -= 1
            return
        self.admitted -= 1
        if not wire.is_loopback:
            host = _host(wire)
            left = self._by_address[host] - 1
            if left:
                self._by_address[host] = left
            else:
                del self._by_address[host]

    def _refusal(self, wire: Wire) -> RemoteError | None:
        limits = self.limits
        if self.admitted >= limits.max_connections:
            return ProtocolError(
                "too-many-connections",
                f"the broker has {limits.max_connections} connections, which is its limit"
                " (option max_connections); try again later",
                reason=CloseReason.TOO_MANY_CONNECTIONS,
            )
        if not wire.is_loopback:
            host, limit = _host(wire), limits.max_connections_per_address
            if self._by_address.get(host, 0) >= limit:
                return ProtocolError(
                    "too-many-from-address",
                    f"{host} has {limit} connections, which is the limit for one address"
                    " (option max_connections_per_address)",
                    reason=CloseReason.TOO_MANY_FROM_ADDRESS,
                )
        return None


def _host(wire: Wire) -> str:
    """Return the address that limits apply to: for IPv6 the network, which one peer may own."""
    return address_key(wire.remote)[0]
