"""Clients' events as frames for an owner in another process."""

from attrs import define, field

from trio_stomp.cluster.routing._frames import (
    closed,
    encode_acks,
    encode_bare,
    encode_lead,
    encode_run,
)
from trio_stomp.frames import (
    ABORT,
    BEGIN,
    COMMIT,
    DIAG,
    DISCONNECT,
    SEND,
    SUBSCRIBE,
    UNSUBSCRIBE,
    FrameRun,
    Head,
    HeaderRules,
    encode_frame,
)
from trio_stomp.protocol import (
    Acked,
    Committed,
    Disconnected,
    Event,
    Queried,
    Received,
    Subscribed,
    Unsubscribed,
)

EVENT_BYTES = 128
"""About how much an event takes, beside bodies."""
BODY_BYTES = 64
"""The same of a body or id, beside its bytes."""


@define(eq=False)
class Routed:
    """The router's plan of a header block; it is kept there as ``Head.plan``.

    Args:
      partitions: The partitions to which its SENDs go.
      goals: The partitions of all its destinations.
      lead: Command and headers, for owners in other processes.
      copy: The block for the owner in this process, which keeps a plan of its own there.
      owner: This owner.
    """

    partitions: tuple[int, ...]
    goals: tuple[int, ...]
    lead: bytes = b""
    copy: Head | None = None
    owner: object = None


def routed(head: Head) -> Routed:
    """Return the router's plan of a header block."""
    assert isinstance(head.plan, Routed)
    return head.plan


def size_of(event: Event) -> int:
    """Return about how many bytes an event takes."""
    if type(event) is FrameRun:
        bodies = event.bodies
        return EVENT_BYTES + sum(map(len, bodies)) + BODY_BYTES * len(bodies)
    if type(event) is Acked:
        return EVENT_BYTES + BODY_BYTES * len(event.ids)
    if isinstance(event, Committed):
        return EVENT_BYTES + sum(map(size_of, event.actions))
    return EVENT_BYTES


@define(eq=False)
class Encoder:
    """Encodes the events of one client for an owner.

    Args:
      rules: Those of the client's version.
    """

    rules: HeaderRules
    _begun: dict[str, list[Acked]] = field(factory=dict)
    """The ACKs of open transactions that the owner has."""

    def encode(self, event: Event) -> bytes:
        """Return the frames of an event."""
        if type(event) is FrameRun:
            return self._run(event)
        rules = self.rules
        match event:
            case Acked():
                return encode_acks(event, rules)
            case Subscribed():
                return closed(encode_lead(SUBSCRIBE, event.headers, rules), event.receipt)
            case Unsubscribed():
                return closed(encode_lead(UNSUBSCRIBE, event.headers, rules), event.receipt)
            case Received():
                return self._received(event)
            case Committed():
                return self._committed(event)
            case Disconnected(receipt):
                return closed(encode_lead(DISCONNECT, (), rules), receipt)
            case Queried(query):
                return encode_frame(DIAG, (), rules, query.encode())
        raise AssertionError(event)

    def _run(self, run: FrameRun) -> bytes:
        plan = routed(run.head)
        if not plan.lead:
            plan.lead = encode_lead(SEND, run.head.headers, self.rules)
        return encode_run(plan.lead, run)

    def _received(self, event: Received) -> bytes:
        """Return the frames of a SEND to be checked only, of ACKs in a transaction, or of ABORT."""
        name = event.transaction
        if event.head is not None:
            receipt = next((receipt for _, receipt in event.receipts), None)
            bare = encode_bare([event.head], self.rules)
            return self._transact(BEGIN, name) + bare + self._transact(ABORT, name, receipt)
        if event.returned:
            del self._begun[name]
            return self._transact(ABORT, name)
        start = b"" if name in self._begun else self._transact(BEGIN, name)
        self._begun.setdefault(name, []).extend(event.acked)
        return start + b"".join([encode_acks(each, self.rules, name) for each in event.acked])

    def _committed(self, event: Committed) -> bytes:
        name = event.transaction
        frames = [] if name in self._begun else [self._transact(BEGIN, name)]
        known = self._begun.pop(name, [])
        for each in event.actions:
            if isinstance(each, FrameRun):
                frames.append(self._run(each))
            elif each not in known:
                frames.append(encode_acks(each, self.rules, name))
        return b"".join([*frames, self._transact(COMMIT, name, event.receipt)])

    def _transact(self, command: str, name: str, receipt: bytes | None = None) -> bytes:
        return closed(encode_lead(command, (("transaction", name),), self.rules), receipt)
