"""Addresses of NATS servers, in which order they are tried, and the options of a client."""

import random
import ssl
from collections.abc import Mapping, Sequence
from urllib.parse import unquote, urlsplit

from attrs import define, field, frozen

from trio_stomp.nats.codec import NatsError

DEFAULT_PORT = 4222
MAX_LEARNED = 256
"""Maximum number of addresses learned from servers."""


@frozen
class Address:
    """The address on which a server listens.

    Args:
      is_tls: TLS is required (``tls://``). Without it, TLS is used if the server requires it
        or the client has a TLS context.
    """

    host: str
    port: int
    is_tls: bool = False
    login: str = field(default="", repr=False)
    passcode: str = field(default="", repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.is_tls else 'nats'}://{host}:{self.port}"


def parse_address(text: str, like: Address | None = None) -> Address:
    """Return the address in a URL such as ``nats://user:passcode@host:4222``.

    Args:
      text: The URL, or only host and port.
      like: The source of a scheme and credentials that ``text`` lacks, as addresses announced by
        servers do.

    Raises:
      NatsError: the text is not such a URL.
    """
    parts = urlsplit(text if "://" in text else f"//{text}")
    try:
        port = DEFAULT_PORT if parts.port is None else parts.port
    except ValueError:
        port = 0
    if parts.scheme not in ("", "nats", "tls") or not parts.hostname or not port:
        raise NatsError(
            "a NATS server is written nats://host:port or tls://host:port, with user:passcode@"
            f" before the host if need be, not {_without_passcode(text)!r}"
        )
    like = like or Address("", 0)
    return Address(
        parts.hostname,
        port,
        parts.scheme == "tls" if parts.scheme else like.is_tls,
        unquote(parts.username or "") or like.login,
        unquote(parts.password or "") or like.passcode,
    )


def _without_passcode(text: str) -> str:
    start, _, rest = text.rpartition("@")
    return f"…@{rest}" if start else text


@frozen
class NatsOptions:
    """The options of a client's connections.

    Args:
      servers: Addresses of one cluster; the client learns the others from its servers.
      name: The client's name in the servers' monitoring.
      token: A token instead of the login and passcode in the addresses.
      tls: For ``tls://`` and servers that require TLS; None = the system's authorities.
      connect_s: Maximum time of one attempt, handshakes included.
      ping_s: A connection without any data for twice this time is closed.
      answer_s: Maximum time for a server's answer to a request.
      first_wait_s: Pause after each server failed once; it doubles up to ``last_wait_s``.
      max_outgoing_bytes: Maximum number of bytes that wait to be sent.
    """

    servers: Sequence[Address]
    name: str = "trio_stomp"
    token: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    connect_s: float = 2.0
    ping_s: float = 2.0
    answer_s: float = 5.0
    first_wait_s: float = 0.05
    last_wait_s: float = 2.0
    max_outgoing_bytes: int = 64 * 1024 * 1024


@define(eq=False, repr=False)
class Servers:
    """Configured and learned addresses, tried in turn.

    Args:
      configured: Tried first, and never forgotten.
      first_wait_s: Pause after all of them failed once; it doubles with each further round.
      last_wait_s: The maximum pause.
      chance: A random generator, so that clients that lost one server choose different others at
        different times.
    """

    configured: Sequence[Address]
    first_wait_s: float
    last_wait_s: float
    chance: random.Random
    _learned: list[Address] = field(factory=list)
    _round: list[Address] = field(factory=list)
    """Addresses not tried yet in this round."""
    _rounds: int = -1
    """Number of failed rounds before this one."""

    def next(self) -> tuple[Address, float]:
        """Return the next address to try, and the pause before it in seconds."""
        if self._round:
            return self._round.pop(), 0.0
        servers = {(each.host, each.port): each for each in (*self._learned, *self.configured)}
        self._round = self.chance.sample(list(servers.values()), len(servers))
        self._rounds += 1
        if not self._rounds:
            return self._round.pop(), 0.0
        wait = min(self.first_wait_s * 2 ** min(self._rounds - 1, 30), self.last_wait_s)
        return self._round.pop(), wait * self.chance.uniform(0.5, 1.0)

    def note_success(self, address: Address, info: Mapping[str, object]) -> None:
        """Begin a new round after the next failure, with the addresses named by the server.

        Args:
          address: The server that accepted a connection.
          info: Its description of itself.
        """
        self._round, self._rounds = [], -1
        learned = info.get("connect_urls")
        if not isinstance(learned, list):
            return
        self._learned = []
        for text in learned[:MAX_LEARNED]:
            try:
                self._learned.append(parse_address(str(text), like=address))
            except NatsError:
                continue  # of a kind that this client cannot use, such as ws://
