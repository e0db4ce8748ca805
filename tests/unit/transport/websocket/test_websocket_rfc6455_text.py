"""RFC 6455 section 8.1, case by case: text is UTF-8 as a whole (section 6 of the Autobahn suite).

Text may become invalid only after valid parts were passed on, so a WebSocket fails as early as a
frame can be checked: a fragment when it is complete, a large frame as it arrives. A small frame is
checked when it is complete, which that suite calls "non-strict"; the RFC requires no more.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes import Dial
from tests.support.hostile import (
    BINARY,
    CONTINUATION,
    PING,
    TEXT,
    close_body,
    every_chop,
    fragments,
    hear,
    octets,
    open_session,
    send,
    ws,
)
from tests.support.hostile import dial as dial
from trio_stomp.transport import WebSocketCodec

MAX_WHOLE_BYTES = 8_191
"""The largest frame that is not handled in pieces."""

KOSME = "κόσμε".encode()
HELLO = "Hello-µ@ßöäüàá-UTF-8!!".encode()
SURROGATE = b"\xed\xa0\x80"

# 6.2, 6.5, 6.7, 6.9, 6.11, 6.22, 6.23
VALID = {
    "hello": HELLO,
    "kosme": KOSME,
    **{f"first-of-{n}": text for n, text in enumerate((b"\0", b"\xc2\x80", b"\xe0\xa0\x80",
                                                       b"\xf0\x90\x80\x80"), 1)},
    **{f"last-of-{n}": text for n, text in enumerate((b"\x7f", b"\xdf\xbf", b"\xef\xbf\xbf",
                                                      b"\xf4\x8f\xbf\xbf"), 1)},
    "before-surrogates": b"\xed\x9f\xbf",
    "behind-surrogates": b"\xee\x80\x80",
    "replacement": b"\xef\xbf\xbd",
    **{f"special-{point:x}": chr(point).encode() for point in (0xFFF9, 0xFFFA, 0xFFFB, 0xFFFC)},
    **{f"noncharacter-{point:x}": chr(point).encode()
       for plane in range(17) for point in (plane << 16 | 0xFFFE, plane << 16 | 0xFFFF)},
    "bom": b"\xef\xbb\xbf",
}  # fmt: skip

# 6.3, 6.4, 6.8, 6.10, 6.12-6.21
INVALID = {
    "surrogate-in-text": KOSME + SURROGATE + b"edited",
    "beyond-in-text": KOSME + b"\xf4\x90\x80\x80" + b"edited",
    "first-of-5": b"\xf8\x88\x80\x80\x80",
    "first-of-6": b"\xfc\x84\x80\x80\x80\x80",
    "last-of-4": b"\xf7\xbf\xbf\xbf",
    "last-of-5": b"\xfb\xbf\xbf\xbf\xbf",
    "last-of-6": b"\xfd\xbf\xbf\xbf\xbf\xbf",
    "one-beyond": b"\xf4\x90\x80\x80",
    **{f"continuations-{n}": (b"\x80\xbf" * 4)[:n] for n in range(1, 8)},
    "every-continuation": bytes(range(0x80, 0xC0)),
    **{f"lonely-{start:x}": bytes([start, 0x20]) for start in range(0xC0, 0xFE)},
    **{f"cut-{text.hex()}": text for text in (
        b"\xc0", b"\xe0\x80", b"\xf0\x80\x80", b"\xf8\x80\x80\x80", b"\xfc\x80\x80\x80\x80",
        b"\xdf", b"\xef\xbf", b"\xf7\xbf\xbf", b"\xfb\xbf\xbf\xbf", b"\xfd\xbf\xbf\xbf\xbf",
    )},
    "cut-all-together": b"\xdf\xef\xbf\xf7\xbf\xbf\xfb\xbf\xbf\xbf\xfd\xbf\xbf\xbf\xbf",
    "impossible-fe": b"\xfe",
    "impossible-ff": b"\xff",
    "impossible-four": b"\xfe\xfe\xff\xff",
    **{f"overlong-slash-{len(text)}": text for text in (
        b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xf8\x80\x80\x80\xaf",
        b"\xfc\x80\x80\x80\x80\xaf",
    )},
    **{f"overlong-most-{len(text)}": text for text in (
        b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf8\x87\xbf\xbf\xbf",
        b"\xfc\x83\xbf\xbf\xbf\xbf",
    )},
    **{f"overlong-nul-{len(text)}": text for text in (
        b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xf8\x80\x80\x80\x80",
        b"\xfc\x80\x80\x80\x80\x80",
    )},
    **{f"surrogate-{text.hex()}": text for text in (
        b"\xed\xa0\x80", b"\xed\xad\xbf", b"\xed\xae\x80", b"\xed\xaf\xbf", b"\xed\xb0\x80",
        b"\xed\xbe\x80", b"\xed\xbf\xbf",
    )},
    **{f"pair-{high.hex()}-{low.hex()}": high + low
       for high in (b"\xed\xa0\x80", b"\xed\xad\xbf", b"\xed\xae\x80", b"\xed\xaf\xbf")
       for low in (b"\xed\xb0\x80", b"\xed\xbf\xbf")},
}  # fmt: skip


def by_id(texts: dict[str, bytes]) -> list[object]:
    return [pytest.param(text, id=name) for name, text in texts.items()]


def all_ways(text: bytes) -> list[list[bytes]]:
    """Yield one frame; a fragment for each octet; two fragments, split at every octet."""
    ways = [[ws(TEXT, text)], fragments(TEXT, [*octets(text), b""])]
    return ways + [fragments(TEXT, [text[:cut], text[cut:]]) for cut in range(len(text) + 1)]


def test_the_table_agrees_with_python() -> None:
    """A typing error here would make the tests pass without testing anything."""
    for text in VALID.values():
        text.decode()
    for text in INVALID.values():
        with pytest.raises(UnicodeDecodeError):
            text.decode()


@pytest.mark.covers("W20")
@pytest.mark.parametrize("text", by_id(VALID))
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "inside"])
def test_valid_text_gets_through_in_every_way(text: bytes, inside: bool) -> None:
    whole = send(text.replace(b"\0", b"")) if inside else text
    for frames in all_ways(whole):
        for chunks in every_chop([*frames, ws(PING, b"still here")], 60):
            result = hear(chunks)
            assert (result.data, result.code) == (whole, None)
            assert result.pongs == (b"still here",)


@pytest.mark.covers("W20")
@pytest.mark.parametrize("text", by_id(INVALID))
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "inside"])
def test_invalid_text_is_closed_with_1007_in_every_way(text: bytes, inside: bool) -> None:
    whole = b"before" + text + b"\0behind" if inside else text
    for frames in all_ways(whole):
        for chunks in every_chop([*frames, ws(PING, b"still here")], 60):
            result = hear(chunks)
            assert (result.code, result.by_peer, result.pongs) == (1007, False, ())
            assert result.close is not None
            assert result.close[:2] == close_body(1007)
            assert b"behind" not in result.data


@pytest.mark.covers("W20", "X04")
@pytest.mark.parametrize("text", by_id(INVALID))
def test_data_that_is_not_text_may_be_binary(text: bytes) -> None:
    for opcode_frames in ([ws(BINARY, text)], fragments(BINARY, octets(text))):
        for chunks in every_chop(opcode_frames):
            result = hear(chunks)
            assert (result.data, result.code) == (text, None)


@pytest.mark.covers("W20")
@pytest.mark.parametrize("text", [KOSME, HELLO], ids=["kosme", "hello"])
def test_6_6_a_prefix_is_text_only_between_two_characters(text: bytes) -> None:
    for length in range(len(text) + 1):
        prefix = text[:length]
        is_whole = prefix.decode(errors="ignore").encode() == prefix
        for frames in all_ways(prefix):
            assert hear(frames).code == (None if is_whole else 1007), prefix


@pytest.mark.covers("W20")
@pytest.mark.parametrize("sizes", [(), (0,), (0, 0, 0)], ids=len)
def test_6_1_empty_text_is_text(sizes: tuple[int, ...]) -> None:
    frames = fragments(TEXT, [b""] * len(sizes)) if sizes else [ws(TEXT)]
    for chunks in every_chop([*frames, ws(TEXT, HELLO)]):
        assert hear(chunks).data == HELLO
    assert hear(fragments(TEXT, [b"", HELLO, b""])).data == HELLO


@pytest.mark.covers("W20")
def test_a_control_frame_between_two_halves_of_a_character_harms_nothing() -> None:
    for cut in range(1, len(KOSME)):
        first, last = fragments(TEXT, [KOSME[:cut], KOSME[cut:]])
        result = hear([first, ws(PING, b"\xff not text"), last])
        assert (result.data, result.code, result.pongs) == (KOSME, None, (b"\xff not text",))


# --- 6.4 as early as can be ---------------------------------------------------------------------

BAD_STARTS = {
    "beyond": b"\xf4\x90",
    "surrogate": SURROGATE,  # Python decides at the third octet
    "overlong": b"\xe0\x80",
    "continuation": b"\x80",
    "impossible": b"\xff",
}


@pytest.mark.covers("W20")
@pytest.mark.parametrize("bad", by_id(BAD_STARTS))
def test_6_4_1_fragments_fail_with_the_one_that_is_wrong(bad: bytes) -> None:
    """It fails at once, not at the end of the message, which may never come."""
    codec = WebSocketCodec(max_message_bytes=1000)
    assert codec.receive_data(ws(TEXT, KOSME, fin=False)) == KOSME
    assert codec.closed is None
    codec.receive_data(ws(CONTINUATION, bad, fin=False))
    assert codec.closed is not None
    assert codec.closed.code == 1007
    assert codec.take_replies()[2:4] == close_body(1007)
    assert codec.receive_data(ws(CONTINUATION, b"edited")) == b""


@pytest.mark.covers("W20")
@pytest.mark.parametrize("bad", by_id(BAD_STARTS))
def test_6_4_3_a_large_frame_fails_with_the_octet_that_is_wrong(bad: bytes) -> None:
    codec = WebSocketCodec(max_message_bytes=100_000)
    text = KOSME + b"x" * MAX_WHOLE_BYTES + bad + b"edited" * 1000
    frame = ws(TEXT, text)
    start = len(frame) - len(text)
    fault = text.index(bad)
    assert codec.receive_data(frame[: start + fault]) == text[:fault]
    assert codec.closed is None
    codec.receive_data(frame[start + fault : start + fault + len(bad)])
    assert codec.closed is not None
    assert codec.closed.code == 1007
    assert codec.receive_data(frame[start + fault + len(bad) :]) == b""


@pytest.mark.covers("W20")
def test_a_first_half_that_may_become_right_is_waited_for() -> None:
    codec = WebSocketCodec(max_message_bytes=1000)
    for text in (b"\xf4\x8f\xbf\xbf", b"\xed\x9f\xbf", b"\xe0\xa0\x80", b"\xc2\x80"):
        start, end = text[: (len(text) + 1) // 2], text[(len(text) + 1) // 2 :]
        data = b""
        for frame in fragments(TEXT, [start, end]):
            data += codec.receive_data(frame)
            assert codec.closed is None
        assert data == text


@given(st.binary(max_size=12), st.lists(st.integers(0, 12), max_size=3), st.booleans())
def test_any_octets_are_text_exactly_if_they_are_utf8(
    text: bytes, cuts: list[int], in_octets: bool
) -> None:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = [text[a:b] for a, b in pairwise(borders)]
    frames = b"".join(fragments(TEXT, parts))
    result = hear(octets(frames) if in_octets else [frames])
    try:
        text.decode()
    except UnicodeDecodeError:
        assert result.code == 1007
    else:
        assert (result.code, result.data) == (None, text)


# --- on a connection ----------------------------------------------------------------------------


@pytest.mark.covers("W20", "X05")
@pytest.mark.parametrize("name", ["surrogate-eda080", "overlong-slash-2", "one-beyond", "cut-df"])
async def test_invalid_text_ends_the_connection_and_invalid_binary_comes_back_as_binary(
    autojump_clock, dial: Dial, name: str
) -> None:
    for number, frames in enumerate(all_ways(send(INVALID[name]))[:3]):
        watcher, socket = await open_session(dial), await open_session(dial)
        await socket.send(ws(BINARY, send(INVALID[name])))
        await socket.until(lambda it: len(it.bodies) == 1)
        assert socket.frames[-1][0] == 0x82
        await socket.send(*frames, ws(TEXT, send(b"never")))
        await socket.until_end()
        assert socket.close_code == 1007
        await watcher.until(lambda it: len(it.bodies) == 1)
        await watcher.send(ws(PING, b"%d" % number))
        await watcher.until(lambda it: bool(it.pongs))
        assert watcher.bodies == [INVALID[name]]
        await watcher.stream.aclose()
