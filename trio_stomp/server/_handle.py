"""Where clients come from, and how the program that runs a broker speaks to it."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import trio
from attrs import define, field, frozen

from trio_stomp.base import OptionError
from trio_stomp.broker import BrokerEvent
from trio_stomp.transport import memory_stream_pair

SESSION_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
"""What stands in any version's headers, in names of destinations and in the log as it is."""


def check_session_id(session_id: str) -> str:
    """Return a session id of the embedding program's.

    Raises:
      OptionError: it is none; the program's fault.
    """
    if not isinstance(session_id, str) or not SESSION_ID.fullmatch(session_id):
        raise OptionError(
            f"{session_id!r:.80} is no session id: new_session_id must return 1 to 128 letters,"
            " digits, dots, dashes or underscores"
        )
    return session_id


@frozen
class ServerEvent:
    """An event of a broker, for the program that runs it.

    Args:
      kind: ``connect``: a session was opened. ``disconnect``: one has ended.
        ``subscription-start``: somebody subscribed to what nobody was subscribed to.
        ``subscription-stop``: nobody is any more. ``lost``: events were, just here, for the channel
        was full. ``stop``: the last.
      session_id, user: Of a session: the ``session`` header of CONNECTED, and the login.
      destination: Of a subscription, as SUBSCRIBE told it: perhaps a pattern.
      reason: Why a session ended, as ``CloseReason.text`` has it.
      detail: Of a session, for people: version, transport, address.
      count: Of ``lost``: how many.
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
    """Puts what happens into the program's channel, and never waits for it.

    Handles: which subscription is the first and the last of a destination; a channel that is full
    (the newest are lost, and counted), and one that nobody reads any more.
    Does not handle: what happens to single messages; DIAG's events tell more.
    """

    channel: "trio.MemorySendChannel[ServerEvent] | None" = None
    lost: int = 0
    """Since the start."""
    _untold: int = 0
    _subscriptions: dict[str, int] = field(factory=dict)
    """How many, by destination; bounded by the broker's limits of them."""

    def hear(self, event: BrokerEvent) -> None:
        """Told of each event of the core, within its turns. It raises nothing."""
        if event.name == "subscribe":
            many = self._subscriptions.get(event.destination, 0) + 1
            self._subscriptions[event.destination] = many
            if many == 1:
                self.tell(ServerEvent("subscription-start", destination=event.destination))
        elif event.name == "unsubscribe":
            many = self._subscriptions.pop(event.destination, 1) - 1
            if many:
                self._subscriptions[event.destination] = many
            else:
                self.tell(ServerEvent("subscription-stop", destination=event.destination))
        elif event.name == "connect":
            who = event.session_id, event.user
            self.tell(ServerEvent("connect", *who, detail=event.detail))
        elif event.name == "disconnect":
            who = event.session_id, event.user
            self.tell(ServerEvent("disconnect", *who, reason=event.reason, detail=event.detail))

    def tell(self, event: ServerEvent) -> None:
        """Put an event into the channel if it has room, else count it."""
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
            self.close()  # nobody wants them any more

    def close(self) -> None:
        """Nothing more will be told."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None


async def _nothing_to_reload(settings: object) -> None:
    await trio.lowlevel.checkpoint()


def refuse(stream: trio.abc.Stream) -> None:
    """Refuse a new connection where no broker runs."""
    raise ConnectionRefusedError("the broker is not accepting connections")


@frozen(eq=False, repr=False)
class Entrance:
    """The origin of connections, and whether their bytes are secret.

    Args:
      tls: ``off``, ``optional`` (the first bytes tell) or ``required``.
    """

    listener: "trio.abc.Listener[trio.abc.Stream]"
    tls: str = "off"


@define(eq=False, repr=False)
class ServerHandle:
    """A running broker, for the program that runs it."""

    addresses: tuple[str, ...]
    tls_addresses: tuple[str, ...] = ()
    """Of the port where TLS is required."""
    on_reload: Callable[[Any], Awaitable[None]] = _nothing_to_reload
    on_connect: Callable[[trio.abc.Stream], None] = refuse
    feed: EventFeed = field(factory=EventFeed)
    _stopping: trio.Event = field(factory=trio.Event)

    @property
    def events_lost(self) -> int:
        """Events that found the channel full, since the start."""
        return self.feed.lost

    async def connect(self) -> trio.abc.HalfCloseableStream:
        """Return a new connection to the broker, over memory: the client's end of a bounded stream.

        Nothing of it passes the operating system. It counts as one from this machine, and is not
        encrypted; who logs in, and what he may do, is asked as everywhere. It can be a connector
        of ``trio_stomp.client.open_client``.

        Raises:
          ConnectionRefusedError: the broker does not run (yet, or any more).

        Checkpoint: always. Cancel: there is no connection.
        """
        await trio.lowlevel.checkpoint()
        ours, theirs = memory_stream_pair()
        self.on_connect(theirs)
        return ours

    def stop(self) -> None:
        """Begin the ordered shutdown. ``serve`` returns when it is done."""
        self._stopping.set()

    async def reload(self, settings: object = None) -> None:
        """Read the files of users, rules, keys and certificates again, all of them or none.

        Args:
          settings: ``Settings`` that shall hold from now on, as far as they can while the broker
            runs (docs/operate/configuration.md); None = those it has.

        Raises:
          OptionError: something is wrong: the operator's fault. What held before still holds.

        Checkpoint: always. Cancel: nothing has changed, or everything has.
        """
        await self.on_reload(settings)

    async def wait_stopping(self) -> None:
        """Wait until somebody has called ``stop``. Checkpoint: always."""
        await self._stopping.wait()
