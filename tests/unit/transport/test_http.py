"""The request head, the opening handshake and plain answers."""

import attrs
import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request
from wsproto.extensions import PerMessageDeflate

from trio_stomp.base import StompError
from trio_stomp.transport.http import (
    HttpError,
    HttpRequest,
    RequestReader,
    accept_websocket,
    encode_response,
)

# The key and its answer from RFC 6455 section 1.3.
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

HANDSHAKE = {
    "Host": "broker.example",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
}


def head(line: str, headers: list[tuple[str, str]]) -> bytes:
    return "\r\n".join([line, *(f"{n}: {v}" for n, v in headers), "", ""]).encode("latin-1")


def handshake(
    *more: tuple[str, str], line: str = "GET /ws HTTP/1.1", **changes: str | None
) -> HttpRequest:
    """Return a good handshake with ``changes``: header names with ``_``; None leaves one out."""
    changed = {name.replace("_", "-"): content for name, content in changes.items()}
    every = {**HANDSHAKE, **changed}
    headers = [(name, content) for name, content in every.items() if content is not None]
    request = RequestReader(4096).receive_data(head(line, [*headers, *more]))
    assert request is not None
    return request


def answer(data: bytes, method: str = "GET") -> tuple[int, dict[bytes, bytes], bytes]:
    """Read an answer as a client does; fail if it is incomplete or too long."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    response = client.next_event()
    assert isinstance(response, h11.Response)
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert client.their_state is h11.MUST_CLOSE
    assert client.trailing_data[0] == b""
    assert len({name for name, _ in response.headers}) == len(response.headers)
    return response.status_code, dict(response.headers), body


def refused(request: HttpRequest) -> HttpError:
    with pytest.raises(HttpError) as caught:
        accept_websocket(request)
    status, headers, body = answer(caught.value.response())
    assert status == caught.value.status
    assert body.decode() == caught.value.text + "\n"
    assert headers.items() >= {(n.lower().encode(), v.encode()) for n, v in caught.value.headers}
    return caught.value


# --- the head ---------------------------------------------------------------------------------

REQUEST = b"GET /ws?token=1 HTTP/1.1\r\nHost: x\r\nOrigin: http://a\r\n\r\n"


@given(st.binary(max_size=20), st.lists(st.integers(0, len(REQUEST) - 1)))
@settings(derandomize=True, deadline=None)
def test_head_is_read_in_any_pieces_and_later_bytes_are_kept(
    behind: bytes, cuts: list[int]
) -> None:
    reader = RequestReader(1000)
    position = 0
    for cut in sorted(set(cuts) - {0}):
        assert reader.receive_data(REQUEST[position:cut]) is None
        position = cut
    assert reader.receive_data(REQUEST[position:] + behind) == HttpRequest(
        method="GET", target="/ws?token=1", headers=((b"host", b"x"), (b"origin", b"http://a"))
    )
    assert reader.trailing == behind


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/", "/"),
        ("/ws", "/ws"),
        ("/ws?a=b/c?d", "/ws"),
        ("/?", "/"),
        ("//twice", "//twice"),
        ("http://host/ws?a", "/ws"),
        ("ws://host:80/a/b", "/a/b"),
        ("http://host", "/"),
        ("http://host?a", "/"),
        ("*", "/"),
    ],
)
def test_path_is_without_query_and_authority(target: str, path: str) -> None:
    assert HttpRequest("GET", target, ()).path == path


@pytest.mark.covers("W08")
@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: what\r\n\r\n", 501),
    ],
)
def test_malformed_head_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(HttpError) as caught:
        RequestReader(1000).receive_data(data)
    assert caught.value.status == status
    assert caught.value.text.startswith("bad request: ")
    assert "bytearray" not in caught.value.text
    assert isinstance(caught.value, StompError)
    assert answer(caught.value.response())[0] == status


@pytest.mark.covers("W24")
def test_head_over_the_limit_is_refused_whole_or_in_pieces() -> None:
    exact = RequestReader(len(REQUEST))
    assert exact.receive_data(REQUEST + b"what follows does not count") is not None
    with pytest.raises(HttpError, match=f"longer than {len(REQUEST) - 1} bytes") as caught:
        RequestReader(len(REQUEST) - 1).receive_data(REQUEST)
    assert caught.value.status == 431
    reader = RequestReader(100)
    assert reader.receive_data(b"GET / HTTP/1.1\r\nHost: x\r\nX: ") is None
    with pytest.raises(HttpError) as caught:
        reader.receive_data(b"x" * 100)
    assert caught.value.status == 431
    assert answer(caught.value.response())[0] == 431


# --- the handshake ----------------------------------------------------------------------------


@pytest.mark.covers("W04", "W05", "X02")
def test_handshake_of_the_rfc() -> None:
    upgrade = accept_websocket(handshake())
    assert attrs.astuple(upgrade) == (
        b"HTTP/1.1 101 Switching Protocols\r\n"
        b"Upgrade: websocket\r\n"
        b"Connection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + ACCEPT + b"\r\n\r\n",
        None,
    )


@pytest.mark.covers("W01")
@pytest.mark.parametrize(
    ("upgrade", "connection"),
    [
        ("WebSocket", "upgrade"),
        ("h2c, WEBSOCKET", "keep-alive, UPGRADE"),
        ("websocket,x", "Upgrade,x"),
        ("\twebsocket ", " ,Upgrade"),
    ],
)
def test_tokens_in_lists_whatever_their_case(upgrade: str, connection: str) -> None:
    request = handshake(Upgrade=upgrade, Connection=connection)
    assert request.wants_websocket
    assert ACCEPT in accept_websocket(request).response


@pytest.mark.covers("W01")
def test_tokens_in_several_headers() -> None:
    request = handshake(
        ("Connection", "keep-alive"), ("Upgrade", "websocket"), Upgrade="h2c", Connection="upgrade"
    )
    assert ACCEPT in accept_websocket(request).response


@pytest.mark.covers("W01", "W08")
@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(handshake(line="POST /ws HTTP/1.1"), id="POST"),
        pytest.param(handshake(line="GET /ws HTTP/1.0"), id="HTTP/1.0"),
        pytest.param(handshake(line="GET /ws HTTP/1.0", Host=None), id="no Host"),
        pytest.param(HttpRequest("GET", "/ws", handshake().headers[1:]), id="no Host, 1.1"),
        pytest.param(handshake(Connection=None), id="no Connection"),
        pytest.param(handshake(Connection="keep-alive"), id="other Connection"),
        pytest.param(handshake(Connection="upgraded"), id="longer Connection"),
        pytest.param(handshake(Upgrade=None), id="no Upgrade"),
        pytest.param(handshake(Upgrade="h2c"), id="other Upgrade"),
        pytest.param(handshake(Upgrade="websocket2"), id="longer Upgrade"),
        pytest.param(handshake(Upgrade="websöcket"), id="Upgrade not ASCII"),
    ],
)
def test_malformed_handshake_is_refused(request_: HttpRequest) -> None:
    assert refused(request_).status == 400


@pytest.mark.covers("W02")
@pytest.mark.parametrize(
    "keys",
    [
        [],
        [""],
        ["dGhlIHNhbXBsZSBub25jZQ"],  # padding missing
        ["dGhlIHNhbXBsZSBub25j"],  # 15 bytes
        ["dGhlIHNhbXBsZSBub25jZWY="],  # 17 bytes
        ["dGhlIHNhbXBsZSBub25jZQ!="],
        ["dGhlIHNh bXBsZSBub25jZQ=="],
        ["\xe4GhlIHNhbXBsZSBub25jZQ=="],
        [KEY, KEY],
    ],
)
def test_key_must_be_16_bytes_and_there_once(keys: list[str]) -> None:
    headers = [("Sec-WebSocket-Key", key) for key in keys]
    assert refused(handshake(*headers, Sec_WebSocket_Key=None)).status == 400


@pytest.mark.covers("W03")
@pytest.mark.parametrize(
    "versions", [[], [""], ["8"], ["12"], ["14"], ["013"], ["13, 8"], ["dreizehn"], ["13", "13"]]
)
def test_wrong_version_gets_the_supported_one(versions: list[str]) -> None:
    pairs = [("Sec-WebSocket-Version", version) for version in versions]
    error = refused(handshake(*pairs, Sec_WebSocket_Version=None))
    assert error.status == 426
    status, headers, _ = answer(error.response())
    assert status == 426
    assert headers[b"sec-websocket-version"] == b"13"
    assert headers[b"upgrade"] == b"websocket"
    assert b"Upgrade" in headers[b"connection"]


@pytest.mark.covers("W05", "X01", "X02")
@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        ([], None),
        ([""], None),
        (["mqtt"], None),
        (["V12.STOMP"], None),
        (["v12.stomp.x, xv12.stomp"], None),
        (["m\xf6tt, v12.stomp"], "v12.stomp"),
        (["stomp"], "stomp"),
        (["v10.stomp"], "v10.stomp"),
        (["stomp, v10.stomp"], "v10.stomp"),
        (["v10.stomp, v11.stomp, stomp"], "v11.stomp"),
        (["v10.stomp,v11.stomp,v12.stomp"], "v12.stomp"),
        (["v12.stomp", "v11.stomp"], "v12.stomp"),
        (["mqtt", "v11.stomp"], "v11.stomp"),
    ],
)
def test_best_subprotocol_offered_is_chosen(offers: list[str], chosen: str | None) -> None:
    upgrade = accept_websocket(handshake(*(("Sec-WebSocket-Protocol", o) for o in offers)))
    assert upgrade.subprotocol == chosen
    lines = upgrade.response.split(b"\r\n")
    found = [line for line in lines if line.lower().startswith(b"sec-websocket-protocol")]
    assert found == ([] if chosen is None else [f"Sec-WebSocket-Protocol: {chosen}".encode()])


@pytest.mark.covers("W04", "W06", "X01", "X13")
@pytest.mark.parametrize("target", ["/", "/ws", "/stomp", "/any/path?login=x"])
def test_client_of_wsproto_is_content_and_gets_no_extension(target: str) -> None:
    client = WSConnection(ConnectionType.CLIENT)
    offers, extensions = ["v11.stomp", "v12.stomp"], [PerMessageDeflate()]
    opening = Request("broker.example:61613", target, extensions, subprotocols=offers)
    request = RequestReader(1000).receive_data(client.send(opening))
    assert request is not None
    client.receive_data(accept_websocket(request).response)
    [event] = client.events()
    assert isinstance(event, AcceptConnection)
    assert event.subprotocol == "v12.stomp"
    assert event.extensions == []


# --- answers ----------------------------------------------------------------------------------


def test_answer_has_the_usual_headers() -> None:
    status, headers, body = answer(encode_response(200, (), "grüß".encode()))
    assert (status, body) == (200, "grüß".encode())
    assert headers == {
        b"x-content-type-options": b"nosniff",
        b"x-frame-options": b"DENY",
        b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
        b"referrer-policy": b"no-referrer",
        b"cross-origin-resource-policy": b"same-origin",
        b"cross-origin-opener-policy": b"same-origin",
        b"content-type": b"text/plain; charset=utf-8",
        b"content-length": b"6",
        b"connection": b"close",
        b"server": b"trio_stomp",
    }
    assert encode_response(200, (), b"").startswith(b"HTTP/1.1 200 OK\r\n")


def test_given_header_replaces_the_usual_one() -> None:
    given = (("content-type", "text/html"), ("X-More", "1"))
    _, headers, _ = answer(encode_response(404, given, b"x"))
    assert headers[b"content-type"] == b"text/html"
    assert headers[b"x-more"] == b"1"


def test_head_only_tells_the_length_and_leaves_the_body_out() -> None:
    whole = encode_response(200, (), b"x" * 1000)
    head_only = encode_response(200, (), b"x" * 1000, head_only=True)
    assert whole == head_only + b"x" * 1000
    assert answer(head_only, "HEAD")[1][b"content-length"] == b"1000"


def test_header_cannot_break_out_of_its_line() -> None:
    with pytest.raises(h11.LocalProtocolError):
        encode_response(200, (("X", "a\r\nSet-Cookie: b"),), b"")
