"""``open_client``, which holds the nursery of a client."""

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from attrs import frozen

from trio_stomp.base import OptionError, sole
from trio_stomp.client._client import Client
from trio_stomp.client._core import Core, CoreOptions
from trio_stomp.client._pipe import parse_endpoint
from trio_stomp.client._reconnect import ReconnectPolicy
from trio_stomp.client.loops import AsyncioConnector, Connector, current_loop
from trio_stomp.frames import FrameLimits
from trio_stomp.protocol import STOMP_1_0, STOMP_1_1, STOMP_1_2, ClientSession, ProtocolOptions

VERSIONS = tuple(each.name for each in (STOMP_1_0, STOMP_1_1, STOMP_1_2))

Token = str | Callable[[], str]

DEFAULT_POLICY = ReconnectPolicy()


@frozen(repr=False)
class _Login:
    """The user name and credentials: passcode or token."""

    name: str | None
    passcode: str | None
    token: Token | None


@asynccontextmanager
async def open_client(
    where: str | Connector | AsyncioConnector,
    *,
    login: str | None = None,
    passcode: str | None = None,
    token: Token | None = None,
    host: str | None = None,
    heart_beat: tuple[float, float] = (10.0, 10.0),
    versions: tuple[str, ...] = VERSIONS,
    client_id: str | None = None,
    ssl_context: ssl.SSLContext | None = None,
    reconnect: ReconnectPolicy | None = DEFAULT_POLICY,
    headers: Mapping[str, str] | None = None,
    connect_timeout_s: float = 10.0,
    close_timeout_s: float = 5.0,
    max_outgoing_bytes: int = 256 * 1024,
    limits: FrameLimits | None = None,
) -> AsyncIterator[Client]:
    """Connect to a broker, and stay connected within the block.

    The end of the block sends DISCONNECT and waits for its RECEIPT; an exception closes at once.
    An error that ends the client cancels the block and is raised here, not in an exception group.

    Args:
      where: A URL like ``stomp://host:port`` (stomps, ws, wss), or a function that opens a stream.
      login: The user name; None = anonymous.
      passcode: The passcode of the user; never shown in errors.
      token: A token for ``Authorization: Bearer``, or a function called for each connection.
      host: The virtual host; the default is that of the address.
      heart_beat: Seconds between heart-beats to send and to request; 0 = none.
      versions: The versions to offer, of 1.0, 1.1 and 1.2.
      client_id: The owner of durable subscriptions that belong to this client only.
      ssl_context: The TLS context; the default trusts the system's authorities.
      reconnect: The policy for reconnecting; None = never.
      headers: Further headers of CONNECT.
      connect_timeout_s: The time limit of one attempt to connect.
      close_timeout_s: The time limit of an orderly end.
      max_outgoing_bytes: The limit of unsent bytes, at which ``send`` waits.
      limits: The limits of a received frame.

    Raises:
      OptionError: an argument is wrong.
      ClientError: connecting failed, or an error ended the client later.
    """
    peer = parse_endpoint(where, ssl_context)
    build = _connect_headers(_Login(login, passcode, token), host or peer.host, client_id, headers)
    options = CoreOptions(
        peer,
        headers=build,
        protocol=ProtocolOptions(*_milliseconds(heart_beat)),
        limits=limits or FrameLimits(),
        versions=_checked(versions),
        policy=reconnect,
        connect_timeout_s=connect_timeout_s,
        close_timeout_s=close_timeout_s,
        max_outgoing_bytes=max_outgoing_bytes,
        renews_token=callable(token),
    )
    async with _run(Core(options, current_loop())) as client:
        yield client


def _checked(versions: tuple[str, ...]) -> tuple[str, ...]:
    chosen = tuple(name for name in VERSIONS if name in versions)
    if not chosen or len(chosen) != len(versions):
        raise OptionError(f"versions={versions!r} must be some of {', '.join(VERSIONS)}")
    return chosen


@asynccontextmanager
async def _run(core: Core) -> AsyncIterator[Client]:
    options = core.options
    session = ClientSession(options.limits, options.protocol, options.versions)
    session.connect(options.headers())  # report headers that cannot be sent
    raised: BaseException | None = None
    try:
        async with core.loop.open_nursery() as nursery:
            core.on_failure = nursery.cancel_scope.cancel
            nursery.start_soon(core.run)
            try:
                await core.wait_opened()
                yield Client(core)
                await core.leave()
            finally:
                core.stop()
    except BaseExceptionGroup as group:
        # Our task never raises, so this left the block, and our nursery wrapped it.
        raised = sole(group)
    if raised is not None:
        raise raised
    if core.failure is not None and not core.is_leaving:
        raise core.failure


def _milliseconds(heart_beat: tuple[float, float]) -> tuple[int, int]:
    if any(not 0 <= each < 1_000_000 for each in heart_beat):
        raise OptionError(f"heart_beat={heart_beat!r} must be two numbers of seconds, 0 or more")
    send_s, expect_s = heart_beat
    return round(send_s * 1000), round(expect_s * 1000)


def _connect_headers(
    login: _Login, host: str, client_id: str | None, headers: Mapping[str, str] | None
) -> Callable[[], tuple[tuple[str, str], ...]]:
    """Return a function that builds the headers of CONNECT for each attempt."""
    token = login.token
    if token is not None and (login.name is not None or login.passcode is not None):
        raise OptionError("login= with passcode=, or token=: not both")

    def build() -> tuple[tuple[str, str], ...]:
        fields = {"host": host, "login": login.name, "passcode": login.passcode}
        fields["client-id"] = client_id
        if token is not None:
            fields["Authorization"] = f"Bearer {token() if callable(token) else token}"
        given = tuple((name, text) for name, text in fields.items() if text is not None)
        return (*given, *(headers or {}).items())

    return build
