"""SockJS over WebSocket: strings, frames, paths, the page /info, and sessions from end to end."""

import gc
import json
import math
import subprocess
import weakref
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
import trio.testing
from attrs import define
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection as Frames
from wsproto.connection import ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Message, TextMessage

from tests.support.fakes import (
    WS_MEMORY,
    WS_TCP,
    Client,
    Dial,
    WebSocketPipe,
    bodies,
    gaps_between,
    open_dial,
    until,
)
from tests.support.foreign import JS, PATIENCE_S, node_or_skip, running_broker
from trio_stomp.base import CloseReason, RemoteError
from trio_stomp.broker import Delivery, Destination, MemoryBudget
from trio_stomp.broker.delivery import NEVER, Publication
from trio_stomp.broker.names import Kind
from trio_stomp.frames import Head
from trio_stomp.server.connection._sockjs import SockJsOutbox, SockJsPulse, quote_delivery
from trio_stomp.server.io import Outbox, OutboxShared, SockJsMessages
from trio_stomp.transport import (
    HttpError,
    HttpRequest,
    SockJsCodec,
    StreamWire,
    asks_sockjs,
    asks_sockjs_info,
    quote_sockjs,
    sockjs_info,
    sockjs_message,
    splice_sockjs,
)
from trio_stomp.transport.websocket._json_strings import JsonStrings

if TYPE_CHECKING:
    from trio_stomp.server import Connection

PATH = "/portfolio/123/k2jx0q9w/websocket"
BMP_AND_BEYOND = st.text(st.characters(exclude_categories=()), max_size=8)  # surrogates, too

# --- strings of JSON ------------------------------------------------------------------------------


def meant(text: str) -> bytes:
    """Return the UTF-8 of a JavaScript string."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "replace").encode()


def read_pieces(strings: JsonStrings, text: str, cuts: Sequence[int] = ()) -> bytes:
    places = [0, *sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]
    written = b""
    for index, place in enumerate(places[1:], 1):
        written += strings.feed(text[places[index - 1] : place], is_end=index == len(places) - 1)
    return written


@st.composite
def messages(draw: st.DrawFn) -> tuple[str, str]:
    """A message as some client may encode it, and its text."""
    texts = draw(st.lists(BMP_AND_BEYOND, max_size=4))
    found: list[str] | str = texts[0] if len(texts) == 1 and draw(st.booleans()) else texts
    has_surrogates = any("\ud800" <= letter <= "\udfff" for text in texts for letter in text)
    written = json.dumps(
        found,
        ensure_ascii=has_surrogates or draw(st.booleans()),  # a lone surrogate can only be escaped
        separators=draw(st.sampled_from([(",", ":"), (" ,\n", ":")])),
    )
    space = draw(st.sampled_from(["", " ", "\r\n\t"]))
    return space + written + space, "".join(texts)


@given(st.lists(messages(), max_size=4), st.lists(st.integers(0, 1000), max_size=6))
def test_messages_in_any_pieces_decode_to_the_text_of_their_strings(
    written: list[tuple[str, str]], cuts: list[int]
) -> None:
    strings = JsonStrings()
    found = b"".join(read_pieces(strings, text, cuts) for text, _ in written)
    whole = "".join(text for _, text in written)
    if "\ud800" <= whole[-1:] <= "\udbff":
        whole = whole[:-1]  # kept, for its other half may follow
    assert found == meant(whole)


@given(
    st.text(st.sampled_from('[]",\\u0dDn8 \n{}1:\x00é\x7f'), max_size=12),
    st.lists(st.integers(0, 12), max_size=3),
)
def test_address_refused_by_the_standard_library_is_refused(text: str, cuts: list[int]) -> None:
    try:
        expected = json.loads(text) if text.strip(" \t\r\n") else []
    except (ValueError, RecursionError):
        expected = None
    each = [expected] if isinstance(expected, str) else expected
    is_good = isinstance(each, list) and all(isinstance(text, str) for text in each)
    try:
        result = read_pieces(JsonStrings(), text, cuts)
    except ValueError:
        assert not is_good
    else:
        assert is_good
        whole = "".join(each or [])
        assert result == meant(whole[:-1] if "\ud800" <= whole[-1:] <= "\udbff" else whole)


@pytest.mark.parametrize(
    "text",
    ['["a', '["a"', '["a",', '["a",]', '[,"a"]', '["a""b"]', '["a"]"b"', '["a"]]', '["a"],', "[",
     "[1]", "[null]", "[[]]", '[["a"]]', "[" * 100_000, '[{"a":"b"}]', "{}", "null", "1", "'a'",
     '"a" "b"', '["\\x41"]', '["\\u12g4"]', '["\\u123"]', '["\\U1234"]', '["two\nlines"]',
     '["\x00"]', "CONNECT\n\n\0"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"it is neither|too soon|a string has"):
        JsonStrings().feed(text, is_end=True)
    assert JsonStrings().feed("\n", is_end=True) == b""  # white space has no content


def test_nothing_but_a_cut_escape_is_kept() -> None:
    strings = JsonStrings()
    assert strings.feed('["', is_end=False) == b""
    for _ in range(100):
        assert strings.feed("x" * 1000, is_end=False) == b"x" * 1000
    assert strings.feed("\\ud8", is_end=False) == b""
    assert strings.feed("3d", is_end=False) == b""
    assert strings.feed("\\ude", is_end=False) == b""
    assert strings.feed('00"]', is_end=True) == "😀".encode()


def test_a_cut_pair_of_surrogates_is_put_together_over_messages() -> None:
    """stompjs' splitLargeFrames cuts characters beyond the BMP in two (X07)."""
    strings = JsonStrings()
    assert strings.feed('["a\\ud83d"]', is_end=True) == b"a"
    assert strings.feed("", is_end=True) == b""
    assert strings.feed('["\\ude00b"]', is_end=True) == "😀b".encode()
    assert strings.feed('["\\ud83d","c"]', is_end=True) == "\ufffdc".encode()


