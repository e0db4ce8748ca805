"""Frames → bytes: whole frames, and the two halves of a MESSAGE."""

import pytest
from _oracle.strategies import VERSIONS, frames_of, header_lists, read_server_frames
from hypothesis import given
from hypothesis import strategies as st

from trio_stomp.frames import (
    OPENING,
    V1_0,
    V1_1,
    V1_2,
    FrameDecoder,
    FrameLimits,
    FrameRun,
    Head,
    HeadCache,
    HeaderRules,
    Headers,
    encode_frame,
    encode_receipt,
    message_blocks,
    message_tails,
    redelivered_head,
    subscription_prefix,
)


def run_of(wire: bytes, rules: HeaderRules = V1_2) -> FrameRun:
    """The one run that the frames in ``wire`` are."""
    decoder = FrameDecoder(FrameLimits(), HeadCache(), rules)
    (run,) = decoder.receive_data(wire)
    assert decoder.error is None
    assert isinstance(run, FrameRun)
    return run


def messages(run: FrameRun, reader: HeaderRules, first: int = 0, prefix: bytes = b"") -> bytes:
    """Return the messages of a run as a subscriber receives them."""
    block = message_blocks(run.head)[VERSIONS.index(reader)]
    prefix = prefix or subscription_prefix("s", "t", reader)
    return prefix.join(message_tails(run.head, block, run.bodies, first))


def passed_on(headers: bytes, reader: HeaderRules, sender: HeaderRules = V1_2) -> Headers:
    """The headers of a SEND that its MESSAGE has beside those of the broker's own."""
    run = run_of(b"SEND\ndestination:/a\n" + headers + b"\n\0", sender)
    (frame,) = read_server_frames(messages(run, reader), reader)
    assert [name for name, _ in frame.headers[:3]] == ["subscription", "message-id", "destination"]
    return frame.headers[3:]


# Whole frames.


@pytest.mark.parametrize(
    ("command", "headers", "rules", "body", "wire"),
    [
        ("RECEIPT", [("receipt-id", "1")], V1_2, b"", b"RECEIPT\nreceipt-id:1\n\n\0\n"),
        ("ERROR", [("a", "b:c")], V1_2, b"x", b"ERROR\na:b\\cc\ncontent-length:1\n\nx\0\n"),
        ("ERROR", [("a:b", "\r\n\\")], V1_2, b"", b"ERROR\na\\cb:\\r\\n\\\\\n\n\0\n"),
        ("ERROR", [("a:b", "\r\n\\")], V1_1, b"", b"ERROR\na\\cb:\r\\n\\\\\n\n\0\n"),
        ("ERROR", [("a", "b:\\")], V1_0, b"", b"ERROR\na:b:\\\n\n\0\n"),
        ("CONNECTED", [("a", "b:\\")], OPENING, b"", b"CONNECTED\na:b:\\\n\n\0\n"),
        ("DIAG", [], V1_2, "😀\0".encode(), "DIAG\ncontent-length:5\n\n😀\0\0\n".encode()),
        # An empty value is sent in 1.1 and 1.2 only.
        ("X", [("a", ""), ("b", "1")], V1_0, b"", b"X\nb:1\n\n\0\n"),
        ("X", [("a", ""), ("b", "1")], V1_1, b"", b"X\na:\nb:1\n\n\0\n"),
        ("X", [("a", ""), ("b", "1")], V1_2, b"", b"X\na:\nb:1\n\n\0\n"),
    ],
)  # fmt: skip
@pytest.mark.covers("F01", "F14", "F21", "F33")
def test_a_frame_as_it_is_sent(
    command: str, headers: list[tuple[str, str]], rules: HeaderRules, body: bytes, wire: bytes
) -> None:
    assert encode_frame(command, headers, rules, body) == wire


INJECTIONS = ["x\n\n\0SEND\n\n\0", "x\nmessage-id:1", "x\rmessage-id:1", "x\0", "x\r\n\r\n"]


