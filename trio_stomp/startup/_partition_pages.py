"""Pages and operations of a node with partitions, answered by the owners of partitions.

A request is for the partition of its parameter ``partition``, else of the destination or message
that it names, else for the first.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from urllib.parse import parse_qsl, urlencode

import trio
from attrs import frozen

from trio_stomp.base import Identity, RemoteError
from trio_stomp.broker import Action
from trio_stomp.cluster import Contact, Gate
from trio_stomp.cluster.routing import Placement
from trio_stomp.server import Send
from trio_stomp.transport import HttpError, HttpRequest, Voucher, relay_header
from trio_stomp.web import Site

PARTITION = "partition"
READ_BYTES = 64 * 1024
_NAMING = ("queue", "destination", "source")
"""Parameters that name a destination."""
_NOT_PASSED_ON = frozenset(
    {b"origin", b"connection", b"authorization", b"cookie", b"content-length", b"expect"}
)
"""This node has authenticated the user, and has read the body."""


def ask_owners(
    site: Site, placement: Placement, gates: Sequence[Gate], max_body_bytes: int
) -> None:
    """Have the owners of partitions answer requests about their figures and destinations.

    Args:
      site: The pages of the router.
      placement: The partition of each destination.
      gates: The connections to the owners.
      max_body_bytes: The largest body of a request.
    """
    ask = partial(OwnersPage.of, placement, gates, max_body_bytes)
    for key in site.operations:
        site.operations[key] = ask
    for path, page in site.pages.items():
        if page.rights is not None:
            site.operations["GET", path] = site.operations["HEAD", path] = ask


@frozen
class OwnersPage:
    """A request that the owner of a partition answers. Implements ``WebOperation``."""

    request: HttpRequest
    partition: int
    gate: Gate
    max_body_bytes: int

    @classmethod
    def of(
        cls,
        placement: Placement,
        gates: Sequence[Gate],
        max_body_bytes: int,
        request: HttpRequest,
    ) -> "OwnersPage":
        """Return the page for a request.

        Raises:
          HttpError: There is no such partition.
        """
        path, _, query = request.target.partition("?")
        pairs = parse_qsl(query, keep_blank_values=True)
        chosen = _partition(dict(pairs), placement)
        rest = urlencode([pair for pair in pairs if pair[0] != PARTITION])
        target = f"{path}?{rest}" if rest else path
        return cls(
            HttpRequest(request.method, target, request.headers, request.http_version),
            chosen,
            gates[chosen],
            max_body_bytes,
        )

    @property
    def rights(self) -> Sequence[tuple[Action, str]]:
        """Implement ``WebOperation.rights``: the owner checks them for the user."""
        return ()

    async def run(self, identity: Identity, send: Send, body: bytes) -> None:
        """Implement ``WebOperation.run``.

        Raises:
          HttpError: The partition has no owner for too long, or it is lost before it answers.
        """
        has_answered = False

        async def speak(stream: trio.SocketStream, contact: Contact) -> None:
            nonlocal has_answered
            header = relay_header(
                "127.0.0.1", 0, "off", contact.secret.encode(), Voucher(identity, "http")
            )
            await stream.send_all(header + _encoded(self.request, body))
            while data := await stream.receive_some(READ_BYTES):
                has_answered = True
                await send(bytes(data))

        await self.gate.relay(speak)
        if not has_answered:
            raise HttpError(
                503, f"partition {self.partition} has no owner at the moment; try again later"
            )


def _partition(parameters: Mapping[str, str], placement: Placement) -> int:
    """Return the partition that a request is for.

    Raises:
      HttpError: There is no such partition.
    """
    text = parameters.get(PARTITION)
    if text is not None:
        if not text.isdecimal() or int(text) >= placement.partitions:
            raise HttpError(
                400,
                f"{PARTITION}={text[:20]} is no partition: this cluster has those from 0 to "
                f"{placement.partitions - 1}",
            )
        return int(text)
    for name in _NAMING:
        if name in parameters:
            try:
                (chosen, *_) = placement.sources(parameters[name], "native")
            except RemoteError as error:
                raise HttpError(400, error.message) from None
            return chosen
    return placement.marked(parameters.get("q", ""))


def _encoded(request: HttpRequest, body: bytes) -> bytes:
    lines = [b"%b: %b\r\n" % each for each in request.headers if each[0] not in _NOT_PASSED_ON]
    if body:
        lines.append(b"content-length: %d\r\n" % len(body))
    head = f"{request.method} {request.target} HTTP/1.1\r\n".encode()
    return b"".join([head, *lines, b"\r\n", body])