# --- paths and /info ------------------------------------------------------------------------------


@pytest.mark.covers("X14")
@pytest.mark.parametrize(
    ("path", "is_sockjs"),
    [
        (PATH, True),
        (PATH + "?token=a/b", True),
        ("http://host" + PATH, True),
        ("/a/b/c/_/_/websocket", True),
        ("/stomp/abcdefgh_i-j%20/abcdefg_i-j%20/websocket", True),
        ("/ws/12/x/websocket", True),
        ("/portfolio/websocket", False),
        ("/app/portfolio/websocket", False),
        ("/123/k2jx0q9w/websocket", False),
        ("//123/k2jx0q9w/websocket", False),
        ("/portfolio/1.3/session/websocket", False),
        ("/portfolio/123/a.b/websocket", False),
        ("/portfolio//session/websocket", False),
        ("/portfolio/123//websocket", False),
        ("/portfolio/123/session/websocket/", False),
        ("/portfolio/123/session/websockets", False),
        ("/portfolio/123/session/WebSocket", False),
        ("/portfolio/123/session/xhr", False),
        ("/websocket", False),
    ],
)
def test_which_paths_are_sockjs(path: str, is_sockjs: bool) -> None:
    request = HttpRequest("GET", path, ())
    assert asks_sockjs(request, None) is is_sockjs
    assert not asks_sockjs(request, "v12.stomp")


@pytest.mark.parametrize(
    ("path", "is_info"),
    [
        ("/portfolio/info", True),
        ("/a/b/info?t=1700000000", True),
        ("/info", False),
        ("//info", False),
        ("/portfolio/info/", False),
        ("/portfolio/information", False),
        ("/portfolioinfo", False),
    ],
)
def test_which_paths_are_info(path: str, is_info: bool) -> None:
    assert asks_sockjs_info(HttpRequest("GET", path, ())) is is_info


def info(
    *origins: bytes, allowed: str = "", method: str = "GET", local_only: bool = False
) -> tuple[dict[str, str], bytes]:
    headers = [(b"host", b"broker.example"), *((b"origin", each) for each in origins)]
    answer = sockjs_info(
        HttpRequest(method, "/portfolio/info", tuple(headers)),
        allowed,
        local_only=local_only,
        entropy=2**32 - 1,
    )
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    assert status == "HTTP/1.1 200 OK"
    return {name.lower(): text for name, text in (line.split(": ", 1) for line in lines)}, body


@pytest.mark.covers("X14")
def test_info_as_the_tests_of_the_protocol_want_it() -> None:
    headers, body = info()
    assert json.loads(body) == {
        "websocket": True,
        "origins": ["*:*"],
        "cookie_needed": False,
        "entropy": 2**32 - 1,
    }
    assert headers["content-type"].replace(" ", "") == "application/json;charset=UTF-8"
    assert headers["cache-control"] == "no-store, no-cache, must-revalidate, max-age=0"
    assert headers["content-length"] == str(len(body))
    assert headers["vary"] == "Origin"
    assert not {"expires", "last-modified", "set-cookie"} & headers.keys()
    assert "access-control-allow-origin" not in headers
    result, nothing = info(method="HEAD")
    assert (result, nothing) == (headers, b"")


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (b"https://broker.example", ""),
        (b"https://shop.example", "https://shop.example"),
        (b"https://evil.example", "*"),
        (b"null", "*"),
    ],
)
def test_pages_that_may_connect_may_read_info(origin: bytes, allowed: str) -> None:
    headers, _ = info(origin, allowed=allowed)
    assert headers["access-control-allow-origin"] == origin.decode()
    assert headers["access-control-allow-credentials"] == "true"