@pytest.mark.parametrize("text", INJECTIONS)
@pytest.mark.parametrize("rules", [*VERSIONS, OPENING], ids=lambda rules: rules.name)
def test_no_text_breaks_out_of_its_header(rules: HeaderRules, text: str) -> None:
    # F24, but for the count of what is dropped.
    wire = encode_frame("MESSAGE", [("a", text), (text, "b"), ("c", "d")], rules)
    assert wire.count(b"\0") == 1
    assert wire.count(b"\n\n") == 1
    assert [line for line in wire.split(b"\n") if line.startswith((b"SEND", b"message-id"))] == []
    assert b"\nc:d\n\n\0\n" in wire
    if rules in (V1_0, OPENING):
        assert wire == b"MESSAGE\nc:d\n\n\0\n"


@pytest.mark.parametrize("rules", [V1_0, OPENING], ids=lambda rules: rules.name)
def test_a_name_with_a_colon_becomes_no_other_header_of_a_version_without_escapes(
    rules: HeaderRules,
) -> None:
    wire = encode_frame("X", [("content-length:0", "1"), ("a", "b:c")], rules)
    assert wire == b"X\na:b:c\n\n\0\n"
    assert passed_on(b"content-length\\c5:x\na:b\n", V1_0) == (("a", "b"),)
    assert passed_on(b"content-length\\c5:x\n", V1_1) == (("content-length:5", "x"),)


def test_a_receipt_may_report_the_outcome_of_the_frame() -> None:
    wire = encode_receipt(b"7", b"matched:2\nstored:memory\n")
    assert wire == b"RECEIPT\nreceipt-id:7\nmatched:2\nstored:memory\n\n\0\n"


# The front half of a MESSAGE.


@pytest.mark.parametrize(
    ("identity", "rules", "prefix"),
    [
        ("s-1", V1_2, b"MESSAGE\nsubscription:s-1\nmessage-id:b.2-"),
        ("s:1\r", V1_2, b"MESSAGE\nsubscription:s\\c1\\r\nmessage-id:b.2-"),
        ("s:1\r", V1_1, b"MESSAGE\nsubscription:s\\c1\r\nmessage-id:b.2-"),
        ("s:1", V1_0, b"MESSAGE\nsubscription:s:1\nmessage-id:b.2-"),
        ("", V1_2, b"MESSAGE\nsubscription:\nmessage-id:b.2-"),
        ("", V1_0, b"MESSAGE\nmessage-id:b.2-"),
        (None, V1_0, b"MESSAGE\nmessage-id:b.2-"),
    ],
)
def test_the_front_half_of_a_message(
    identity: str | None, rules: HeaderRules, prefix: bytes
) -> None:
    assert subscription_prefix(identity, "b.2", rules) == prefix


@pytest.mark.covers("A04")
def test_the_front_half_may_lead_with_another_header() -> None:
    prefix = subscription_prefix("s", "b.2", V1_2, id_header=b"ack")
    assert prefix == b"MESSAGE\nsubscription:s\nack:b.2-"
    assert subscription_prefix(None, "b.2", V1_0, id_header=b"ack") == b"MESSAGE\nack:b.2-"


# The back half.


@pytest.mark.covers("F33", "F34", "F35")
@pytest.mark.parametrize("length", [b"", b"content-length:%d\n"])
@pytest.mark.parametrize("body", [b"x", b"\xff\xfe", "😀".encode(), b"\n", b"a\r\n\r\nb"])
def test_a_body_arrives_octet_by_octet_with_its_length(length: bytes, body: bytes) -> None:
    reported = length % len(body) if length else b""
    run = run_of(b"SEND\ndestination:/a\ncontent-type:text/x\n" + reported + b"\n" + body + b"\0")
    for reader in VERSIONS:
        assert messages(run, reader) == (
            b"MESSAGE\nsubscription:s\nmessage-id:t-0\ndestination:/a\ncontent-type:text/x\n"
            b"content-length:%d\n\n%b\0\n" % (len(body), body)
        )


