"""The entrances of a broker, and the interface for the program that runs it."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import trio
from attrs import define, field, frozen

from trio_stomp.base import OptionError
from trio_stomp.broker import BrokerEvent
from trio_stomp.transport import LinkTls, memory_stream_pair

SESSION_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
"""Characters that need no escaping in any version's headers, in destination names or in logs."""


def check_session_id(session_id: str) -> str:
    """Return the embedding program's session id if it is valid.

    Raises:
      OptionError: it is invalid, by the program's fault.
    """
    if not isinstance(session_id, str) or not SESSION_ID.fullmatch(session_id):
        raise OptionError(
            f"{session_id!r:.80} is not a session id: new_session_id must return 1 to 128 letters,"
            " digits, dots, dashes or underscores"
        )
    return session_id


@frozen
class ServerEvent:
    """An event of a broker, for the embedding program.

    Args:
      kind: ``connect``: a session was opened. ``disconnect``: one has ended.
        ``subscription-start``: a destination got its first subscription. ``subscription-stop``: its
        last one ended. ``lost``: events are missing here, as the channel was full. ``stop``: the
        last.
      session_id, user: For sessions: the ``session`` header of CONNECTED, and the login.
      destination: For subscriptions: the name in SUBSCRIBE, which may be a pattern.
      reason: Why a session ended, as in ``CloseReason.text``.
      detail: For sessions, as text: version, transport, address.
      count: For ``lost``: the number of events.
    """

    kind: Literal[
        "connect", "disconnect", "subscription-start", "subscription-stop", "lost", "stop"
    ]
    session_id: str = ""
    user: str = ""
    destination: str = ""
    reason: str = ""
    detail: str = ""
    count: int = 0


@define(eq=False, repr=False)
class EventFeed:
    """Sends events to the program's channel without waiting.

    Handles: the first and the last subscription of a destination; a full channel (the newest events
    are lost, and counted), and a closed one.
    Does not handle: events of single messages; see DIAG.
    """

    channel: "trio.MemorySendChannel[ServerEvent] | None" = None
    lost: int = 0
    """The number of lost events since the start."""
    _untold: int = 0
    _subscriptions: dict[str, int] = field(factory=dict)
    """The number of subscriptions by destination, bounded by the broker's limits."""

    def on_event(self, event: BrokerEvent) -> None:
        """Process an event of the core, within its turn. Does not raise."""
        if event.name == "subscribe":
            many = self._subscriptions.get(event.destination, 0) + 1
            self._subscriptions[event.destination] = many
            if many == 1:
                self.put(ServerEvent("subscription-start", destination=event.destination))
        elif event.name == "unsubscribe":
            many = self._subscriptions.pop(event.destination, 1) - 1
            if many:
                self._subscriptions[event.destination] = many
            else:
                self.put(ServerEvent("subscription-stop", destination=event.destination))
        elif event.name == "connect":
            who = event.session_id, event.user
            self.put(ServerEvent("connect", *who, detail=event.detail))
        elif event.name == "disconnect":
            who = event.session_id, event.user
            self.put(ServerEvent("disconnect", *who, reason=event.reason, detail=event.detail))

    def put(self, event: ServerEvent) -> None:
        """Put an event into the channel if it has room, or count it as lost."""
        if self.channel is None:
            return
        try:
            if self._untold:
                self.channel.send_nowait(ServerEvent("lost", count=self._untold))
                self._untold = 0
            self.channel.send_nowait(event)
        except trio.WouldBlock:
            self._untold += 1
            self.lost += 1
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.close()  # they are no longer read

    def close(self) -> None:
        """End the stream of events."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None


Changes = Sequence[Mapping[str, object]]
"""Changes of settings, users and rules: each with group, name, before, after and is_live."""


async def _nothing_to_reload(_settings: object) -> Changes:
    await trio.lowlevel.checkpoint()
    return ()


def refuse(_stream: trio.abc.Stream) -> None:
    """Refuse a new connection because no broker runs."""
    raise ConnectionRefusedError("the broker is not accepting connections")


@frozen(eq=False, repr=False)
class Entrance:
    """The origin of connections, and whether they are encrypted.

    Args:
      tls: ``off``, ``optional`` (detected by the first bytes) or ``required``.
      secret: Connections are relayed by other nodes of a cluster, with this secret; b"" = they are
        clients'.
      links: The TLS of those nodes; None = they use none.
    """

    listener: "trio.abc.Listener[trio.abc.Stream]"
    tls: str = "off"
    secret: bytes = b""
    links: LinkTls | None = None


@define(eq=False, repr=False)
class ServerHandle:
    """A running broker, for the program that runs it."""

    addresses: tuple[str, ...]
    tls_addresses: tuple[str, ...] = ()
    """The addresses where TLS is required."""
    on_reload: Callable[[Any], Awaitable[Changes]] = _nothing_to_reload
    reread: Callable[[], Awaitable[Changes]] | None = None
    """Reads the settings files again and reloads, for operators; None = only ``reload``."""
    node: str = ""
    """The name of the node of a cluster that this broker is, or ""."""
    on_connect: Callable[[trio.abc.Stream], None] = refuse
    feed: EventFeed = field(factory=EventFeed)
    grace_s: float | None = None
    """Time for connections to end, if given to ``stop``."""
    _stopping: trio.Event = field(factory=trio.Event)

    @property
    def events_lost(self) -> int:
        """Return the number of events lost since the start because the channel was full."""
        return self.feed.lost

    async def connect(self) -> trio.abc.HalfCloseableStream:
        """Connect to the broker over memory, and return the client's end of a bounded stream.

        It does not pass through the operating system. It counts as local and unencrypted.
        Authentication and authorization apply as for any client. It can be a connector of
        ``trio_stomp.client.open_client``.

        Raises:
          ConnectionRefusedError: the broker is not running.

        Checkpoint: always. Cancel: there is no connection.
        """
        await trio.lowlevel.checkpoint()
        ours, theirs = memory_stream_pair()
        self.on_connect(theirs)
        return ours

    def stop(self, grace_s: float | None = None) -> None:
        """Begin the ordered shutdown. ``serve`` returns when it is done.

        Args:
          grace_s: Time for connections to end; None = the option ``shutdown_grace_s``.
        """
        self.grace_s = grace_s
        self._stopping.set()

    async def reload(self, settings: object = None) -> Changes:
        """Reload the files of users, rules, keys and certificates, all of them or none.

        Args:
          settings: New ``Settings``, as far as they can change while the broker runs
            (docs/operate/configuration.md). None = the present ones.

        Returns: What has changed, a record each: ``group``, ``name``, ``before``, ``after``, and
          ``is_live``, which is false for what takes a restart.

        Raises:
          OptionError: a file or setting is wrong, by the operator's fault. Nothing has changed.

        Checkpoint: always. Cancel: nothing has changed, or everything has.
        """
        return await self.on_reload(settings)

    async def wait_stopping(self) -> None:
        """Wait until ``stop`` is called. Checkpoint: always."""
        await self._stopping.wait()