@pytest.mark.parametrize(
    ("origin", "allowed", "local_only"),
    [
        (b"https://evil.example", "", False),
        (b"https://evil.example", "https://shop.example", False),
        (b"null", "", False),
        (b"https://broker.example", "", True),  # a name may resolve to this machine
    ],
)
def test_pages_of_foreign_origins_get_no_information(
    origin: bytes, allowed: str, local_only: bool
) -> None:
    with pytest.raises(HttpError, match="allowed-origins") as caught:
        info(origin, allowed=allowed, local_only=local_only)
    assert caught.value.status == 403
    assert b"Access-Control" not in caught.value.response()


@pytest.mark.parametrize("origins", [(b"\xe9",), (b"https://a.example", b"https://b.example")])
def test_strange_origins_are_not_repeated(origins: tuple[bytes, ...]) -> None:
    headers, _ = info(*origins, allowed="*")
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("method", ["POST", "OPTIONS", "DELETE"])
def test_info_has_no_other_method(method: str) -> None:
    with pytest.raises(HttpError) as caught:
        info(method=method)
    assert caught.value.status == 405
    assert b"\r\nAllow: GET, HEAD\r\n" in caught.value.response()


# --- frames ---------------------------------------------------------------------------------------


def client_side() -> Frames:
    return Frames(ConnectionType.CLIENT)


def texts_in(data: bytes) -> list[str | int | None]:
    """Return the text messages in the broker's bytes, and the code of a Close."""
    connection = client_side()
    connection.receive_data(data)
    found: list[str | int | None] = []
    for event in connection.events():
        if isinstance(event, CloseConnection):
            found.append(event.code)
        else:
            assert isinstance(event, TextMessage)
            assert event.message_finished
            assert event.frame_finished
            found.append(event.data)
    return found


def codec(largest: int = 100_000) -> SockJsCodec:
    return SockJsCodec(max_message_bytes=largest)


def wrapped(*texts: str) -> bytes:
    connection = client_side()
    return b"".join(connection.send(TextMessage(text)) for text in texts)


@pytest.mark.parametrize("size", [1, 2, 7, 1000, 65536])
def test_frames_in_any_pieces(size: int) -> None:
    long = "é" * 9000  # larger than the part that is held until it is complete
    data = wrapped('["a","b\\u0000"]', "", '"c"', json.dumps([long]), "[]", '["d"]')
    subject = codec()
    events = b"".join(
        subject.receive_data(data[place : place + size]) for place in range(0, len(data), size)
    )
    assert events == b"ab\0c" + long.encode() + b"d"
    assert subject.closed is None
    assert subject.take_replies() == b""


def test_fragments_are_one_message_of_json() -> None:
    connection = client_side()
    pieces = [
        connection.send(TextMessage(text, message_finished=text.endswith("]")))
        for text in ('["a', 'b","\\u0', "063", '"]', '["d"]')
    ]
    for together in (True, False):
        subject = codec()
        reads = [b"".join(pieces)] if together else pieces
        assert b"".join(map(subject.receive_data, reads)) == b"abcd"
        assert subject.closed is None


@pytest.mark.covers("X14")
@pytest.mark.parametrize(
    ("bad", "code", "reason"),
    [
        (TextMessage('["a'), 1007, "no message of SockJS: the message ends too soon"),
        (TextMessage("[1]"), 1007, "no message of SockJS: it is neither"),
        (TextMessage("CONNECT\n\n\0"), 1007, "no message of SockJS: it is neither"),
        (BytesMessage(b'["a"]'), 1003, "SockJS has text messages only"),
        (TextMessage(json.dumps(["x" * 100_000])), 1009, "message is longer than 100000 bytes"),
    ],
)
def test_a_broken_message_ends_it(bad: Message[Any], code: int, reason: str) -> None:
    connection = client_side()
    data = wrapped('["before"]') + connection.send(bad) + wrapped('["behind"]')
    subject = codec()
    assert subject.receive_data(data) == b"before"
    assert subject.closed is not None
    assert (subject.closed.code, subject.closed.by_peer) == (code, False)
    goodbye, closed = texts_in(subject.take_replies())
    assert isinstance(goodbye, str)
    assert goodbye.startswith("c")
    record = json.loads(goodbye[1:])
    assert record[0] == closed == code
    assert record[1].startswith(reason)
    assert subject.take_replies() == subject.close(1000, "again") == b""
    assert subject.receive_data(wrapped('["more"]')) == b""


