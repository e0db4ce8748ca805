"""Framing as far as it can be seen from outside (CONFORMANCE.md 2.1)."""

import pytest
import trio

from tests.support.fakes import Client, Dial, FrameReader, Received, bodies, frame_bytes

VERSIONS = ("1.0", "1.1", "1.2")


async def one_message(dial: Dial, writer: str, reader: str, raw: bytes) -> Received:
    """Return what a subscriber of version ``reader`` receives of ``raw``, sent in a session of
    ``writer``."""
    subscriber = await dial.connect(reader)
    await subscriber.subscribe("/t")
    publisher = await dial.connect(writer)
    await publisher.send_bytes(raw)
    await publisher.fence()
    messages = await subscriber.fence()
    assert len(messages) == 1
    return messages[0]


@pytest.mark.covers("F01", "F27", "F32", "X07")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b"SEND\ndestination:/t\n\nhello\0", b"hello"),
        (b"SEND\ndestination:/t\n\n\0", b""),
        (b"SEND\ndestination:/t\ncontent-length:3\n\na\0b\0", b"a\0b"),
        ("SEND\ndestination:/t\ncontent-length:4\n\n😀\0".encode(), "😀".encode()),
        (b"SEND\ndestination:/t\ncontent-length:0\n\n\0", b""),
    ],
)
async def test_a_frame_byte_by_byte(dial: Dial, version: str, raw: bytes, body: bytes) -> None:
    client = await dial.connect(version)
    await client.subscribe("/t")
    for place in range(len(raw)):
        await client.send_bytes(raw[place : place + 1])
    assert (await client.receive()).body == body


@pytest.mark.covers("F02", "F25")
async def test_in_1_1_a_cr_belongs_to_the_value(dial: Dial) -> None:
    raw = b"SEND\ndestination:/t\nmark:a\r\n\nx\0"
    assert (await one_message(dial, "1.1", "1.1", raw))["mark"] == "a\r"
    assert (await one_message(dial, "1.1", "1.2", raw))["mark"] == "a\r"
    to_1_0 = await one_message(dial, "1.1", "1.0", raw)
    assert to_1_0.get("mark") is None
    assert b"\r" not in to_1_0.raw


@pytest.mark.covers("F05", "F06")
@pytest.mark.parametrize("version", VERSIONS)
async def test_line_ends_and_nuls_between_frames(dial: Dial, version: str) -> None:
    client = await dial.open()
    await client.send_bytes(b"\n\n\r\n\0\n")
    await client.connect(version)
    await client.subscribe("/t")
    noise = b"\0\n\n\0" + (b"\r\n" if version == "1.2" else b"")
    await client.send_bytes(noise + frame_bytes("SEND", {"destination": "/t"}, b"1") + noise)
    await client.send_bytes(frame_bytes("SEND", {"destination": "/t"}, b"2") + noise)
    assert bodies(await client.fence()) == [b"1", b"2"]


async def read_on(client: Client, count: int = 0, mark: bytes = b"\0") -> bytes:
    """Every byte until ``mark`` has come so often; 0 = until the broker closes."""
    found = b""
    with trio.fail_after(10):
        while not count or found.count(mark) < count:
            data = await client.pipe.receive_bytes()
            found += data
            if not data:
                break
    return found


@pytest.mark.covers("F05")
@pytest.mark.parametrize("version", VERSIONS)
async def test_the_broker_writes_a_line_end_after_each_nul(dial: Dial, version: str) -> None:
    """Clients wait for it (ActiveMQ's), or skip a byte behind the NUL whatever it is (PHP's)."""
    client = await dial.open()
    greeting = {} if version == "1.0" else {"accept-version": version, "host": "test"}
    big = b"x" * 300_000
    script = [
        frame_bytes("CONNECT", greeting),
        frame_bytes("SUBSCRIBE", {"destination": "/t", "id": "1", "receipt": "r1"}),
        frame_bytes("SEND", {"destination": "/t", "receipt": "r2"}, b"one"),
        frame_bytes("SEND", {"destination": "/t"}, b"two"),
        frame_bytes("SEND", {"destination": "/t"}, b"three"),
        frame_bytes("SEND", {"destination": "/t"}, big),
        frame_bytes("SEND", {"destination": "/t"}),
        frame_bytes("SEND", {"destination": "/queue/b"}, b"four"),
        frame_bytes("SUBSCRIBE", {"destination": "/queue/b", "id": "2", "browser": "true"}),
        frame_bytes("SUBSCRIBE", {"destination": "/queue/b", "id": "3"}),
    ]
    await client.send_bytes(b"".join(script))
    data = await read_on(client, 2, b"four")
    await client.send_bytes(frame_bytes("BOGUS"))
    data += await read_on(client)
    found, seen = [], FrameReader()
    seen.version = version
    seen.feed(data)
    while (frame := seen.next()) is not None:
        found.append((frame.command, frame.body))
        assert frame.raw.endswith(b"\0\n"), frame.command
    assert seen.rest == b""
    assert seen.heartbeats == 0
    assert found[0][0] == "CONNECTED"
    assert found[-1][0] == "ERROR"
    assert sorted(found[1:-1]) == sorted(
        [
            *(("RECEIPT", b""), ("RECEIPT", b"")),
            *(("MESSAGE", each) for each in (b"one", b"two", b"three", big, b"")),
            *(("MESSAGE", b"four"), ("MESSAGE", b""), ("MESSAGE", b"four")),
        ]
    )


