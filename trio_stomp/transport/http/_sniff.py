"""Detection of the protocol by the first bytes of a connection, for a shared port."""

from enum import Enum, auto

_VERBS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"TRACE ")
_HTTP_CONNECT = b"CONNECT "
_TLS_HANDSHAKE = 0x16


class Speech(Enum):
    """The protocols that are detected."""

    STOMP = auto()
    HTTP = auto()
    TLS = auto()


def sniff(start: bytes) -> Speech | None:
    """Return the protocol that begins with ``start``, or None if more bytes are needed (X11, X12).

    STOMP's CONNECT is followed by a line end, HTTP's by a space. Everything that is neither TLS nor
    HTTP goes to the STOMP decoder, which reports errors in it.
    """
    if not start:
        return None
    if start[0] == _TLS_HANDSHAKE:
        return Speech.TLS
    for verb in (*_VERBS, _HTTP_CONNECT):
        if start.startswith(verb):
            return Speech.HTTP
        if len(start) < len(verb) and verb.startswith(start):
            return None
    return Speech.STOMP