def test_the_servers_close_is_written_once_as_a_sockjs_frame() -> None:
    subject = codec()
    assert texts_in(subject.close(3000, 'Go "away"!')) == ['c[3000,"Go \\"away\\"!"]', 3000]
    assert subject.close(3000, "again") == b""
    assert subject.receive_data(wrapped('["still read"]')) == b"still read"
    with pytest.raises(ValueError, match="1005"):
        codec().close(1005, "")


def test_an_end_of_the_peers_is_not_commented() -> None:
    subject = codec()
    subject.receive_data(client_side().send(CloseConnection(1001)))
    assert texts_in(subject.take_replies()) == [1001]
    assert subject.close(1000, "bye") == b""


def test_pings_are_answered_between_messages() -> None:
    subject = codec()
    ping = b"\x89\x82\0\0\0\0hi"
    assert subject.receive_data(wrapped('["a"]') + ping + wrapped('["b"]')) == b"ab"
    assert subject.take_replies() == b"\x8a\x02hi"
    assert subject.statistics().pings == 1


@given(st.binary(max_size=20))
def test_a_frame_of_ours_keeps_its_length(frame: bytes) -> None:
    (message,) = texts_in(sockjs_message(frame))
    assert isinstance(message, str)
    assert message.startswith("a")
    (text,) = json.loads(message[1:])
    assert len(text.encode()) == len(frame)
    try:
        assert text == frame.decode()
    except UnicodeDecodeError:
        assert "?" in text


@given(st.text(max_size=200), st.lists(st.text(max_size=200), max_size=4))
def test_quoted_tails_are_joined_by_a_quoted_prefix(prefix: str, tails: list[str]) -> None:
    quoted = quote_sockjs(prefix.encode())
    spliced = splice_sockjs([b"", *(tail.encode() for tail in tails)], len(quoted))
    found = texts_in(quoted.join(spliced))
    assert [json.loads(str(each)[1:]) for each in found] == [[prefix + tail] for tail in tails]
    assert all(str(each).startswith("a") for each in found)


# --- the outbox -----------------------------------------------------------------------------------


def delivery(*tails: bytes, returns: bool = False) -> Delivery:
    head = Head("SEND", (("destination", "/t"),), -1, "/t")
    publication = Publication(Destination("/t", Kind.TOPIC), head, list(tails), 0.0, NEVER)
    made = Delivery([b"", *tails], len(tails), sum(map(len, tails)), publication)
    made.returns = returns
    made.is_paced = True
    made.observed_at = 3.0
    return made


def test_subscribers_of_one_fan_out_share_the_quoted_bytes() -> None:
    plain = delivery(b'"a"', b"b")
    first = quote_delivery(plain, 7)
    assert quote_delivery(plain, 7) is first
    other = quote_delivery(plain, 8)
    assert other is not first
    assert first.size == sum(map(len, first.tails)) != plain.size
    assert first.spliced is None
    for name in ("count", "publication", "is_paced", "returns", "ticket", "observed_at"):
        assert getattr(first, name) == getattr(plain, name)
    assert quote_delivery(delivery(b'"a"', b"b"), 7) is not first


def test_the_quoted_form_is_freed_with_its_delivery() -> None:
    body = b"x" * 1000
    plain = delivery(body)
    held = quote_delivery(plain, 7)
    assert gc.get_referrers(held) == [plain.quoted]
    # The quoted form keeps nothing of the original alive.
    del plain
    assert not any(isinstance(each, Delivery) for each in gc.get_referrers(body))
    assert held.count == 1


def make_outbox() -> tuple[SockJsOutbox, Outbox, list[RemoteError]]:
    """An outbox of SockJS that nothing reads from, what waits there, and the errors it reports."""
    reported: list[RemoteError] = []
    wire = StreamWire("peer", True, trio.testing.memory_stream_pair()[0])
    shared = OutboxShared(MemoryBudget(10**6), 10_000)
    plain = Outbox(shared, wire, lambda: None, lambda reason: None, lambda: None)
    plain.framing = SockJsMessages()
    return SockJsOutbox(plain, reported.append), plain, reported