@pytest.mark.covers("F05")
async def test_an_error_before_connect_ends_in_a_line_feed_too(
    raw_dial: Dial,
) -> None:
    client = await raw_dial.open()
    await client.send_bytes(b"SEND\ndestination:/t\n\n\0")
    data = await read_on(client)
    assert data.startswith(b"ERROR\n")
    assert data.endswith(b"\0\n")


@pytest.mark.covers("F09", "F08")
@pytest.mark.parametrize("version", VERSIONS)
async def test_utf8_headers_arrive(dial: Dial, version: str) -> None:
    raw = "SEND\ndestination:/t\nmärk:€😀\n\nx\0".encode()
    for reader in VERSIONS:
        assert (await one_message(dial, version, reader, raw))["märk"] == "€😀"


@pytest.mark.covers("F10", "F11")
@pytest.mark.parametrize(
    ("version", "value"), [("1.0", "a b "), ("1.1", "  a b "), ("1.2", "  a b ")]
)
async def test_padding(dial: Dial, version: str, value: str) -> None:
    raw = b"SEND\ndestination:/t\nmark:  a b \n\nx\0"
    assert (await one_message(dial, version, "1.2", raw))["mark"] == value


@pytest.mark.covers("F12", "F13")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_raw_colon_in_a_value(dial: Dial, version: str) -> None:
    raw = b"SEND\ndestination:/t\nmark:a:b:c\n\nx\0"
    for reader in VERSIONS:
        message = await one_message(dial, version, reader, raw)
        assert message["mark"] == "a:b:c"
        written = b"mark:a:b:c\n" if reader == "1.0" else b"mark:a\\cb\\cc\n"
        assert written in message.raw


@pytest.mark.covers("F14")
@pytest.mark.parametrize("version", VERSIONS)
async def test_empty_values(dial: Dial, version: str) -> None:
    raw = b"SEND\ndestination:/t\nmark:\nother:1\n\nx\0"
    assert (await one_message(dial, version, "1.0", raw)).get("mark") is None
    assert (await one_message(dial, version, "1.1", raw))["mark"] == ""
    assert (await one_message(dial, version, "1.2", raw))["other"] == "1"


@pytest.mark.covers("F17", "F18", "F21")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
async def test_escapes_of_names_and_values(dial: Dial, version: str) -> None:
    raw = (
        rb"""SEND
destination:/t
na\cme\\\n:a\nb\\c\cd\\n

x"""
        + b"\0"
    )
    message = await one_message(dial, version, "1.2", raw)
    assert message["na:me\\\n"] == "a\nb\\c:d\\n"
    message = await one_message(dial, version, "1.1", raw)
    assert message["na:me\\\n"] == "a\nb\\c:d\\n"


@pytest.mark.covers("F18", "F25")
async def test_1_2_has_an_escape_for_cr(dial: Dial) -> None:
    raw = b"SEND\ndestination:/t\nmark:a\\rb\n\nx\0"
    assert b"mark:a\\rb\n" in (await one_message(dial, "1.2", "1.2", raw)).raw
    assert b"mark:a\rb\n" in (await one_message(dial, "1.2", "1.1", raw)).raw
    assert (await one_message(dial, "1.2", "1.0", raw)).get("mark") is None


