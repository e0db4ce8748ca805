"""The versions of STOMP, and their differences above the codec."""

from attrs import frozen

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.frames import V1_0, V1_1, V1_2, HeaderRules


@frozen
class Version:
    """One version of the protocol.

    Args:
      index: Index of its encoding of a MESSAGE in ``frames.message_blocks``.
      rules: Its header rules.
      needs_id: Whether SUBSCRIBE and UNSUBSCRIBE require an ``id`` (S06, S14).
      heartbeats: Whether heart-beats are negotiated (H10).
      acks_by_header: MESSAGE has an ``ack`` header, which ACK repeats as ``id`` (A04, A08); before
        1.2, ACK repeats ``message-id`` (A06, A07).
      nacks: Whether it has NACK (A12).
    """

    name: str
    index: int
    rules: HeaderRules
    needs_id: bool
    heartbeats: bool
    acks_by_header: bool
    nacks: bool


STOMP_1_0 = Version(
    "1.0", index=0, rules=V1_0, needs_id=False, heartbeats=False, acks_by_header=False, nacks=False
)
STOMP_1_1 = Version(
    "1.1", index=1, rules=V1_1, needs_id=True, heartbeats=True, acks_by_header=False, nacks=True
)
STOMP_1_2 = Version(
    "1.2", index=2, rules=V1_2, needs_id=True, heartbeats=True, acks_by_header=True, nacks=True
)

VERSIONS = (STOMP_1_2, STOMP_1_1, STOMP_1_0)
SUPPORTED = "1.0,1.1,1.2"


def negotiate(accept_version: str | None) -> Version:
    """Return the highest version that both sides support (C03, C04).

    Returns:
      The version; 1.0 if the client names none.

    Raises:
      ProtocolError: they have no version in common (C05).
    """
    if accept_version is None:
        return STOMP_1_0
    offered = {name.strip() for name in accept_version.split(",")}
    for version in VERSIONS:
        if version.name in offered:
            return version
    raise ProtocolError(
        "unsupported-version",
        f"accept-version:{accept_version[:60]} names no supported version; these are {SUPPORTED}",
        reason=CloseReason.UNSUPPORTED,
    )