async def test_waiting_data_are_charged_at_their_quoted_length() -> None:
    outbox, plain, _ = make_outbox()
    memory = plain.shared.memory
    assert outbox.stage(b"P\n", delivery(b"\0" * 1000))
    # Two bytes of header and two more of its length, a["P\n and "].
    assert memory.used_bytes == plain.waiting_bytes == 4 + 3 + 3 + 6000 + 2
    assert outbox.discard() == 1
    assert memory.used_bytes == 0


async def test_nothing_is_staged_after_a_message_that_is_not_utf8() -> None:
    outbox, plain, result = make_outbox()
    memory = plain.shared.memory
    bad = delivery(b"good", b"\xff")
    assert outbox.stage(b"P", bad)
    assert outbox.stage(b"P", delivery(b"good"))
    assert outbox.stage(b"P", delivery(b"good", returns=True))
    assert not outbox.has_room()
    assert plain.waiting_bytes == memory.used_bytes == 0
    (error,) = result
    assert (error.code, error.reason) == ("not-text", CloseReason.UNSUPPORTED)
    assert "/t is not UTF-8" in error.message
    assert bad.publication.destination.dropped == 2
    assert plain.shared.unsent == 3
    outbox.stage_frame(b"ERROR\n\n\0")  # this is still sent
    assert plain.waiting_bytes
    plain.end()
    assert memory.used_bytes == 0
    outbox.stage_frame(b"more")
    assert outbox.stage(b"P", delivery(b"\xff"))
    assert memory.used_bytes == 0
    assert len(result) == 1


async def test_nothing_is_staged_once_it_is_closed() -> None:
    outbox, plain, result = make_outbox()
    memory = plain.shared.memory
    outbox.close(CloseReason.SHUTTING_DOWN)
    outbox.stage_frame(b"RECEIPT\n\n\0")
    assert outbox.stage(b"P", delivery(b"good"))
    assert outbox.stage(b"P", delivery(b"\xff"))
    assert memory.used_bytes == 0
    assert result == []


async def test_what_is_staged_and_what_follows_goes_through_the_connections_outbox() -> None:
    outbox, plain, _ = make_outbox()
    sent = bytearray()
    pauses: list[bool] = []

    def send_nowait(data: bytes) -> int:
        sent.extend(data)
        return len(data)

    plain.wire = cast("Any", SimpleNamespace(remote="peer", send_nowait=send_nowait))
    plain.on_pause, plain.owner = pauses.append, object()
    assert (outbox.owner, outbox.remote) == (plain.owner, "peer")
    assert outbox.stage(b"P", delivery(b"1", b"2"))
    outbox.stage_frame(b"RECEIPT\n\n\0")
    assert outbox.stage(b"P", delivery(b"3"))
    assert plain.shared.dirty == [plain]
    assert outbox.drop_oldest(1) == 0  # messages of queues stay
    outbox.pause_reading(paused=True)
    outbox.publish(0.0)
    frames = [json.loads(str(each)[1:]) for each in texts_in(bytes(sent))]
    assert frames == [["P1"], ["P2"], ["RECEIPT\n\n\0"], ["P3"]]
    assert pauses == [True]
    outbox.lose(CloseReason.INTERNAL_ERROR)
    assert plain.is_broken


# --- sessions -------------------------------------------------------------------------------------


@define(eq=False)
class SockJsPipe:
    """STOMP bytes in the strings of SockJS, as its clients see them.

    Args:
      frames: All received SockJS frames.
    """

    inner: WebSocketPipe
    frames: list[str]
    end: list[Any] | None = None

    async def send_bytes(self, data: bytes) -> None:
        await self.send_text(json.dumps([data.decode()]))

    async def send_text(self, *texts: str) -> None:
        for text in texts:
            await self.inner.send_event(TextMessage(text))

    async def receive_bytes(self) -> bytes:
        while True:
            seen = len(self.inner.messages)
            if not await self.inner.receive_bytes():
                return b""
            text = b"".join(self._read(each) for each in self.inner.messages[seen:])
            if text:
                return text

    def _read(self, message: bytes | str) -> bytes:
        assert isinstance(message, str)
        assert self.end is None, "a frame behind the last"
        self.frames.append(message)
        kind, rest = message[0], message[1:]
        if kind == "c":
            self.end = json.loads(rest)
        if kind != "a":
            assert kind in "ohc", message
            assert kind == "c" or rest == ""
            return b""
        texts = json.loads(rest)
        assert isinstance(texts, list)
        return "".join(texts).encode()

    async def aclose(self) -> None:
        await self.inner.aclose()

    def abort(self) -> None:
        self.inner.abort()


async def open_client(dial: Dial, path: str = PATH, offers: Sequence[str] = ()) -> Client:
    """Return a client that speaks SockJS and has not sent CONNECT."""
    inner = WebSocketPipe(await dial.stream())
    await inner.shake_hands(offers, path)
    assert inner.subprotocol is None
    return Client(SockJsPipe(inner, []))


