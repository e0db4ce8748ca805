"""Headers of a SUBSCRIBE to a stream."""

import pytest

from trio_stomp.base import MAX_INTEGER, ProtocolError
from trio_stomp.broker.headers import Start, StreamOptions, parse_stream_options

MAX_DELAY_MS = 24 * 3600 * 1000


def test_a_subscribe_that_says_nothing_of_streams_asks_for_none():
    options = parse_stream_options((("id", "0"), ("ack", "client")))
    assert options == StreamOptions()
    assert not options.is_given
    assert options is parse_stream_options(()), "one value for all of them"


@pytest.mark.parametrize(
    ("name", "text", "start", "value"),
    [
        ("x-stream-offset", "first", Start.FIRST, 0),
        ("x-stream-offset", " Last ", Start.LAST, 0),
        ("x-stream-offset", "next", Start.NEXT, 0),
        ("x-stream-offset", "17", Start.OFFSET, 17),
        ("x-stream-offset", "offset=17", Start.OFFSET, 17),
        ("x-stream-offset", "offset:17", Start.OFFSET, 17),
        ("x-stream-offset", "9" * 19, Start.OFFSET, MAX_INTEGER),
        ("x-stream-offset", "9" * 5000, Start.OFFSET, MAX_INTEGER),
        ("x-stream-offset", f"timestamp={'9' * 5000}.5", Start.TIME, MAX_INTEGER),
        ("last-message-id", f"b7.3.S-{'9' * 5000}", Start.OFFSET, MAX_INTEGER),
        ("x-stream-offset", "timestamp=1700000000", Start.TIME, 1_700_000_000_000),
        ("x-stream-offset", "timestamp: 1700000000.123", Start.TIME, 1_700_000_000_123),
        ("x-stream-offset", "timestamp=1700000000.1230001", Start.TIME, 1_700_000_000_124),
        ("from-seq", "0", Start.OFFSET, 0),
        ("from-seq", "5", Start.OFFSET, 5),
        ("from-seq", "-1", Start.NEXT, 0),
        ("last-message-id", "b7.3.S-41", Start.OFFSET, 42),
        ("last-message-id", "b7.3.S-0", Start.OFFSET, 1),
    ],
)
def test_forms_of_a_start(name, text, start, value):
    assert parse_stream_options(((name, text),)) == StreamOptions(start, value, is_given=True)


@pytest.mark.parametrize(("text", "offset"), [("b7.3.S-00", 0), ("b7.3.S-041", 41)])
def test_a_start_after_an_end_marker_is_its_offset(text, offset):
    assert parse_stream_options((("last-message-id", text),)).value == offset


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x-stream-offset", ""),
        ("x-stream-offset", "-1"),
        ("x-stream-offset", "newest"),
        ("x-stream-offset", "offset="),
        ("x-stream-offset", "offset=٣"),
        ("x-stream-offset", "timestamp=1e9"),
        ("x-stream-offset", "timestamp=yesterday"),
        ("from-seq", "-2"),
        ("from-seq", "first"),
        ("last-message-id", "b7.s-5"),  # of subscription 28, which reads no stream
        ("last-message-id", "41"),
        ("last-message-id", ""),
        ("x-stream-until", "-1"),
        ("x-stream-until", "end"),
        ("replay-delay", "-5"),
        ("replay-delay", str(MAX_DELAY_MS + 1)),
    ],
)
def test_bad_value_is_reported_with_its_header(name, text):
    with pytest.raises(ProtocolError, match=name) as caught:
        parse_stream_options(((name, text),))
    assert caught.value.code == "invalid-header-value"


def test_first_of_a_repeated_header_counts():
    headers = (
        ("x-stream-offset", "3"),
        ("x-stream-offset", "4"),
        ("from-seq", "5"),
        ("x-stream-until", "10"),
        ("x-stream-until", "11"),
        ("x-stream-epoch", "a"),
        ("x-stream-epoch", "b"),
    )
    assert parse_stream_options(headers) == StreamOptions(Start.OFFSET, 3, 10, "a", is_given=True)


def test_start_without_an_end_requests_the_whole_replay():
    result = parse_stream_options((("replay-delay", "250"),))
    assert result == StreamOptions(Start.FIRST, delay_ms=250, is_given=True)
    longest = parse_stream_options((("replay-delay", str(MAX_DELAY_MS)),))
    assert longest.delay_ms == MAX_DELAY_MS
    result = parse_stream_options((("replay-delay", "250"), ("from-seq", "-1")))
    assert result.start is Start.NEXT


def test_an_end_alone_leaves_the_start_at_the_next_message():
    result = parse_stream_options((("x-stream-until", "9"),))
    assert result == StreamOptions(Start.NEXT, until=9, is_given=True)


def test_an_end_beyond_all_offsets_is_never_reached():
    result = parse_stream_options((("x-stream-until", "9" * 5000),))
    assert result == StreamOptions(until=MAX_INTEGER, is_given=True)