@pytest.mark.covers("F23", "F24")
async def test_1_0_knows_no_escapes(dial: Dial) -> None:
    raw = b"SEND\ndestination:/t\nmark:a\\n\\c\\\\\\x\n\nx\0"
    assert (await one_message(dial, "1.0", "1.0", raw))["mark"] == r"a\n\c\\\x"
    to_1_2 = await one_message(dial, "1.0", "1.2", raw)
    assert to_1_2["mark"] == r"a\n\c\\\x"


@pytest.mark.covers("F24")
@pytest.mark.parametrize("name", [r"mark", r"in\njected"])
async def test_no_header_breaks_out_of_its_line(dial: Dial, name: str) -> None:
    """A 1.0 reader has no escape for a line feed: it must not be sent one."""
    head = f"SEND\ndestination:/t\nsafe:1\n{name}:a\\nmessage-id\\cevil\\n\\nbody\n\nx\0"
    message = await one_message(dial, "1.2", "1.0", head.encode())
    assert message.body == b"x"
    assert message["safe"] == "1"
    assert b"evil" not in message.raw


@pytest.mark.covers("F24", "R01")
async def test_a_destination_that_1_0_cannot_carry(dial: Dial) -> None:
    subscriber = await dial.connect("1.0")
    await subscriber.send("SUBSCRIBE", {"destination": "/*"})
    await subscriber.fence()
    publisher = await dial.connect()
    await publisher.publish("/a\nb:c", b"x", receipt=True)
    for message in await subscriber.fence():
        assert message.body == b"x"
        assert b"a\nb" not in message.raw


@pytest.mark.covers("F29", "F30")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("length", ["0", "5", "999999999999", "nonsense", "-1"])
async def test_content_length_elsewhere_is_ignored(dial: Dial, version: str, length: str) -> None:
    client = await dial.connect(version)
    await client.subscribe("/t", headers={"content-length": length})
    await client.publish("/t", b"x")
    assert (await client.receive()).body == b"x"


@pytest.mark.covers("F27", "F33", "F34", "F35", "X05")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "body", [b"\0", b"a\0b\0\0", bytes(range(256)), b"\xff\xfe", "é€😀".encode(), b"\n\n\0\n"]
)
async def test_bodies_arrive_as_they_are(dial: Dial, version: str, body: bytes) -> None:
    client = await dial.connect(version)
    await client.subscribe("/t")
    pairs = [("content-type", "application/x"), ("content-length", str(len(body)))]
    await client.publish("/t", body, headers=pairs)
    message = await client.receive()
    assert message.body == body
    assert message["content-length"] == str(len(body))
    assert message["content-type"] == "application/x"


@pytest.mark.covers("F36")
@pytest.mark.parametrize("version", VERSIONS)
async def test_first_of_a_repeated_header_counts(dial: Dial, version: str) -> None:
    raw = b"SEND\ndestination:/t\nfoo:a\nfoo:b\ndestination:/x\ncontent-length:3\n"
    raw += b"content-length:1\nreceipt:r1\nreceipt:r2\n\na\0b\0"
    subscriber, client = await dial.connect(), await dial.connect(version)
    await subscriber.subscribe("/*")
    await client.send_bytes(raw)
    assert (await client.receive())["receipt-id"] == "r1"
    (message,) = await subscriber.fence()
    assert (message["destination"], message["foo"], message.body) == ("/t", "a", b"a\0b")
    assert message.names.count("foo") == 1
    assert message.names.count("destination") == 1


@pytest.mark.covers("F37", "F39")
@pytest.mark.parametrize("reader", VERSIONS)
async def test_the_brokers_own_headers_win(dial: Dial, reader: str) -> None:
    raw = b"SEND\ndestination:/t\nmessage-id:forged\nsubscription:forged\nack:forged\n"
    raw += b"redelivered:true\nreceipt:r\nkept:1\n\nx\0"
    subscriber, client = await dial.connect(reader), await dial.connect()
    await subscriber.subscribe("/t", id="mine")
    await client.send_bytes(raw)
    (message,) = await subscriber.fence()
    assert b"forged" not in message.raw
    assert message["subscription"] == "mine"
    assert message["kept"] == "1"
    assert message.get("receipt") is None
    assert len(set(message.names)) == len(message.names)


@pytest.mark.covers("F42")
async def test_the_diag_command_is_an_extension(dial: Dial) -> None:
    client = await dial.open()
    await client.send("DIAG", {}, b"session-size")
    answer = await client.receive()
    assert answer.command == "DIAG"
    assert answer.body == b"session-size:1"
    await client.connect()
    await client.send("DIAG", {}, b"nonsense")
    await client.expect_error("unknown-query")