def sockjs(client: Client) -> SockJsPipe:
    assert isinstance(client.pipe, SockJsPipe)
    return client.pipe


async def connect(dial: Dial, version: str = "1.2", beats: str = "0,0") -> Client:
    client = await open_client(dial)
    await client.connect(version, {"heart-beat": beats} if version != "1.0" else {})
    return client


@pytest.fixture(params=(WS_MEMORY, WS_TCP))
async def dial(request: pytest.FixtureRequest) -> AsyncIterator[Dial]:
    async with open_dial(request.param) as opened:
        yield opened


@pytest.mark.covers("X14")
async def test_it_opens_with_o_before_anything_is_sent(dial: Dial) -> None:
    client = await open_client(dial)
    with trio.move_on_after(0.01):
        await client.pipe.receive_bytes()
    (connected,) = [await client.connect()]
    assert connected["version"] == "1.2"
    assert sockjs(client).frames[0] == "o"
    assert [frame[0] for frame in sockjs(client).frames] == ["o", "a"]


@pytest.mark.covers("X14", "X09")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
async def test_one_frame_in_each_message_of_one_string(dial: Dial, version: str) -> None:
    one, two = await connect(dial, version), await dial.connect()
    await one.subscribe("/t", id="a")
    await one.subscribe("/t", id="longer-id")
    await two.subscribe("/t")
    sockjs(one).frames.clear()
    texts = ['"quoted" \\ back', "Grüße 茶 😀", "two\r\nlines", "\x01\x7f\u2028", ""]
    sent = [text.encode() for text in texts]
    await one.publish("/t", *sent)
    assert sorted(bodies(await one.receive_many(10))) == sorted(sent * 2)
    assert bodies(await two.receive_many(5)) == sent
    assert len(sockjs(one).frames) == 10
    for frame in sockjs(one).frames:
        (text,) = json.loads(frame[1:])
        assert text.startswith("MESSAGE\n")
        assert text.endswith("\0\n")


