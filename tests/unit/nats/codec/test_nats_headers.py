"""Header blocks: writing, reading, and the answers of JetStream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_stomp.nats.codec import (
    Headers,
    NatsError,
    NatsProtocolError,
    encode_headers,
    parse_headers,
)

TEXT = st.text(st.characters(codec="ascii", exclude_characters="\r\n:\x1c\x1d\x1e\x1f\x0b\x0c"))
NAMES = TEXT.map(lambda text: text.strip().encode()).filter(bool)


@given(st.dictionaries(NAMES, TEXT.map(lambda text: text.strip().encode())))
def test_header_block_round_trip(fields: dict[bytes, bytes]) -> None:
    assert parse_headers(encode_headers(fields)) == Headers(0, "", fields)


@pytest.mark.parametrize(
    ("block", "headers"),
    [
        (b"", Headers(0, "", {})),
        (b"NATS/1.0 503\r\n\r\n", Headers(503, "", {})),
        (
            b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 7\r\n\r\n",
            Headers(409, "Message Size Exceeds MaxBytes", {b"Nats-Pending-Messages": b"7"}),
        ),
        (b"NATS/1.0\r\na:1\r\na: 2\r\nb:x:y\r\n\r\n", Headers(0, "", {b"a": b"1", b"b": b"x:y"})),
    ],
)
def test_header_blocks_of_servers(block: bytes, headers: Headers) -> None:
    assert parse_headers(block) == headers


@pytest.mark.parametrize("block", [b"x", b"NATS/1.0", b"NATS/1.0\r\n", b"NATS/1.0\r\na\r\n\r\n"])
def test_malformed_header_blocks(block: bytes) -> None:
    with pytest.raises(NatsProtocolError):
        parse_headers(block)


@pytest.mark.parametrize("item", [(b"", b"x"), (b"a:", b"x"), (b"a", b"x\r\ny: z"), (b"a\n", b"")])
def test_invalid_frames_are_refused(item: tuple[bytes, bytes]) -> None:
    with pytest.raises(NatsError, match="cannot be a header"):
        encode_headers(dict([item]))
