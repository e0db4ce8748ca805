"""Header blocks in a store are read as they were written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_stomp.base import RemoteError
from trio_stomp.broker.headers import decode_head, encode_head
from trio_stomp.frames import UNTIL_NUL, Head

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
NAMES = TEXT.filter(lambda name: name not in ("", "content-length", "receipt", "destination"))


@given(st.dictionaries(NAMES, TEXT, max_size=6), TEXT, st.sampled_from([UNTIL_NUL, 0, 7, 1 << 40]))
def test_header_block_round_trip(headers: dict[str, str], destination: str, length: int) -> None:
    pairs = (("destination", destination), *headers.items())
    head = decode_head(encode_head(Head("SEND", pairs, length, destination)))
    assert head.command == "SEND"
    assert head.destination == destination
    assert head.content_length == length
    assert tuple(pair for pair in head.headers if pair[0] != "content-length") == pairs


def test_it_is_lines_that_a_person_can_read() -> None:
    pairs = (("destination", "/queue/q"), ("content-length", "9"), ("a:b", "c\nd"))
    head = Head("SEND", pairs, 3, "/queue/q")
    assert encode_head(head) == b"destination:/queue/q\na\\cb:c\\nd\ncontent-length:3\n"


def test_no_later_limit_refuses_messages_accepted_before() -> None:
    pairs = tuple((f"name{number}", "x" * 10_000) for number in range(500))
    assert decode_head(encode_head(Head("SEND", pairs))).headers == pairs


def test_invalid_header_block_is_refused() -> None:
    with pytest.raises(RemoteError):
        decode_head(b"no colon\n")
