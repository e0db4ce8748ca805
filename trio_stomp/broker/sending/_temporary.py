"""Temporary destinations: private to a connection, and deleted with it.

A client writes ``/temp-queue/x``. Other clients see ``/reply-queue/SESSION-SECRET.x`` in the
``reply-to`` header of its messages, and may send there. Only the connection itself may consume it.
Session ids are predictable, and a client that may reply at all may send to ``/reply-queue/**``.
The secret keeps it from sending to queues whose names it was not given.
"""

import re
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import Client
from trio_stomp.broker.names import PRIVATE_QUEUE, PRIVATE_TOPIC, Pattern, check_public
from trio_stomp.frames import Head

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Destination

_PUBLIC = {"/temp-queue/": PRIVATE_QUEUE, "/temp-topic/": PRIVATE_TOPIC}
_PUBLIC_PREFIX = re.compile("^/reply-(queue|topic)/")
MAX_TEMPORARY = 1_000
"""Maximum number of temporary destinations of a connection."""
SECRET_BYTES = 12


def is_orphan(client: Client | None, destination: "Destination") -> bool:
    """Return whether a destination is the reply queue of a client that has gone."""
    if destination.queue is not None or not destination.name.startswith(PRIVATE_QUEUE):
        return False
    return client is None or destination.name not in client.temporary.values()


def unguessable(client: Client) -> str:
    """Return the session id, for people, and 96 random bits."""
    return f"{client.session_id}-{secrets.token_hex(SECRET_BYTES)}"


@define(eq=False, repr=False)
class Temporary:
    """Translates between a client's temporary names and the public ones.

    Args:
      expect_replies: Subscribes a client to a temporary queue that it named in ``reply-to`` but
        has not subscribed to, as RabbitMQ does.
      authorizer: Checks whether a client may create them.
      begin_name: Returns the beginning of a new public name.
      names_remotely: Other clients get public names as ActiveMQ spells them.
    """

    expect_replies: Callable[[Client, str, str], None]
    authorizer: Authorizer
    begin_name: Callable[[Client], str] = unguessable
    names_remotely: bool = False

    def public_name(self, client: Client, name: str) -> str:
        """Return the public name of the destination that ``client`` calls ``name``.

        Raises:
          ProtocolError: the client has too many temporary destinations, or may not create them.
        """
        existing = client.temporary.get(name)
        if existing is not None:
            return existing
        for private, public in _PUBLIC.items():
            if name.startswith(private):
                if len(client.temporary) >= MAX_TEMPORARY:
                    raise ProtocolError(
                        "too-many-temporary-destinations",
                        f"this connection has {MAX_TEMPORARY} temporary destinations,"
                        " which is the limit",
                        reason=CloseReason.LIMIT_EXCEEDED,
                    )
                self.authorizer.check_temporary(client, name)
                made = f"{public}{self.begin_name(client)}.{name.removeprefix(private)}"
                client.temporary[name] = made
                return made
        return name

    def consumed_name(self, client: Client, header: str, pattern: Pattern | None) -> str:
        """Return the public name of a destination that ``client`` subscribes to.

        Raises:
          ProtocolError: it is private to another client, or a wildcard of temporary names.
        """
        if not header.startswith(tuple(_PUBLIC)):
            if header not in client.temporary.values():
                check_public(header)
            return header
        if pattern is not None:
            raise ProtocolError(
                "invalid-wildcard",
                f"destination:{header[:80]} is temporary, which is subscribed to by its full name",
            )
        return self.public_name(client, header)

    def localised(self, client: Client, head: Head, names: tuple[str, ...]) -> Head:
        """Return a SEND's header block with public names for temporary ones.

        The result for a client's last block is cached.

        Args:
          client: The sender.
          head: The header block.
          names: The destinations that it names: of a composite several.
        """
        fields = dict(head.headers)
        fields["destination"] = ",".join([self.public_name(client, name) for name in names])
        if (reply_to := fields.get("reply-to")) is not None:
            fields["reply-to"] = self.public_name(client, reply_to)
            if reply_to.startswith("/temp-queue/"):
                self.expect_replies(client, reply_to, fields["reply-to"])
            if self.names_remotely:
                fields["reply-to"] = _PUBLIC_PREFIX.sub(r"/remote-temp-\1/", fields["reply-to"])
        headers, last = tuple(fields.items()), client.localised
        if last is None or last[0] is not head or last[1].headers != headers:
            made = Head(head.command, headers, head.content_length, fields["destination"])
            last = client.localised = head, made
        return last[1]