@pytest.mark.parametrize("size", [70_000, 300_000])
async def test_large_messages_both_ways(dial: Dial, size: int) -> None:
    one, two = await connect(dial), await connect(dial)
    await two.subscribe("/t")
    body = ('"é\n' * (size // 4)).encode()
    await one.publish("/t", body, b"small", receipt=True)
    assert bodies(await two.receive_many(2)) == [body, b"small"]


async def test_a_body_at_the_limit_fits_however_it_is_escaped(dial: Dial) -> None:
    dial.use(max_body_bytes=50_000)
    client = await connect(dial)
    await client.subscribe("/t")
    body = b"\x01" * 50_000
    await client.publish("/t", body)
    assert (await client.receive()).body == body
    await client.send_bytes(b"SEND\ndestination:/t\ncontent-length:50001\n\n")
    await client.expect_error("body-too-large")
    assert sockjs(client).end == [1009, "limit-exceeded"]


@pytest.mark.covers("X14", "X10")
@pytest.mark.parametrize(
    ("frame", "code", "reason"),
    [
        (b"BOGUS\n\n\0", 1002, "protocol-error"),
        (b"SUBSCRIBE\nid:1\ndestination:/reply-queue/of-others\n\n\0", 1008, "unsupported"),
        (b"DISCONNECT\n\n\0", 1000, "client-disconnect"),
    ],
)
async def test_the_end_is_also_a_sockjs_frame(
    dial: Dial, frame: bytes, code: int, reason: str
) -> None:
    client = await connect(dial)
    await client.send_bytes(frame)
    frames = await client.read_to_end()
    assert [each.command for each in frames] == ([] if code == 1000 else ["ERROR"])
    pipe = sockjs(client)
    assert pipe.end == [code, reason]
    assert (pipe.inner.close_code, pipe.inner.close_reason) == (code, reason)


@pytest.mark.covers("X14")
@pytest.mark.parametrize("text", ['["a', '[["a"]]', "CONNECT\n\n\0"])
async def test_broken_json_ends_the_connection(dial: Dial, text: str) -> None:
    dial.use(linger_s=0.05)  # this client waits for the end of the stream
    client = await connect(dial)
    await client.subscribe("/t")
    await client.publish("/t", b"before")
    await sockjs(client).send_text(text)
    assert bodies(await client.read_to_end()) == [b"before"]
    end = sockjs(client).end
    assert end is not None
    assert end[0] == sockjs(client).inner.close_code == 1007
    await until(lambda: not dial.server.connections)
    assert dial.server.ended[CloseReason.WEBSOCKET_ERROR] == 1


async def test_no_session_in_time(autojump_clock) -> None:
    async with open_dial(WS_MEMORY) as dial:
        client = await open_client(dial)
        with trio.fail_after(60):
            while await client.pipe.receive_bytes():
                pass
        assert sockjs(client).end == [1008, "connect-timeout"]


# --- what is not text -----------------------------------------------------------------------------


async def test_a_message_that_is_not_text_ends_it_with_the_reason(dial: Dial) -> None:
    client, plain = await connect(dial), await dial.connect()
    await client.subscribe("/t")
    await plain.subscribe("/t")
    await plain.publish("/t", b"good")
    assert bodies(await client.receive_many(1)) == [b"good"]
    await plain.publish("/t", b"\xff\xfe", b"behind")
    error = await client.expect_error("not-text")
    assert "/t" in error["message"]
    assert sockjs(client).end == [1008, "unsupported"]
    assert bodies(await plain.receive_many(3)) == [b"good", b"\xff\xfe", b"behind"]


async def test_unsent_messages_to_acknowledge_are_returned(dial: Dial) -> None:
    client = await connect(dial)
    await client.subscribe("/queue/q", headers={"ack": "client-individual"})
    sender = await dial.connect()
    await sender.publish("/queue/q", b"\xff", receipt=True)
    await client.expect_error("not-text")
    await sender.subscribe("/queue/q")
    message = await sender.receive()
    assert message.body == b"\xff"
    assert message["redelivered"] == "true"


async def test_an_error_may_quote_a_partial_character(dial: Dial) -> None:
    """The quoted form of a frame may end within a character; its length must be right."""
    client = await connect(dial)
    await client.send("SEND", [("x", "é" * 600)])
    error = await client.expect_error("header-missing")
    assert b"\xc3\xa9" in error.body


# --- heart-beats ----------------------------------------------------------------------------------


async def listen(client: Client, seconds: float) -> list[float]:
    """Return the times at which STOMP bytes arrived within a number of seconds."""
    times = [trio.current_time()]
    with trio.move_on_after(seconds):
        while await client.pipe.receive_bytes():
            times.append(trio.current_time())
    return times


@pytest.mark.covers("X14")
async def test_a_heartbeat_is_sent_after_25_s_of_silence(autojump_clock) -> None:
    async with open_dial(WS_MEMORY, websocket_ping_s=0.0, diag_interval_s=0) as dial:
        client = await connect(dial)
        sockjs(client).frames.clear()
        await listen(client, 101)
        assert sockjs(client).frames == ["h"] * 4


async def test_no_heartbeat_is_sent_while_messages_are(autojump_clock) -> None:
    async with open_dial(WS_MEMORY, websocket_ping_s=0.0, diag_interval_s=0) as dial:
        client = await connect(dial)
        await client.subscribe("/t")
        sockjs(client).frames.clear()
        for _ in range(10):
            await listen(client, 24)
            await client.publish("/t", b"x")
            await client.receive()
        assert "h" not in sockjs(client).frames
        await listen(client, 26)
        assert sockjs(client).frames[-1] == "h"


@pytest.mark.covers("X14", "H06")
async def test_h_takes_the_place_of_no_heart_beat_of_stomp(autojump_clock) -> None:
    options = {"websocket_ping_s": 0.0, "diag_interval_s": 0, "heartbeat_send_ms": 120_000}
    async with open_dial(WS_MEMORY, **options) as dial:
        client = await connect(dial, beats="0,120000")
        sockjs(client).frames.clear()
        times = await listen(client, 1200)
        assert max(gaps_between([*times, trio.current_time()])) <= 120
        assert "h" in sockjs(client).frames
        beats = [frame for frame in sockjs(client).frames if frame != "h"]
        assert set(beats) == {'a["\\n"]'}


async def test_stomp_heart_beats_both_ways(autojump_clock) -> None:
    async with open_dial(WS_MEMORY, websocket_ping_s=0.0) as dial:
        client = await connect(dial, beats="1000,1000")
        sockjs(client).frames.clear()
        for _ in range(20):
            await listen(client, 1)
            await sockjs(client).send_text('["\\n"]')
        assert len(sockjs(client).frames) >= 19
        await trio.sleep(3)
        (error,) = await client.read_to_end()
        assert error["code"] == "heart-beat-timeout"
        assert sockjs(client).end == [1008, "heart-beat-timeout"]


async def test_heartbeats_do_not_queue_for_a_client_that_does_not_read(autojump_clock) -> None:
    async with open_dial(
        WS_MEMORY, websocket_ping_s=0.0, diag_interval_s=0, write_stall_s=1000.0
    ) as dial:
        await dial.start()
        stream = dial.listener.connect_narrow()
        inner = WebSocketPipe(stream)
        await inner.shake_hands((), PATH)
        client = Client(SockJsPipe(inner, []))
        await client.connect("1.2", {"heart-beat": "0,0"})
        await client.subscribe("/t")
        other = await dial.connect(headers={"heart-beat": "0,0"})
        await other.publish("/t", b"x")
        await trio.sleep(200)  # it does not read
        assert (await client.receive()).body == b"x"
        await other.publish("/t", b"y")
        assert (await client.receive()).body == b"y"
        assert "h" not in sockjs(client).frames
        await trio.aclose_forcefully(stream)
        await until(lambda: len(dial.server.connections) == 1, 0.1)


def test_a_pulse_keeps_no_connection() -> None:
    class Gone:
        pass

    ended = Gone()
    pulse = SockJsPulse(weakref.ref(ended))  # type: ignore[arg-type]
    del ended
    assert pulse.look(5.0) == math.inf
    assert pulse.is_finished


# --- beside it ------------------------------------------------------------------------------------


@pytest.mark.covers("X14", "X13")
@pytest.mark.parametrize(
    ("path", "offers"), [(PATH, ("v12.stomp",)), (PATH, ("stomp",)), ("/portfolio/websocket", ())]
)
async def test_everything_else_is_plain_stomp(
    dial: Dial, path: str, offers: tuple[str, ...]
) -> None:
    pipe = WebSocketPipe(await dial.stream())
    await pipe.shake_hands(offers, path)
    client = Client(pipe)
    await client.connect()
    assert isinstance(pipe.messages[0], str)
    assert pipe.messages[0].startswith("CONNECTED\n")


@pytest.mark.covers("X14")
async def test_info_is_answered_on_the_port(dial: Dial) -> None:
    async def ask(origin: str) -> tuple[bytes, bytes]:
        stream = await dial.stream()
        await stream.send_all(
            f"GET /portfolio/info?t=1 HTTP/1.1\r\nHost: localhost\r\n{origin}\r\n".encode()
        )
        answer = b""
        while data := await stream.receive_some(65536):
            answer += data
        head, _, body = answer.partition(b"\r\n\r\n")
        return head, body

    head, body = await ask("")
    assert head.startswith(b"HTTP/1.1 200 ")
    record = [json.loads(body), json.loads((await ask(""))[1])]
    assert record[0]["entropy"] != record[1]["entropy"]
    assert all(0 <= each["entropy"] < 2**32 for each in record)
    head, _ = await ask("Origin: http://localhost:3000\r\n")
    assert b"Access-Control-Allow-Origin: http://localhost:3000\r\n" in head
    head, _ = await ask("Origin: https://evil.example\r\n")
    assert head.startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("is_unfit", [False, True])
async def test_an_ended_connection_is_freed_without_garbage_collection(is_unfit: bool) -> None:
    async with open_dial(WS_MEMORY, diag_interval_s=0) as dial:
        other = await dial.connect()
        gc.collect()
        gc.disable()  # it would hide objects that keep themselves alive
        known: list[weakref.ref[Connection]] = []
        try:
            for _ in range(5):
                client = await connect(dial)
                await client.subscribe("/t")
                known += map(weakref.ref, dial.server.connections)
                if is_unfit:
                    await other.publish("/t", b"\xff")
                    await client.read_to_end()
                await client.aclose()
            await until(lambda: len(dial.server.connections) == 1)
            await other.fence()
            # The other client, and one that a frame may still refer to.
            assert len({id(each()) for each in known if each() is not None}) <= 2
        finally:
            gc.enable()


# --- the client of SockJS -------------------------------------------------------------------------


@pytest.mark.foreign
@pytest.mark.covers("X14", "X07")
def test_stompjs_over_the_client_of_sockjs() -> None:
    node = node_or_skip()
    if not (JS / "node_modules" / "sockjs-client").is_dir():
        pytest.skip("sockjs-client IS NOT THERE (npm ci in tests/js): no test with it")
    with running_broker() as port:
        command = [node, str(JS / "sockjs.mjs"), str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done
    many = "😀" * 30_000
    assert [json.loads(line) for line in done.stdout.split("\n") if line] == [
        "plain",
        '"quoted" \\ back',
        "Grüße 茶 😀",
        "\u2028\x01\n",
        many,
        f"x{many}",
        ["ERROR", "reserved-destination"],
        [1002, "protocol-error"],
    ]
