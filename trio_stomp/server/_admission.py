"""Admission: limits on all connections, on those from one address, and on those from one site."""

import logging

from attrs import define, field

from trio_stomp.base import CloseReason, ProtocolError, RemoteError
from trio_stomp.security import networks_of
from trio_stomp.server._limits import ServerLimits
from trio_stomp.transport import Wire

logger = logging.getLogger("trio_stomp")

SITE_FACTOR, SITE_SHARE = 4, 2
"""An IPv6 site (/48) may have the connections of four addresses (/64), up to half of all."""
REFUSALS_AT_ONCE = 256
"""Maximum number of refused peers that receive the reason at once. Others are just closed."""


@define(eq=False, repr=False)
class Admission:
    """Counts connections, and decides whether a new one may stay."""

    limits: ServerLimits
    admitted: int = 0
    refused: int = 0
    _by_network: dict[str, int] = field(factory=dict)
    _being_refused: int = 0

    def enter(self, wire: Wire) -> RemoteError | None:
        """Count a new connection, and return the reason to refuse it, or None."""
        refusal = self._refusal(wire)
        if refusal is None:
            self.admitted += 1
            for network in _networks(wire):
                self._by_network[network] = self._by_network.get(network, 0) + 1
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
        for network in _networks(wire):
            self._by_network[network] -= 1
            if not self._by_network[network]:
                del self._by_network[network]

    def _refusal(self, wire: Wire) -> RemoteError | None:
        limits = self.limits
        if self.admitted >= limits.max_connections:
            return ProtocolError(
                "too-many-connections",
                f"the broker has {limits.max_connections} connections, which is its limit"
                " (option max_connections); try again later",
                reason=CloseReason.TOO_MANY_CONNECTIONS,
            )
        each = limits.max_connections_per_address
        site = max(each, min(SITE_FACTOR * each, limits.max_connections // SITE_SHARE))
        for network, limit in zip(_networks(wire), (each, site), strict=False):
            if self._by_network.get(network, 0) >= limit:
                return ProtocolError(
                    "too-many-from-address",
                    f"{network} has {limit} connections, which is the limit for one address or "
                    "network (option max_connections_per_address)",
                    reason=CloseReason.TOO_MANY_FROM_ADDRESS,
                )
        return None


def _networks(wire: Wire) -> tuple[str, ...]:
    """Return the address and, for IPv6, the site of a peer; () = it is on this machine."""
    return () if wire.is_loopback else networks_of(wire.remote)
