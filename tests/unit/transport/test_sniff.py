"""Detection of the protocol from the first bytes of a connection."""

import pytest

from trio_stomp.transport import Speech, sniff

VERBS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT")
COMMANDS = ("CONNECT", "STOMP", "SEND", "SUBSCRIBE", "DISCONNECT", "DIAG", "UNSUBSCRIBE", "ACK")


def decided_by(data: bytes) -> tuple[Speech, int]:
    """Feed ``data`` by bytes; return its protocol and the number of bytes that decided it."""
    for length in range(len(data) + 1):
        speech = sniff(data[:length])
        if speech is not None:
            for longer in range(length, len(data) + 1):
                assert sniff(data[:longer]) is speech  # later bytes change nothing
            return speech, length
    raise AssertionError(f"{data!r} is never decided")


@pytest.mark.covers("X12")
@pytest.mark.parametrize("verb", VERBS)
def test_a_request_line_is_recognised_as_http(verb: str) -> None:
    speech, _ = decided_by(f"{verb} /ws HTTP/1.1\r\n".encode())
    assert speech is Speech.HTTP


@pytest.mark.covers("X11", "X12")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_command_line_is_recognised_as_stomp(command: str, line_end: str) -> None:
    speech, _ = decided_by(f"{command}{line_end}accept-version:1.2".encode())
    assert speech is Speech.STOMP


@pytest.mark.covers("X11")
def test_connect_is_decided_by_the_byte_after_it() -> None:
    assert sniff(b"CONNECT") is None
    assert decided_by(b"CONNECT\n") == (Speech.STOMP, 8)
    assert decided_by(b"CONNECT\r") == (Speech.STOMP, 8)
    assert decided_by(b"CONNECT ") == (Speech.HTTP, 8)


@pytest.mark.covers("X12")
def test_tls_is_decided_by_one_byte() -> None:
    assert decided_by(b"\x16\x03\x01\x02\x00") == (Speech.TLS, 1)


@pytest.mark.covers("X12")
@pytest.mark.parametrize("start", [b"\n", b"\r\n", b"\0", b"{", b"\xff", b"x", b"get /", b"GETTER"])
def test_everything_else_is_for_the_stomp_decoder(start: bytes) -> None:
    assert decided_by(start)[0] is Speech.STOMP


def test_no_bytes_decide_nothing() -> None:
    assert sniff(b"") is None


@pytest.mark.parametrize("first", range(256))
def test_at_most_eight_bytes_are_needed(first: int) -> None:
    for rest in (b"ONNECT x", b"ELETE xx", b"PTIONS x", b"\0\0\0\0\0\0\0\0"):
        assert sniff((bytes([first]) + rest)[:8]) is not None
