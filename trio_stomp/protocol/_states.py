"""The state machine of a session.

This table alone decides whether a command is allowed.

    OPENING ──CONNECT, STOMP──▶ OPEN ──DISCONNECT──▶ CLOSED
       └──────── any error ──────┴──────────────────▶ CLOSED

In CLOSED nothing is decoded any more (R11), because the connection is about to end.
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType

from trio_stomp.frames import (
    ABORT,
    ACK,
    BEGIN,
    COMMIT,
    CONNECT,
    DIAG,
    DISCONNECT,
    NACK,
    SEND,
    STOMP,
    SUBSCRIBE,
    UNSUBSCRIBE,
)


class State(Enum):
    """The state of a session."""

    OPENING = auto()
    OPEN = auto()
    CLOSED = auto()


class Action(Enum):
    """The handling of a command in a state. Each value names a method of the session."""

    OPEN = auto()
    SEND = auto()
    SUBSCRIBE = auto()
    UNSUBSCRIBE = auto()
    ACK = auto()
    NACK = auto()
    BEGIN = auto()
    COMMIT = auto()
    ABORT = auto()
    LEAVE = auto()
    ASK = auto()
    REFUSE_UNCONNECTED = auto()
    REFUSE_SECOND_CONNECT = auto()
    REFUSE_UNKNOWN = auto()


COMMANDS = (
    CONNECT,
    STOMP,
    SEND,
    SUBSCRIBE,
    UNSUBSCRIBE,
    ACK,
    NACK,
    BEGIN,
    COMMIT,
    ABORT,
    DISCONNECT,
    DIAG,
)

_WHEN_OPENING = dict.fromkeys(COMMANDS, Action.REFUSE_UNCONNECTED) | {
    CONNECT: Action.OPEN,
    STOMP: Action.OPEN,
    DIAG: Action.ASK,
}
_WHEN_OPEN = {
    CONNECT: Action.REFUSE_SECOND_CONNECT,
    STOMP: Action.REFUSE_SECOND_CONNECT,
    SEND: Action.SEND,
    SUBSCRIBE: Action.SUBSCRIBE,
    UNSUBSCRIBE: Action.UNSUBSCRIBE,
    ACK: Action.ACK,
    NACK: Action.NACK,
    BEGIN: Action.BEGIN,
    COMMIT: Action.COMMIT,
    ABORT: Action.ABORT,
    DISCONNECT: Action.LEAVE,
    DIAG: Action.ASK,
}

TABLE: Mapping[tuple[State, str], Action] = MappingProxyType(
    {(State.OPENING, command): action for command, action in _WHEN_OPENING.items()}
    | {(State.OPEN, command): action for command, action in _WHEN_OPEN.items()}
)
"""Total over {OPENING, OPEN} and COMMANDS; any other command is refused as unknown."""
