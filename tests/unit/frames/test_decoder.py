"""Bytes → frames: one table of streams however they are cut, limits, and linear work."""

import sys

import pytest
from _oracle.strategies import (
    ALL_RULES,
    ERROR_CODES,
    SMALL,
    VERSIONS,
    chunkings,
    cuts,
    frames_in,
    frames_of,
    naive_decode,
    outcome,
    split,
    streams,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.limits import Limit, id_of, limits_at
from trio_stomp.base import FrameError
from trio_stomp.frames import (
    DEDUP_HEADERS,
    OPENING,
    V1_0,
    V1_1,
    V1_2,
    AckRun,
    Frame,
    FrameDecoder,
    FrameLimits,
    FrameRun,
    HeadCache,
    HeaderRules,
    Headers,
    Side,
    _decoder,
)

LIMITS = FrameLimits()
PIECE_BYTES = _decoder.PIECE_BYTES
TO_A = ("destination", "/a")


def make_decoder(rules: HeaderRules = V1_2, limits: FrameLimits = LIMITS) -> FrameDecoder:
    return FrameDecoder(limits, HeadCache(), rules)


def held_memory(decoder: FrameDecoder) -> int:
    """Return the memory used by the incomplete frame, in bytes."""
    held = decoder._held
    return sum(map(sys.getsizeof, (held.start, *held._pieces)))


def send(body: bytes = b"", *headers: tuple[str, str], receipt: bytes | None = None) -> Frame:
    return Frame("SEND", (TO_A, *headers), body, receipt)


def length_header(size: int | str) -> tuple[str, str]:
    return "content-length", str(size)


def send_runs(decoder: FrameDecoder, data: bytes) -> list[FrameRun]:
    """Return the runs of ``data``, which has no run of plain ACKs."""
    runs: list[FrameRun] = []
    for run in decoder.receive_data(data):
        assert isinstance(run, FrameRun)
        runs.append(run)
    return runs


def error_of(data: bytes, rules: HeaderRules = V1_2, limits: FrameLimits = LIMITS) -> FrameError:
    """The error that ``data`` ends with, which must be the same however it is cut."""
    errors = []
    for chunks in chunkings(data):
        decoder = make_decoder(rules, limits)
        frames_of(decoder, chunks)
        assert decoder.error is not None, chunks
        errors.append(decoder.error)
    assert len({(error.code, error.receipt_id) for error in errors}) == 1
    return errors[0]


# One table of streams: the numbers they cover, the versions they hold for, bytes and frames.

OK: list[tuple[str, tuple[HeaderRules, ...], bytes, list[Frame]]] = [
    ("F01", VERSIONS, b"SEND\ndestination:/a\n\nhello\0", [send(b"hello")]),
    ("F01", ALL_RULES, b"DISCONNECT\n\n\0", [Frame("DISCONNECT", ())]),
    (
        "F01 F32",
        VERSIONS,
        b"SEND\ndestination:/a\n\none\0SEND\ndestination:/a\n\n\0DISCONNECT\nreceipt:7\n\n\0",
        [send(b"one"), send(), Frame("DISCONNECT", (), b"", b"7")],
    ),
    ("F01", VERSIONS, b"SEND\ndestination:/a\n\n\n\nx\n\n\0", [send(b"\n\nx\n\n")]),
    ("F02", (V1_0, V1_1), b"SEND\ndestination:/a\r\n\nx\0", [
        Frame("SEND", (("destination", "/a\r"),), b"x")
    ]),
    ("F02", (V1_0, V1_1), b"SEND\r\n\nx\0", [Frame("SEND\r", (), b"x")]),
    ("F02", (V1_0, V1_1), b"SEND\na\r:b\rc\n\n\r\n\0", [
        Frame("SEND", (("a\r", "b\rc"),), b"\r\n")
    ]),
    ("F03", (V1_2, OPENING), b"SEND\r\ndestination:/a\r\n\r\nx\r\n\r\n\0", [send(b"x\r\n\r\n")]),
    ("F03", (V1_2, OPENING), b"SEND\ndestination:/a\r\n\nx\0", [send(b"x")]),
    ("F03", (V1_2, OPENING), b"SEND\r\ndestination:/a\n\r\nx\0", [send(b"x")]),
    ("F03", (V1_2,), b"SEND\ndestination:/a\n\r\n\n\0", [send(b"\n")]),
    ("F03", (V1_2,), b"SEND\ndestination:/a\n\n\r\n\0", [send(b"\r\n")]),
    ("F03", (V1_2,), b"SEND\r\ndestination:/a\r\nreceipt:9\r\n\r\n\0", [send(receipt=b"9")]),
    ("F03", (V1_2,), b"SEND\r\nreceipt:9\r\ndestination:/a\r\n\n\0", [send(receipt=b"9")]),
    ("F05", ALL_RULES, b"\n\n\nSEND\ndestination:/a\n\n\0\n\n\n\n", [send()]),
    ("F05", (V1_2, OPENING), b"\r\n\n\r\nSEND\ndestination:/a\n\n\0\r\n\r\n", [send()]),
    ("F05", VERSIONS, b"ACK\nid:1\n\n\0\nACK\nid:1\n\n\0\n\nACK\nid:1\n\n\0", [
        Frame("ACK", (("id", "1"),))
    ] * 3),
    ("F06", ALL_RULES, b"\0\n\0\0\nSEND\ndestination:/a\n\n\0\0\0\n\0", [send()]),
    ("F26", VERSIONS, b"SEND\n\nbody\0DIAG\n\nstale\0", [
        Frame("SEND", (), b"body"), Frame("DIAG", (), b"stale")
    ]),
    ("F26", ALL_RULES, b"BEGIN\ntransaction:1\n\n\n\0ACK\nid:1\n\n\r\n\n\n\0", [
        Frame("BEGIN", (("transaction", "1"),), b"\n"),
        Frame("ACK", (("id", "1"),), b"\r\n\n\n"),
    ]),
    ("F26", (V1_0, OPENING), b"SUBSCRIBE\ndestination:/a\n\nbody\0DISCONNECT\n\n\0", [
        Frame("SUBSCRIBE", (TO_A,), b"body"), Frame("DISCONNECT", ())
    ]),
    ("F27", VERSIONS, b"SEND\ndestination:/a\ncontent-length:5\n\na\0b\0\n\0", [
        send(b"a\0b\0\n", length_header(5))
    ]),
    ("F27", VERSIONS, b"SEND\ndestination:/a\ncontent-length:0\n\n\0SEND\ndestination:/a\n\n\0", [
        send(b"", length_header(0)), send()
    ]),
    # Octets, not characters.
    ("F27", VERSIONS, "SEND\ndestination:/a\ncontent-length:4\n\n😀\0".encode(), [
        send("😀".encode(), length_header(4))
    ]),
    # A whole frame in the body is a body.
    ("F27", VERSIONS, b"SEND\ndestination:/a\ncontent-length:13\n\n\0ACK\nid:1\n\n\0\n\0", [
        send(b"\0ACK\nid:1\n\n\0\n", length_header(13))
    ]),
    ("F27 F36", VERSIONS, b"SEND\ndestination:/a\ncontent-length:2\ncontent-length:0\n\n\0\0\0", [
        send(b"\0\0", length_header(2))
    ]),
    ("F29", (V1_2,), b"SUBSCRIBE\ndestination:/a\ncontent-length:0\n\n\0", [
        Frame("SUBSCRIBE", (TO_A, length_header(0)))
    ]),
    ("F30", VERSIONS, b"ACK\ncontent-length:99\n\n\0ACK\ncontent-length:x\n\n\0", [
        Frame("ACK", (length_header(99),)), Frame("ACK", (length_header("x"),))
    ]),
    ("F31", VERSIONS, b"SEND\ndestination:/a\ncontent-length:0003\n\nabc\0", [
        send(b"abc", length_header("0003"))
    ]),
    ("F36", VERSIONS, b"SEND\ndestination:/a\ndestination:/b\nfoo:1\nfoo:2\n\n\0", [
        send(b"", ("foo", "1"))
    ]),
    ("F36", VERSIONS, b"SEND\nreceipt:1\ndestination:/a\nreceipt:2\n\n\0", [send(receipt=b"1")]),
    ("F36", (V1_1, V1_2), b"SEND\na\\cb:1\na\\cb:2\n\n\0", [Frame("SEND", (("a:b", "1"),))]),
]  # fmt: skip

OK_CASES = [
    pytest.param(rules, data, frames, id=f"{rules.name}-{i}", marks=pytest.mark.covers(*no.split()))
    for i, (no, versions, data, frames) in enumerate(OK)
    for rules in versions
]


@pytest.mark.parametrize(("rules", "data", "frames"), OK_CASES)
def test_frames_are_the_same_however_the_bytes_are_cut_and_whatever_is_cached(
    rules: HeaderRules, data: bytes, frames: list[Frame]
) -> None:
    filled = HeadCache()
    frames_of(FrameDecoder(LIMITS, filled, rules), [data])
    for chunks in chunkings(data):
        for cache in (HeadCache(), filled):
            decoder = FrameDecoder(LIMITS, cache, rules)
            assert frames_of(decoder, chunks) == frames, chunks
            assert decoder.error is None
            assert decoder.buffered_bytes == 0


# Streams that break a rule.

BAD: list[tuple[str, tuple[HeaderRules, ...], bytes, str, bytes | None]] = [
    ("F04", (V1_2, OPENING), b"SE\rND\n\n\0", "bare-carriage-return", None),
    ("F04", (V1_2, OPENING), b"SEND\na\rb:c\n\n\0", "bare-carriage-return", None),
    ("F04", (V1_2, OPENING), b"SEND\na:b\r\r\n\n\0", "bare-carriage-return", None),
    ("F04", (V1_2, OPENING), b"SEND\nreceipt:a\rb\n\n\0", "bare-carriage-return", None),
    ("F04", (V1_2,), b"SEND\nreceipt:1\na:b\rc\n\n\0", "bare-carriage-return", b"1"),
    ("F04", ALL_RULES, b"\n\rSEND\n\n\0", "bare-carriage-return", None),
    ("F04", ALL_RULES, b"\r\rSEND\n\n\0", "bare-carriage-return", None),
    ("F02", (V1_0, V1_1), b"SEND\na:b\n\r\nx\0", "missing-blank-line", None),
    ("F01", ALL_RULES, b"SEND\ndestination:/a\n\0", "missing-blank-line", None),
    ("F01", ALL_RULES, b"SEND\0" + b"x" * 40 + b"\n\n\0", "missing-blank-line", None),
    ("F01", ALL_RULES, b"SEND\na:b\0c\n\n\0", "missing-blank-line", None),
    ("F26 R06", (V1_1, V1_2), b"ACK\nreceipt:3\n\nx\0", "body-not-allowed", b"3"),
    ("F26", (V1_1, V1_2), b"SUBSCRIBE\ncontent-length:1\n\nx\0", "body-not-allowed", None),
    ("F26", (V1_1, V1_2), b"ACK\nid:1\n\n\0ACK\nid:1\n\nx\0", "body-not-allowed", None),
    ("F26", (V1_1, V1_2), b"ACK\nid:1\n\n\n\n\n\n\n\0", "body-not-allowed", None),
    ("F26", (V1_1, V1_2), b"BEGIN\ntransaction:1\n\n\nx", "body-not-allowed", None),
    ("F28 R06", VERSIONS, b"SEND\ncontent-length:2\nreceipt:4\n\nabc\0", "missing-nul", b"4"),
    ("F28", VERSIONS, b"SEND\ncontent-length:0\n\n\n\0", "missing-nul", None),
    ("F31", VERSIONS, b"SEND\ncontent-length:-1\n\n\0", "invalid-content-length", None),
    ("F31", VERSIONS, b"SEND\ncontent-length:+5\n\n12345\0", "invalid-content-length", None),
    ("F31", VERSIONS, b"SEND\ncontent-length:0x5\n\n12345\0", "invalid-content-length", None),
    ("F31", VERSIONS[1:], b"SEND\ncontent-length:5 \n\n12345\0", "invalid-content-length", None),
    ("F31", VERSIONS, b"SEND\ncontent-length:\n\n\0", "invalid-content-length", None),
    ("F31", VERSIONS, b"SEND\ncontent-length:1_0\n\n\0", "invalid-content-length", None),
    ("F31", VERSIONS, b"SEND\ncontent-length:5.0\n\n\0", "invalid-content-length", None),
    # Digits that are not ASCII: int() would take them.
    ("F31", VERSIONS, "SEND\ncontent-length:٥\n\n\0".encode(), "invalid-content-length", None),
    ("F31", VERSIONS, "SEND\ncontent-length:²\n\n\0".encode(), "invalid-content-length", None),
    ("F31", (V1_1, V1_2), b"SEND\ncontent-length: 5\n\n12345\0", "invalid-content-length", None),
    ("F31", VERSIONS, b"SEND\ncontent-length:" + b"9" * 18 + b"\n\n\0", "body-too-large", None),
    ("F31", VERSIONS, b"SEND\ncontent-length:" + b"9" * 99 + b"\n\n\0", "invalid-content-length",
     None),
    ("F31 R06", VERSIONS, b"SEND\nreceipt:6\ncontent-length:x\n\n\0", "invalid-content-length",
     b"6"),
    # Which of two lengths counts must not be left to chance (request smuggling).
    ("F36", VERSIONS, b"SEND\ncontent-length:x\ncontent-length:1\n\na\0", "invalid-content-length",
     None),
    ("F36", VERSIONS, b"SEND\ncontent-length:1\ncontent-length:3\n\nabc\0", "missing-nul", None),
    ("F41", ALL_RULES, b"\x01\x02", "invalid-command", None),
    ("F41", ALL_RULES, b"SEND\n\n\0\tSEND", "invalid-command", None),
    ("F41", ALL_RULES, b"\x16\x03\x01" + b"\x02" * 30, "invalid-command", None),
    ("F41", ALL_RULES, b"A" * 33, "invalid-command", None),
    ("F41", ALL_RULES, b"GET /a/path/that/is/long/enough HTTP/1.1\n\n\0", "invalid-command", None),
    ("F41", ALL_RULES, b"A" * 33 + b"\0", "invalid-command", None),
]  # fmt: skip

BAD_CASES = [
    pytest.param(rules, data, code, receipt, id=f"{rules.name}-{code}-{i}",
                 marks=pytest.mark.covers(*numbers.split()))
    for i, (numbers, versions, data, code, receipt) in enumerate(BAD)
    for rules in versions
]  # fmt: skip


@pytest.mark.parametrize(("rules", "data", "code", "receipt"), BAD_CASES)
def test_invalid_data_is_refused_however_the_bytes_are_split(
    rules: HeaderRules, data: bytes, code: str, receipt: bytes | None
) -> None:
    error = error_of(data, rules)
    assert (error.code, error.receipt_id) == (code, receipt)
    assert code in ERROR_CODES


@pytest.mark.covers("F41")
def test_a_command_has_32_bytes_at_most_and_more_are_refused_at_the_33rd() -> None:
    assert frames_of(make_decoder(), [b"A" * 32 + b"\n\n\0"]) == [Frame("A" * 32, ())]
    for chunks in chunkings(b"A" * 32):
        assert outcome(make_decoder(), chunks).code is None


def test_nothing_is_decoded_after_an_error() -> None:
    decoder = make_decoder()
    frames = frames_of(
        decoder, [b"SEND\n\na\0SEND\n:\n\n\0SEND\n\nb\0", b"SEND\n\nc\0", b"\0SEND\n\nd\0"]
    )
    assert [frame.body for frame in frames] == [b"a"]
    assert decoder.buffered_bytes == 0


def test_an_error_of_one_line_names_line_rule_and_option() -> None:
    error = error_of(b"SEND\nno-colon\n\n\0")
    assert "'no-colon'" in error.message
    assert "name:value" in error.message
    assert "max_body_bytes" in error_of(b"SEND\n\n" + b"x" * 21, limits=SMALL).message
    assert "line feed alone" in error_of(b"SEND\r\na:b\r\n\r\n\0", V1_1).message
    once, twice = (b"SEND\n" + b"content-length:1\n" * times + b"\nab\0" for times in (1, 2))
    assert "first one counts" not in error_of(once).message
    assert "first one counts" in error_of(twice).message


# Limits, at the limit and one to each side.


@pytest.mark.covers("F40")
@pytest.mark.parametrize("case", limits_at("decoder"), ids=id_of)
@pytest.mark.parametrize("rules", VERSIONS, ids=lambda rules: rules.name)
@pytest.mark.parametrize("eol", [b"\n", b"\r\n"])
def test_a_limit_however_the_bytes_are_cut(case: Limit, rules: HeaderRules, eol: bytes) -> None:
    """Line ends are in no line; a CR is, before 1.2, and counts in a block."""
    if eol != b"\n" and (rules is not V1_2 or case.name == "max_header_block_bytes"):
        return
    limits = case.frame_limits()
    for more in (-1, 0):
        for chunks in chunkings(case.act(case.most + more).replace(b"\n", eol)):
            result = outcome(make_decoder(rules, limits), chunks)
            assert (result.code, len(result.frames)) == (None, 1)
    error = error_of(case.act(case.most + 1).replace(b"\n", eol), rules, limits)
    assert (error.code, error.reason) == (case.code, case.reason)
    assert f"option {case.name})" in error.message


@pytest.mark.covers("F40")
@pytest.mark.parametrize(
    ("rules", "blank"),
    [*((rules, b"\n\n") for rules in ALL_RULES), (OPENING, b"\n\r\n"), (V1_2, b"\n\r\n")],
)
@pytest.mark.parametrize(("size", "is_allowed"), [(63, True), (64, True), (65, False), (66, False)])
def test_limit_of_a_header_block(
    rules: HeaderRules, blank: bytes, size: int, is_allowed: bool
) -> None:
    block = b"SEND\n" + b"a:xxxxxxxxxxxxxxxxx\n" * 2  # 45
    block += b"b:".ljust(size - len(block), b"x")
    limits = FrameLimits(max_headers=9, max_header_block_bytes=64)
    decoder = make_decoder(rules, limits)
    for chunks in chunkings(block + blank + b"\0"):
        result = outcome(make_decoder(rules, limits), chunks)
        assert result.code == (None if is_allowed else "headers-too-large")
        assert len(result.frames) == is_allowed
    decoder.receive_data(block)
    assert decoder.error is None  # It may end here.
    decoder.receive_data(b"x" * (limits.max_header_block_bytes - size + 2))
    assert decoder.error is None  # The last two may be half of a blank line, for all it knows.
    decoder.receive_data(b"x")
    assert decoder.error is not None


@pytest.mark.covers("F40")
def test_an_endless_header_block_is_cut_off() -> None:
    decoder = make_decoder(limits=SMALL)
    decoder.receive_data(b"SEND\n")
    while decoder.error is None:
        decoder.receive_data(b"a:bcdef\n")
        assert decoder.buffered_bytes < 64 + 8 + 3
    assert decoder.error.code == "headers-too-large"


@pytest.mark.covers("F40")
def test_the_limits_apply_to_cached_heads() -> None:
    cache = HeadCache()
    for data, code in (
        (b"SEND\na:1\nb:2\nc:3\n\n\0", None),
        (b"SEND\na:1\nb:2\nc:3\nreceipt:4\n\n\0", "too-many-headers"),
        (b"SEND\na:1\n\n\0", None),
        (b"SEND\na:1\nreceipt:" + b"x" * 13 + b"\n\n\0", "header-line-too-long"),
    ):
        assert outcome(FrameDecoder(SMALL, cache, V1_2), [data]).code == code


@pytest.mark.covers("F31")
def test_a_huge_content_length_takes_no_memory() -> None:
    decoder = make_decoder()
    head = b"SEND\ncontent-length:%d\n\n" % LIMITS.max_body_bytes
    assert decoder.receive_data(head) == []
    assert decoder.buffered_bytes == len(head)
    assert decoder._held.start.__sizeof__() < 4096


TOLD = b"SEND\ndestination:/a\ncontent-length:3\n"
ASKING = TOLD + b"receipt:r\n\nxyz\0"
REPEATS = b"".join(TOLD + b"\n" + body + b"\0" for body in (b"abc", b"\0\0\0", b"a\0\n", b"SEN"))


@pytest.mark.parametrize("before", [b"", ASKING])
@pytest.mark.parametrize(
    "behind", [b"", b"\n", b"\0", TOLD + b"\na\0c", TOLD + b"\nabcd", b"\n" + REPEATS, ASKING]
)
def test_frames_of_one_block_and_length_are_read_as_any_others(
    before: bytes, behind: bytes
) -> None:
    """They are compared with the first, and not looked at more closely."""
    data = before + REPEATS + behind
    expected = naive_decode(data, V1_2, LIMITS)
    assert len(expected.frames) >= 4
    for chunks in chunkings(data):
        assert outcome(make_decoder(), chunks) == expected


# The cache.


def test_frames_of_one_block_are_one_run() -> None:
    decoder = make_decoder()
    runs = send_runs(
        decoder,
        b"SEND\ndestination:/a\n\n1\0"
        b"SEND\ndestination:/a\nreceipt:r2\n\n2\0"
        b"SEND\nreceipt:r3\ndestination:/a\n\n3\0"
        b"SEND\ndestination:/b\n\n4\0"
        b"SEND\ndestination:/a\nreceipt:r5\n\n5\0",
    )
    assert [(run.head.destination, run.bodies, run.receipts) for run in runs] == [
        ("/a", [b"1", b"2", b"3"], [(2, b"r2"), (3, b"r3")]),
        ("/b", [b"4"], []),
        ("/a", [b"5"], [(1, b"r5")]),
    ]
    assert [frame.receipt for frame in runs[0].frames()] == [None, b"r2", b"r3"]
    assert runs[0].head is runs[2].head


@pytest.mark.parametrize("name", DEDUP_HEADERS)
def test_frames_with_an_id_for_duplicate_detection_are_runs_of_their_own(name: str) -> None:
    """They share the header block, but not the outcome: all but the first are duplicates."""
    line = name.encode() + b":1\n"
    plain, single = b"SEND\nd:/a\n\n1\0", b"SEND\nd:/a\n" + line + b"\n1\0"
    asking = b"SEND\nd:/a\n" + line + b"content-length:1\nreceipt:r\n\n1\0"
    like = b"SEND\nd:/a\nx-" + line + b"\n1\0"
    for data, counts in (
        (single * 3, [1] * 3),
        (asking * 2 + single, [1] * 3),
        (plain * 2 + single * 2 + plain * 3, [2, 1, 1, 3]),
        (like * 3, [3]),
    ):
        runs = send_runs(make_decoder(), data)
        assert [len(run.bodies) for run in runs] == counts
        assert b"".join(b"".join(run.bodies) for run in runs) == b"1" * sum(counts)
    again = send_runs(make_decoder(), single * 2)
    assert again[0].head is again[1].head


def test_a_block_that_ends_with_the_chunk_is_not_taken_for_whole() -> None:
    # The rest may be a longer destination, or a receipt, and not the blank line.
    for rules in VERSIONS:
        cache = HeadCache()
        first = b"SUBSCRIBE\nid:1\ndestination:/a"
        frames_of(FrameDecoder(LIMITS, cache, rules), [first + b"\n\n\0"])
        decoder = FrameDecoder(LIMITS, cache, rules)
        frames = frames_of(decoder, [first, b"b\nreceipt:1\n\n\0"])
        assert [(frame.get("destination"), frame.receipt) for frame in frames] == [("/ab", b"1")]


def test_a_second_receipt_is_not_remembered_as_no_receipt() -> None:
    cache = HeadCache()
    frames_of(FrameDecoder(LIMITS, cache, V1_2), [b"SEND\nreceipt:1\nreceipt:2\n\n\0"])
    decoder = FrameDecoder(LIMITS, cache, V1_2)
    assert frames_of(decoder, [b"SEND\nreceipt:2\n\n\0"]) == [Frame("SEND", (), b"", b"2")]
    assert frames_of(decoder, [b"SEND\r\nreceipt:3\r\n\r\n\0"]) == [Frame("SEND", (), b"", b"3")]


def test_the_cache_is_bounded_in_entries_and_in_their_size() -> None:
    cache = HeadCache(max_entries=3, max_block_bytes=30, max_block_headers=2)
    decoder = FrameDecoder(LIMITS, cache, V1_2)
    for i in range(10):
        frames_of(decoder, [b"SEND\nn:%d\n\n\0" % i])
        assert 1 <= len(cache.heads) <= 3
    cache.heads.clear()
    frames_of(decoder, [b"SEND\nn:" + b"x" * 24 + b"\n\n\0"])  # 31 bytes
    frames_of(decoder, [b"SEND\na:\nb:\nc:\n\n\0"])
    assert len(cache.heads) == 0
    frames_of(decoder, [b"SEND\nn:" + b"x" * 23 + b"\n\n\0"])
    frames_of(decoder, [b"SEND\na:\nb:\n\n\0"])
    assert len(cache.heads) == 2


def test_blocks_of_one_version_are_not_known_to_another() -> None:
    decoder = make_decoder(OPENING)
    data = b"CONNECT\nx:\\c\n\n\0CONNECT\nx:\\c\n\n\0"
    first = send_runs(decoder, data)
    decoder.use(V1_2, HeadCache())
    second = send_runs(decoder, b"")
    assert [run.head.get("x") for run in first + second] == ["\\c", ":"]


@pytest.mark.covers("F22")
def test_the_decoder_waits_after_connect_for_the_rules_of_the_session() -> None:
    for data in (b"CONNECT\n\n\0", b"STOMP\r\n\r\n\0\n"):
        decoder = make_decoder(OPENING)
        assert len(decoder.receive_data(data + b"SEND\na:\\c\n\nx\0")) == 1
        decoder.use(V1_1, HeadCache())
        assert frames_of(decoder, [b""]) == [Frame("SEND", (("a", ":"),), b"x")]


def test_rules_change_in_the_middle_of_a_frame_too() -> None:
    decoder = make_decoder(OPENING)
    decoder.receive_data(b"CONNECT\n\n\0SEND\na:\\c\n")
    decoder.use(V1_1, HeadCache())
    assert frames_of(decoder, [b"\nx", b"\0"]) == [Frame("SEND", (("a", ":"),), b"x")]


def test_a_look_for_more_without_more_changes_nothing() -> None:
    decoder = make_decoder()
    for piece in (b"SEND\ncontent-length:3\n", b"\nab", b"c"):
        assert decoder.receive_data(piece) == []
        assert decoder.receive_data(b"") == []
    assert frames_of(decoder, [b"\0"]) == [Frame("SEND", (length_header(3),), b"abc")]


# ACKs of 1.2 with an id only.

PLAIN = b"ACK\nid:b.1-%d\n\n\0"


@pytest.mark.parametrize(
    ("data", "numbers"),
    [
        pytest.param(b"\n".join(PLAIN % n for n in (3, 1, 2, 1, 1)), (3, 1, 2, 1, 1), id="order"),
        pytest.param(
            PLAIN % 1 + b"\r\n" + PLAIN % 2 + b"\0\n\0" + PLAIN % 3, (1, 2, 3), id="noise"
        ),
    ],
)
def test_plain_acks_are_one_run_in_order_whatever_stands_between(
    data: bytes, numbers: tuple[int, ...]
) -> None:
    (run,) = make_decoder().receive_data(data)
    assert isinstance(run, AckRun)
    assert run.ids == [b"b.1-%d" % number for number in numbers]


def test_the_order_of_sends_and_acks_is_kept() -> None:
    one = b"SEND\ndestination:/a\n\n%d\0"
    data = one % 1 + one % 2 + PLAIN % 1 + PLAIN % 2 + one % 3 + PLAIN % 3 + one % 4 + one % 5
    runs = make_decoder().receive_data(data)
    shown = [run.ids if isinstance(run, AckRun) else run.bodies for run in runs]
    assert shown == [[b"1", b"2"], [b"b.1-1", b"b.1-2"], [b"3"], [b"b.1-3"], [b"4", b"5"]]
    expected = [frame for run in runs for frame in frames_in(run)]
    for chunks in chunkings(data):
        assert frames_of(make_decoder(), chunks) == expected


def test_an_ack_after_another_kind_of_frame_begins_a_new_run() -> None:
    # Were the run before it still open, the second ACK would overtake the NACK.
    nack = b"NACK\nid:2\n\n\0"
    runs = make_decoder().receive_data(PLAIN % 1 + nack + PLAIN % 2)
    assert [isinstance(run, AckRun) for run in runs] == [True, False, True]


@pytest.mark.covers("F02", "F23")
@pytest.mark.parametrize("rules", [OPENING, V1_0, V1_1], ids=lambda rules: rules.name)
def test_only_1_2_has_the_short_way(rules: HeaderRules) -> None:
    runs = make_decoder(rules).receive_data(PLAIN % 1)
    assert [type(run) for run in runs] == [FrameRun]
    assert [frame.get("id") for frame in frames_in(runs[0])] == ["b.1-1"]


@pytest.mark.covers("F11", "F18", "F36", "R01")
@pytest.mark.parametrize(
    ("frame", "headers", "receipt"),
    [
        (b"ACK\nid:a\\cb\n\n\0", (("id", "a:b"),), None),
        (b"ACK\nid:a:b\n\n\0", (("id", "a:b"),), None),
        (b"ACK\nid:\n\n\0", (("id", ""),), None),
        (b"ACK\nid: 1\n\n\0", (("id", " 1"),), None),
        ("ACK\nid:é\n\n\0".encode(), (("id", "é"),), None),
        (b"ACK\nid:1\nreceipt:r\n\n\0", (("id", "1"),), b"r"),
        (b"ACK\nreceipt:r\nid:1\n\n\0", (("id", "1"),), b"r"),
        (b"ACK\nid:1\ntransaction:t\n\n\0", (("id", "1"), ("transaction", "t")), None),
        (b"ACK\nid:1\nid:2\n\n\0", (("id", "1"),), None),
        (b"ACK\nmessage-id:1\n\n\0", (("message-id", "1"),), None),
        (b"ACK\nid:1\ncontent-length:0\n\n\0", (("id", "1"), ("content-length", "0")), None),
        (b"ACK\r\nid:1\r\n\r\n\0", (("id", "1"),), None),
        (b"ACK\nid:1\n\r\n\0", (("id", "1"),), None),
        (b"ACK\nid:" + b"x" * 126 + b"\n\n\0", (("id", "x" * 126),), None),
    ],
)
def test_any_other_ack_takes_the_long_way(
    frame: bytes, headers: Headers, receipt: bytes | None
) -> None:
    runs = make_decoder().receive_data(frame)
    assert [type(run) for run in runs] == [FrameRun]
    for chunks in chunkings(frame):
        assert frames_of(make_decoder(), chunks) == [Frame("ACK", headers, b"", receipt)]


def test_the_short_way_knows_the_block_of_an_ack_that_came_the_long_way() -> None:
    # The block is in the cache now: then it is a run of frames, and means the same.
    decoder = make_decoder()
    decoder.receive_data(b"ACK\nreceipt:r\nid:1\n\n\0")
    assert frames_of(decoder, [b"ACK\nid:1\n\n\0" * 2]) == [Frame("ACK", (("id", "1"),))] * 2


@pytest.mark.parametrize(("size", "is_short"), [(1, True), (125, True), (126, False)])
def test_the_short_way_is_for_ids_of_up_to_125_bytes(size: int, is_short: bool) -> None:
    (run,) = make_decoder().receive_data(b"ACK\nid:%b\n\n\0" % (b"x" * size))
    assert isinstance(run, AckRun) is is_short


@pytest.mark.covers("F40")
@pytest.mark.parametrize("most", [20, 200])
def test_the_limit_of_a_line_holds_for_acks_plain_or_long(most: int) -> None:
    limits = FrameLimits(max_header_line_bytes=most)
    for size, code in ((most - 1, None), (most, None), (most + 1, "header-line-too-long")):
        for chunks in chunkings(b"ACK\n%b\n\n\0" % b"id:".ljust(size, b"x")):
            assert outcome(make_decoder(V1_2, limits), chunks).code == code


def test_plain_acks_take_no_place_in_the_cache() -> None:
    decoder = make_decoder()
    decoder.receive_data(b"".join(PLAIN % n for n in range(100)))
    assert decoder.cache.heads == {}


# A session that may be opened again.


@pytest.mark.covers("F22")
def test_decoder_waits_after_disconnect_if_a_session_may_follow() -> None:
    decoder = FrameDecoder(LIMITS, HeadCache(), V1_2, reopens=True)
    data = b"SEND\nx:\\c\n\n\0DISCONNECT\n\n\0CONNECT\nx:\\c\n\n\0SEND\nx:\\c\n\n\0"
    found = [frame for run in decoder.receive_data(data) for frame in frames_in(run)]
    assert found == [Frame("SEND", (("x", ":"),)), Frame("DISCONNECT", ())]
    decoder.use(OPENING, HeadCache())
    found = [frame for run in decoder.receive_data(b"") for frame in frames_in(run)]
    assert found == [Frame("CONNECT", (("x", "\\c"),))]
    decoder.use(V1_0, HeadCache())
    assert frames_of(decoder, [b""]) == [Frame("SEND", (("x", "\\c"),))]


def test_without_that_it_does_not_wait() -> None:
    frames = frames_of(make_decoder(), [b"DISCONNECT\n\n\0SEND\n\n\0"])
    assert [frame.command for frame in frames] == ["DISCONNECT", "SEND"]


# Any bytes.


@pytest.mark.covers("F01", "F27", "F32")
@settings(max_examples=1000)
@given(streams(), cuts(), st.sampled_from(ALL_RULES), st.sampled_from([LIMITS, SMALL]))
def test_any_bytes_come_to_the_same_as_with_a_naive_decoder_however_they_are_cut(
    data: bytes, places: list[int], rules: HeaderRules, limits: FrameLimits
) -> None:
    expected = naive_decode(data, rules, limits)
    assert expected.code is None or expected.code in ERROR_CODES
    cache = HeadCache()  # Filled by the first, used by the others.
    singles = [data[i : i + 1] for i in range(len(data))]
    for chunks in ([data], split(data, places), singles):
        assert outcome(FrameDecoder(limits, cache, rules), chunks) == expected


@settings(max_examples=200)
@given(streams(), cuts(), st.sampled_from(ALL_RULES), st.integers(1, 3))
def test_incomplete_frames_held_in_pieces_are_decoded_alike(
    data: bytes, places: list[int], rules: HeaderRules, piece_bytes: int
) -> None:
    expected = naive_decode(data, rules, LIMITS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_decoder, "PIECE_BYTES", piece_bytes)
        assert outcome(make_decoder(rules), split(data, places)) == expected


@given(st.lists(st.sampled_from([1, 100, PIECE_BYTES - 1, PIECE_BYTES, 70_000]), max_size=8))
def test_a_large_body_is_whole_whatever_it_comes_in(sizes: list[int]) -> None:
    body = bytes(range(256)) * (sum(sizes) // 256 + 1)
    data = b"SEND\ncontent-length:%d\n\n%b\0" % (len(body), body)
    decoder = make_decoder()
    at = 0
    for size in sizes:
        assert send_runs(decoder, data[at : at + size]) == []
        at += size
        assert decoder.buffered_bytes == at
        assert held_memory(decoder) <= 2 * at + 4096
    runs = send_runs(decoder, data[at:] + b"SEND\n\nnext\0")
    assert [run.bodies for run in runs] == [[body], [b"next"]]
    assert decoder.buffered_bytes == 0


def test_a_large_body_in_single_bytes_takes_little_more_than_these() -> None:
    decoder = make_decoder()
    decoder.receive_data(b"SEND\ncontent-length:200000\n\n" + b"x" * PIECE_BYTES)
    for _ in range(50_000):
        decoder.receive_data(b"x")
    assert held_memory(decoder) < 2 * decoder.buffered_bytes


def test_discarded_bytes_are_not_decoded() -> None:
    decoder = make_decoder()
    for _ in range(3):
        decoder.receive_data(b"SEND\ncontent-length:200000\n\n".ljust(PIECE_BYTES, b"x"))
    decoder.discard()
    assert decoder.buffered_bytes == 0
    assert frames_of(decoder, [b"SEND\n\n\0"]) != []


@given(st.binary(max_size=80), st.sampled_from(ALL_RULES))
def test_noise_is_refused_with_a_documented_code_or_awaited(
    data: bytes, rules: HeaderRules
) -> None:
    for chunks in ([data], [b"SEND\n\n\0" + data], [b"SEND\n" + data + b"\n\n\0"]):
        decoder = make_decoder(rules)
        frames_of(decoder, chunks)
        if decoder.error is not None:
            assert decoder.error.code in ERROR_CODES
            assert len(decoder.error.excerpt) <= 512


# Work: each byte is read a few times at most, for any input in any pieces.


class Counter:
    """Bytes that were looked at or copied."""

    touched = 0

    def note_find(self, begin: int, found: int, end: int) -> None:
        self.touched += max(0, (end if found < 0 else found) - begin)


class CountedBytes(bytes):
    """A chunk that counts what is done with it."""

    counter: Counter

    def find(self, what, start=0, end=None):  # type: ignore[no-untyped-def]
        stop = len(self) if end is None else min(end, len(self))
        found = super().find(what, start, stop)
        self.counter.note_find(start, found, stop)
        return found

    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        piece = super().__getitem__(key)
        self.counter.touched += len(piece) if isinstance(piece, bytes) else 1
        return piece


class CountedBuffer(bytearray):
    """A buffer of an incomplete frame that counts searched bytes."""

    counter: Counter

    def find(self, what, start=0, end=None):  # type: ignore[no-untyped-def]
        found = super().find(what, start)
        self.counter.note_find(start, found, len(self))
        return found


class CountedDecoder(FrameDecoder):
    """A decoder that counts the bytes it touches."""

    def __init__(self, rules: HeaderRules) -> None:
        super().__init__(LIMITS, HeadCache(), rules)
        self.counter = Counter()
        buffer = CountedBuffer()
        buffer.counter = self.counter
        self._held.start = buffer
        self.decodes = 0

    def _decode(self, data, runs, left):  # type: ignore[no-untyped-def]
        counted = CountedBytes(data)
        counted.counter = self.counter
        self.counter.touched += len(data)
        self.decodes += 1
        return super()._decode(counted, runs, left)


MIB = b"x" * (1 << 20)
HEADERS = b"".join(b"%d:%b\n" % (n, b"v" * 400) for n in range(150))
SMALL_FRAME = b"SEND\ndestination:/a\n\nbody\0"
MANY = 2000
MOST = 30
"""Looks at a byte, three patterns at once; work that is not linear is far beyond."""


def crlf(frame: bytes) -> bytes:
    return frame.replace(b"\n", b"\r\n")


def numbered(frame: bytes) -> bytes:
    return b"".join(frame % number for number in range(MANY))


WORK = {
    "body-by-nul": (b"SEND\n\n" + MIB + b"\0", 1024, V1_2),
    "body-by-length": (b"SEND\ncontent-length:%d\n\n" % len(MIB) + MIB + b"\0", 1024, V1_2),
    "body-of-line-feeds": (b"SEND\n\n" + b"\n\r\n" * (1 << 16) + b"\0", 100, V1_2),
    "header-block-by-byte": (b"SEND\n" + HEADERS + b"\n\0", 1, V1_2),
    "crlf-header-block-by-byte": (crlf(b"SEND\n" + HEADERS + b"\n") + b"\0", 1, V1_2),
    "length-by-byte": (b"SEND\ncontent-length:9\n" + HEADERS + b"\n" + b"\0" * 10, 1, V1_2),
    "small-frames": (SMALL_FRAME * MANY, 1 << 20, V1_2),
    "small-frames-by-byte": (SMALL_FRAME * MANY, 1, V1_2),
    "crlf-small-frames": (crlf(SMALL_FRAME) * MANY, 1 << 20, V1_2),
    "crlf-unlike-frames": (crlf(numbered(b"SEND\nn:%d\n\n\0")), 1 << 20, V1_2),
    "crlf-frames-before-one-blank-line": (crlf(SMALL_FRAME) * MANY + SMALL_FRAME, 1 << 20, V1_2),
    "mixed-small-frames": ((SMALL_FRAME + crlf(SMALL_FRAME)) * MANY, 1 << 20, V1_2),
    "receipts": (numbered(b"SEND\nreceipt:%d\n\n\0"), 1 << 20, V1_2),
    "acks": (numbered(b"ACK\nid:b.1-%d\n\n\0"), 1 << 20, V1_2),
    "acks-by-byte": (numbered(b"ACK\nid:b.1-%d\n\n\0"), 1, V1_2),
    "acks-that-are-not-plain": (numbered(b"ACK\nid:%d\\c\n\n\0"), 1 << 20, V1_2),
    "acks-between-sends": ((SMALL_FRAME + b"ACK\nid:1\n\n\0") * MANY, 1 << 20, V1_2),
    "noise": (b"\n\0\r\n" * (1 << 16), 1 << 20, V1_2),
    "noise-by-byte": (b"\n\0\r\n" * MANY, 1, V1_2),
    # Three bytes that end a block in 1.2 only must not have it looked through each time.
    "line-ends-of-another-version-1.0": (b"SEND\n" + b"\r\n" * 5000, 2, V1_0),
    "line-ends-of-another-version-1.1": (b"SEND\n" + b"\r\n" * 5000, 2, V1_1),
    "before-connect": (crlf(b"DIAG\n\nstale\0") * MANY, 1 << 20, OPENING),
}


@pytest.mark.parametrize("case", WORK)
def test_work_is_linear(case: str) -> None:
    data, size, rules = WORK[case]
    decoder = CountedDecoder(rules)
    for place in range(0, len(data), size):
        decoder.receive_data(data[place : place + size])
    assert decoder.error is None
    assert decoder.counter.touched / len(data) < MOST


def test_the_headers_are_parsed_a_bounded_number_of_times() -> None:
    # A body that comes in crumbs: the head is not looked at again for each of them.
    decoder = CountedDecoder(V1_2)
    data = b"SEND\ncontent-length:4000\n" + HEADERS + b"\n" + b"\0" * 4000 + b"\0"
    frames = frames_of(decoder, [data[i : i + 1] for i in range(len(data))])
    assert [len(frame.body) for frame in frames] == [4000]
    assert decoder.decodes <= 4


@pytest.mark.covers("F38")
def test_a_value_of_the_head_is_the_first_of_its_name() -> None:
    (run,) = send_runs(make_decoder(), b"SEND\nb:1\na:2\nb:3\nreceipt:x\n\n\0")
    headers: Headers = (("b", "1"), ("a", "2"))
    assert run.head.headers == headers
    assert (run.head.get("b"), run.head.get("receipt")) == ("1", None)
    (frame,) = run.frames()
    assert (frame.get("b"), frame.get("c")) == ("1", None)


# --- bounded work ---------------------------------------------------------------------------------


def test_decoding_stops_when_its_work_is_done_and_continues() -> None:
    frames = [b"SEND\ndestination:/topic/%d\n\nbody\0" % number for number in range(50)]
    decoder = make_decoder()
    runs = decoder.receive_data(b"".join(frames) + b"SEND\n", 10 * (len(frames[0]) - 5 + 32))
    counts = [len(runs)]
    assert 9 <= counts[0] <= 11
    while decoder.has_more:
        more = decoder.receive_data(b"", 500)
        counts.append(len(more))
        runs += more
    heads = [run.head for run in runs if isinstance(run, FrameRun)]
    assert [head.get("destination") for head in heads] == [f"/topic/{n}" for n in range(50)]
    assert max(counts[1:]) < 11
    assert decoder.buffered_bytes == len(b"SEND\n")


def test_frames_that_continue_a_run_are_no_work() -> None:
    decoder = make_decoder()
    (run,) = decoder.receive_data(b"SEND\ndestination:/a\n\nbody\0" * 2000, 64)
    assert isinstance(run, FrameRun)
    assert len(run.bodies) == 2000
    assert not decoder.has_more


def test_each_receipt_is_work() -> None:
    decoder = make_decoder()
    frames = [b"SEND\ndestination:/a\nreceipt:%d\n\n\0" % number for number in range(50)]
    (run,) = decoder.receive_data(b"".join(frames), 10 * len(frames[-1]))
    assert isinstance(run, FrameRun)
    assert 8 <= len(run.bodies) <= 12
    assert decoder.has_more


# --- whose frames they are ------------------------------------------------------------------------


@pytest.mark.parametrize("side", [Side.SERVER, Side.EITHER])
def test_every_frame_of_a_server_may_have_a_body_by_length(side: Side) -> None:
    data = b"MESSAGE\ncontent-length:3\n\na\0b\0"
    for chunks in chunkings(data):
        decoder = FrameDecoder(LIMITS, HeadCache(), V1_2, side=side)
        (frame,) = frames_of(decoder, chunks)
        assert (frame.command, frame.body) == ("MESSAGE", b"a\0b")
    assert frames_of(make_decoder(), [data])[0].body == b"a"


@pytest.mark.parametrize("side", [Side.SERVER, Side.EITHER])
def test_an_error_quotes_the_command_that_came(side: Side) -> None:
    decoder = FrameDecoder(LIMITS, HeadCache(), V1_2, side=side)
    assert decoder.receive_data(b"MESSAGE\nno colon\n\n\0") == []
    assert decoder.error is not None
    assert decoder.error.excerpt == b"MESSAGE\nno colon"


def test_receipt_is_a_header_only_where_it_may_be_anybodys() -> None:
    data = b"SEND\nreceipt:1\na:2\n\n\0"
    for side, headers, receipt in (
        (Side.CLIENT, (("a", "2"),), b"1"),
        (Side.SERVER, (("a", "2"),), None),
        (Side.EITHER, (("receipt", "1"), ("a", "2")), None),
    ):
        decoder = FrameDecoder(LIMITS, HeadCache(), V1_2, side=side)
        assert frames_of(decoder, [data]) == [Frame("SEND", headers, b"", receipt)]


def test_it_stops_where_the_version_of_its_side_changes() -> None:
    data = b"CONNECTED\n\n\0CONNECT\n\n\0ACK\nid:1\n\n\0"
    for side, frames in ((Side.CLIENT, 2), (Side.SERVER, 1), (Side.EITHER, 3)):
        decoder = FrameDecoder(LIMITS, HeadCache(), OPENING, side=side)
        runs = decoder.receive_data(data)
        assert sum(len(frames_in(run)) for run in runs) == frames


def test_buffer_is_reused_up_to_a_size() -> None:
    decoder = FrameDecoder(LIMITS, HeadCache(), V1_2, side=Side.SERVER)
    assert decoder.reclaim(9) == b""
    decoder.receive_data(b"MESSAGE\na")
    assert decoder.reclaim(8) == b""
    assert decoder.reclaim(9) == b"MESSAGE\na"
    assert decoder.buffered_bytes == 0
    assert frames_of(decoder, [b"RECEIPT\n\n\0"]) == [Frame("RECEIPT", ())]