@pytest.mark.covers("F34")
def test_no_content_type_is_invented() -> None:
    for reader in VERSIONS:
        assert passed_on(b"", reader) == ()
        assert passed_on(b"content-type:a/b\n", reader) == (("content-type", "a/b"),)


@pytest.mark.parametrize("length", [b"", b"content-length:0\n"])
def test_an_empty_body_has_no_length(length: bytes) -> None:
    run = run_of(b"SEND\ndestination:/a\n" + length + b"\n\0")
    for reader in VERSIONS:
        assert messages(run, reader).endswith(b"\ndestination:/a\n\n\0\n")


def test_a_run_is_counted_on() -> None:
    run = run_of(b"".join(b"SEND\ndestination:/a\n\n%b\0" % body for body in (b"1", b"", b"3")))
    frames = read_server_frames(messages(run, V1_2, first=98), V1_2)
    assert [frame.get("message-id") for frame in frames] == ["t-98", "t-99", "t-100"]
    assert [frame.body for frame in frames] == [b"1", b"", b"3"]
    result = run_of(b"SEND\ndestination:/a\ncontent-length:1\n\n1\0" * 2)
    frames = read_server_frames(messages(result, V1_2, first=9), V1_2)
    assert [frame.get("message-id") for frame in frames] == ["t-9", "t-10"]


@pytest.mark.covers("F37", "F39")
@pytest.mark.parametrize("reader", VERSIONS, ids=lambda rules: rules.name)
def test_headers_of_this_hop_and_of_the_broker_are_not_passed_on(reader: HeaderRules) -> None:
    stamps = (
        b"message-id:evil\nsubscription:evil\nack:evil\nredelivered:true\ndelivery-count:9\n"
        b"receipt:1\nreceipt:2\ntransaction:t\ndestination:/evil\ncontent-length:0\n"
    )
    assert passed_on(stamps + b"foo:bar\n", reader) == (("foo", "bar"),)
    made_here = Head("SEND", (("receipt", "1"), ("foo", "bar")), 0, "/a")
    assert message_blocks(made_here) == (b"\ndestination:/a\nfoo:bar\n\n",) * 3


@pytest.mark.covers("F38")
def test_headers_are_passed_on_in_order_and_escaped_for_the_reader() -> None:
    headers = b"z:1\na\\cb:x\\cy\nA:2\nlf:a\\nb\ncr:a\\rb\nempty:\nb: padded \n"
    run = run_of(b"SEND\ndestination:/a\n" + headers + b"\n\0")
    assert message_blocks(run.head) == (
        b"\ndestination:/a\nz:1\nA:2\nb: padded \n",
        b"\ndestination:/a\nz:1\na\\cb:x\\cy\nA:2\nlf:a\\nb\ncr:a\rb\nempty:\nb: padded \n",
        b"\ndestination:/a\nz:1\na\\cb:x\\cy\nA:2\nlf:a\\nb\ncr:a\\rb\nempty:\nb: padded \n",
    )


@pytest.mark.covers("F25")
def test_a_carriage_return_of_a_1_1_sender_reaches_versions_that_can_carry_it() -> None:
    for reader, expected in ((V1_0, ()), (V1_1, (("a", "b\r"),)), (V1_2, (("a", "b\r"),))):
        assert passed_on(b"a:b\r\n", reader, V1_1) == expected


def test_a_message_always_has_a_destination() -> None:
    run = run_of(b"SEND\ndestination:/a\\nb\\rc\n\n\0")
    for reader, expected in ((V1_0, "/a?b?c"), (V1_1, "/a\nb\rc"), (V1_2, "/a\nb\rc")):
        (frame,) = read_server_frames(messages(run, reader), reader)
        assert frame.get("destination") == expected


