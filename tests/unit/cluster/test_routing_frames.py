"""Frames between the router and owners: splitting of bytes in any pieces, and encoding."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_stomp.cluster.routing import Placement
from trio_stomp.cluster.routing._frames import (
    FrameCutter,
    Piece,
    closed,
    encode_acks,
    encode_lead,
    encode_run,
    receipt_id,
)
from trio_stomp.cluster.routing._route import Cumulative
from trio_stomp.frames import (
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
)
from trio_stomp.protocol import Acked

ONE = (
    b"MESSAGE\nsubscription:1\nack:0_a.1-1\ndestination:/queue/a\ncontent-length:5\n\na\0\n\nb\0\n"
)
LONG = b"MESSAGE\nack:0_a.1-3\ncontent-length:15\n\n0123456789abcde\0\n"
EMPTY = b"MESSAGE\nsubscription:1\nack:0_a.1-2\nnote:content-length\\c7\n\n\0\n"
RECEIPT = b"RECEIPT\nreceipt-id:r-1\nstored:cluster\n\n\0\n"
ERROR = b"ERROR\nmessage:no\ncontent-length:3\n\n\n\n\n\0\n"
FRAMES = [ONE, ONE, LONG, EMPTY, RECEIPT, ONE, ERROR]


@given(st.lists(st.integers(0, len(b"".join(FRAMES)))))
def test_frames_are_found_in_any_pieces(cuts: list[int]) -> None:
    data = b"".join(FRAMES)
    edges = [0, *sorted(cuts), len(data)]
    for joins in (False, True):
        cutter = FrameCutter(joins)
        pieces = [
            piece
            for start, end in pairwise(edges)
            if end > start
            for piece in cutter.feed(data[start:end])
        ]
        assert b"".join(piece.data for piece in pieces) == data
        if not joins:
            assert [piece.data for piece in pieces] == FRAMES


@given(
    st.lists(st.integers(0, 3), min_size=len(FRAMES), max_size=len(FRAMES)),
    st.integers(1, 40),
    st.booleans(),
)
def test_heart_beats_between_frames_are_no_frames(beats: list[int], step: int, joins: bool) -> None:
    data = b"".join(b"\n" * count + frame for count, frame in zip(beats, FRAMES, strict=True))
    cutter = FrameCutter(joins)
    parts = (data[at : at + step] for at in range(0, len(data), step))
    found = b"".join(piece.data for part in parts for piece in cutter.feed(part))
    assert [piece.data for piece in FrameCutter(joins=False).feed(found)] == FRAMES


def test_consecutive_messages_are_one_piece() -> None:
    assert FrameCutter().feed(b"".join(FRAMES)) == [
        Piece(ONE + ONE + LONG + EMPTY, True),
        Piece(RECEIPT, False),
        Piece(ONE, True),
        Piece(ERROR, False),
    ]


def test_a_large_frame_is_not_searched_again_for_each_of_its_pieces() -> None:
    body = b"x" * 1_000_000
    frame = b"MESSAGE\nsubscription:1\ncontent-length:%d\n\n%b\0\n" % (len(body), body)
    cutter = FrameCutter()
    for at in range(0, len(frame) - 100, 100):
        assert cutter.feed(frame[at : at + 100]) == []
        assert len(cutter._incomplete) <= at // 100 + 1  # not joined yet
    assert cutter.feed(frame[-100 if len(frame) % 100 == 0 else len(frame) // 100 * 100 :])


def test_the_id_of_a_receipt_is_read() -> None:
    assert receipt_id(RECEIPT) == b"r-1"


def decoded(data: bytes, rules: HeaderRules) -> list[object]:
    """Return the frames as an owner reads them."""
    decoder = FrameDecoder(FrameLimits(), HeadCache(), rules)
    runs = decoder.receive_data(data)
    assert decoder.error is None
    return list(runs)


@pytest.mark.parametrize("rules", [V1_0, V1_1, V1_2])
@pytest.mark.parametrize("length", [-1, 2])
def test_an_encoded_run_of_sends_decodes_to_itself(rules: HeaderRules, length: int) -> None:
    note = "a:b" if rules is V1_0 else "a:b\\"
    headers: Headers = (("destination", "/queue/ä"), ("note", note))
    if length >= 0:
        headers = (*headers, ("content-length", f"{length}"))
    head = Head("SEND", headers, length, "/queue/ä")
    run = FrameRun(head, [b"aa", b"bb", b"cc"], [])
    lead = encode_lead("SEND", headers, rules)
    (found,) = decoded(encode_run(lead, run), rules)
    assert isinstance(found, FrameRun)
    assert (found.head.headers, found.bodies) == (headers, run.bodies)
    run.receipts = [(2, b"r"), (3, b"s")]
    (found,) = decoded(encode_run(lead, run), rules)
    assert isinstance(found, FrameRun)
    assert (found.bodies, found.receipts) == (run.bodies, run.receipts)


def test_a_version_without_empty_values_passes_them_on() -> None:
    lead = encode_lead("SEND", (("destination", "/t"), ("note", "")), V1_0)
    assert lead == b"SEND\ndestination:/t\nnote:\n"


def acked(*ids: bytes, **fields: object) -> Acked:
    usual: dict[str, object] = {
        "header": "id",
        "subscription": None,
        "negative": False,
        "requeue": True,
        "receipts": (),
    }
    return Acked(ids, **usual | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event", "transaction", "frames"),
    [
        (acked(b"1", b"2"), "", b"ACK\nid:1\n\n\0ACK\nid:2\n\n\0"),
        (acked(b"1"), "", b"ACK\nid:1\n\n\0"),
        (acked(b"1", receipts=[(1, b"r")]), "", b"ACK\nid:1\nreceipt:r\n\n\0"),
        (acked(b"1"), "t", b"ACK\nid:1\ntransaction:t\n\n\0"),
        (
            acked(b"1", header="message-id", subscription="s", negative=True, requeue=False),
            "",
            b"NACK\nmessage-id:1\nsubscription:s\nrequeue:false\n\n\0",
        ),
    ],
)
def test_acks_are_encoded_for_the_owner(event: Acked, transaction: str, frames: bytes) -> None:
    assert encode_acks(event, V1_2, transaction) == frames


def test_a_frame_without_a_body_is_closed_with_its_receipt() -> None:
    assert closed(b"BEGIN\ntransaction:t\n") == b"BEGIN\ntransaction:t\n\n\0"
    assert closed(b"BEGIN\n", b"r") == b"BEGIN\nreceipt:r\n\n\0"


def message(subscription: str, name: str) -> bytes:
    return f"MESSAGE\nsubscription:{subscription}\nack:{name}\nmessage-id:m\n\n\0\n".encode()


def test_an_ack_includes_earlier_messages_of_other_partitions() -> None:
    kept, placement = Cumulative(by_ack=True), Placement(3)
    assert not kept
    kept.add("a:b", V1_2)
    for name in ("0_x-1", "1_x-1", "1_x-2", "2_x-1", "1_x-3", "0_x-2"):
        kept.note(message("a\\cb", name))
    kept.note(message("other", "2_x-9"))
    assert kept.take(b"2_x-9", placement) == {}
    assert kept.take(b"2_x-1", placement) == {0: b"0_x-1", 1: b"1_x-2"}
    assert kept.take(b"1_x-2", placement) == {}
    assert kept.take(b"0_x-2", placement) == {1: b"1_x-3"}
    assert kept
    kept.remove("a:b", V1_2)
    kept.remove("a:b", V1_2)
    assert not kept