def same(blocks: tuple[bytes, ...], others: tuple[bytes, ...]) -> bool:
    """Return whether blocks are identical objects. Compiled code makes a new tuple."""
    return all(one is other for one, other in zip(blocks, others, strict=True))


def test_blocks_are_made_once_and_are_one_where_they_are_alike() -> None:
    plain = Head("SEND", (("destination", "/a"), ("b", "c")), destination="/a")
    blocks = message_blocks(plain)
    assert blocks[0] is blocks[1] is blocks[2]
    assert same(message_blocks(plain), blocks)
    special = message_blocks(Head("SEND", (("b", "c:d"),), destination="/a"))
    assert special == (
        b"\ndestination:/a\nb:c:d\n",
        b"\ndestination:/a\nb:c\\cd\n",
        b"\ndestination:/a\nb:c\\cd\n",
    )


@pytest.mark.covers("A15", "F37")
@pytest.mark.parametrize("reader", VERSIONS, ids=lambda rules: rules.name)
def test_a_head_of_a_redelivered_message_has_redelivered_and_count(reader: HeaderRules) -> None:
    data = b"SEND\ndestination:/a\nredelivered:evil\ncontent-length:3\nx:a\\cb\n\na\0b\0"
    run = run_of(data)
    blocks = message_blocks(run.head)
    again = FrameRun(redelivered_head(run.head, 3), run.bodies, [])
    (frame,) = read_server_frames(messages(again, reader), reader)
    assert frame.headers[1:] == (
        ("message-id", "t-0"),
        ("redelivered", "true"),
        ("delivery-count", "3"),
        ("destination", "/a"),
        ("x", "a:b"),
        ("content-length", "3"),
    )
    assert frame.body == b"a\0b"
    # The first delivery's head is shared by others, and stays as it was.
    assert same(message_blocks(run.head), blocks)
    (first,) = read_server_frames(messages(run, reader), reader)
    assert first.get("redelivered") is None
    assert (again.head.headers, again.head.destination) == (run.head.headers, "/a")


@pytest.mark.covers("F21", "F38")
@given(
    st.data(),
    st.sampled_from(VERSIONS),
    st.sampled_from(VERSIONS),
    st.lists(st.binary(max_size=9), min_size=1, max_size=3),
)
def test_a_frame_written_by_one_client_is_read_unchanged_by_another(
    data: st.DataObject, sender: HeaderRules, reader: HeaderRules, bodies: list[bytes]
) -> None:
    # Headers that 1.0 can carry are carried between all versions.
    user = data.draw(header_lists(V1_0))
    own = {"destination", "subscription", "message-id", "transaction", "ack", "redelivered"}
    user = tuple(pair for pair in user if pair[0] not in own)
    headers = (("destination", "/a"), *user)
    wire = b"".join(encode_frame("SEND", headers, sender, body) for body in bodies)
    decoder = FrameDecoder(FrameLimits(), HeadCache(), sender)
    runs = [run for run in decoder.receive_data(wire) if isinstance(run, FrameRun)]
    assert sum(len(run.bodies) for run in runs) == len(bodies)
    got = [frame for run in runs for frame in read_server_frames(messages(run, reader), reader)]
    for frame, body in zip(got, bodies, strict=True):
        assert frame.body == body
        length = (("content-length", str(len(body))),) if body else ()
        assert frame.headers[2:] == headers + length


@pytest.mark.covers("F39")
def test_a_receipt_is_taken_off_before_the_head_is_shared() -> None:
    decoder = FrameDecoder(FrameLimits(), HeadCache(), V1_2)
    first, second = (
        frames_of(decoder, [b"SEND\ndestination:/a\nreceipt:%d\n\n\0" % n])[0] for n in (1, 2)
    )
    assert first.headers == second.headers == (("destination", "/a"),)
    assert (first.receipt, second.receipt) == (b"1", b"2")
