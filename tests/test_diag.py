"""The diagnostics: the schema, the records, the topics, the events, and that silence is free."""

import ast
import gc
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio
import trio.testing
from attrs import define, field, frozen

from trio_stomp import CloseReason, ServerHandle, Settings
from trio_stomp import _schema as schema
from trio_stomp._security import Security
from trio_stomp._serve import _assemble
from trio_stomp.broker import Client, Delivery, Histogram
from trio_stomp.diag import PAGE, PREFIX, SCHEMA_VERSION, TABLES, Field, Reporter, Table
from trio_stomp.diag import _process as process
from trio_stomp.diag import _reporter as reporter_module
from trio_stomp.protocol import Subscribed
from trio_stomp.server import Connection, Entrance, Server

WALL = 1_767_225_600.25  # 2026-01-01T00:00:00.250000Z
INTERVAL_S = 5.0
PERIODIC = {table.topic: table for table in schema.REPORTED}


def wall() -> float:
    """Unix time, as far as these tests care."""
    return WALL


@frozen
class Message:
    """One MESSAGE of the DIAG stream."""

    topic: str
    headers: dict[str, str]
    body: dict[str, object]

    @property
    def items(self) -> list[dict[str, object]]:
        """The objects in the list of the body."""
        listed = self.body["items"]
        assert isinstance(listed, list)
        return listed

    @property
    def offset(self) -> int:
        """Its number in the stream."""
        number = self.body["offset"]
        assert isinstance(number, int)
        return number


def read_frames(data: bytes) -> tuple[list[tuple[str, dict[str, str], bytes]], bytes]:
    """Frames whose bodies hold no NUL, and what is left; WebSocket headers make some illegible."""
    *whole, rest = data.split(b"\0")
    frames = []
    for raw in whole:
        head, _, body = raw.lstrip(b"\n").partition(b"\n\n")
        command, *lines = head.decode(errors="replace").split("\n")
        pairs = [line.partition(":") for line in lines]
        frames.append((command, {name: text for name, _, text in pairs}, body))
    return frames, rest


def read_messages(data: bytes) -> list[Message]:
    return [
        Message(headers["destination"], headers, json.loads(body))
        for command, headers, body in read_frames(data)[0]
        if command == "MESSAGE" and headers["destination"].startswith("DIAG")
    ]


# --- a broker without tasks, for what needs no connections ----------------------------------------


@define(eq=False)
class Paper:
    """An outbox that keeps what it is given; or refuses it."""

    data: bytes = b""
    takes: bool = True
    closed: CloseReason | None = None

    def stage(self, prefix: bytes, delivery: Delivery) -> bool:
        self.data += prefix.join(delivery.tails) if self.takes else b""
        return self.takes

    def stage_frame(self, frame: bytes) -> None:
        self.data += frame

    def drop_oldest(self, size: int) -> int:
        return 0

    def has_room(self) -> bool:
        return True

    def discard(self) -> int:
        self.data = b""
        return 0

    def pause_reading(self, *, paused: bool) -> None:
        raise AssertionError("nobody is told to wait here")

    def close(self, reason: CloseReason) -> None:
        self.closed = reason

    def messages(self) -> list[Message]:
        """What came since the last call."""
        data, self.data = self.data, b""
        return read_messages(data)


def assemble(**options: object) -> tuple[Server, Reporter]:
    """A broker that nobody runs."""
    settings = Settings.of(**({"diag_interval_s": INTERVAL_S} | options))
    server = _assemble(settings, Security(settings), ServerHandle(()))
    reporter = Reporter(settings.diag, server, wall=wall)
    server.assemble(server.broker, reporter)
    return server, reporter


def listen(server: Server, *destinations: str) -> Paper:
    """Subscribe somebody; what reaches it."""
    paper = Paper()
    client = Client("listener", paper, "here")
    asked = [Subscribed(name, name, "auto", (), None) for name in destinations]
    server.broker.apply(client, asked, 0.0, 0.0)
    server.broker.events.take()  # that it subscribed
    return paper


def run_interval(reporter: Reporter, now: float = 0.0, turns: int = 50) -> None:
    """One tick, and as many turns as the lists may need."""
    reporter.tick(now)
    for _ in range(turns):
        reporter.end_turn(now)


# --- a broker that runs, in memory ----------------------------------------------------------------


class MemoryListener(trio.abc.Listener[trio.abc.Stream]):
    """Accepts what ``connect`` made."""

    def __init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[trio.abc.Stream](1000)

    async def accept(self) -> trio.abc.Stream:
        return await self._receiver.receive()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()

    def connect(self) -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        self.hand_over(theirs)
        return ours

    def hand_over(self, stream: trio.abc.Stream) -> None:
        """Have the broker accept this one."""
        self._sender.send_nowait(stream)


@define(eq=False)
class Peer:
    """A client's end of a connection."""

    stream: trio.abc.Stream
    rest: bytes = b""
    frames: list[tuple[str, dict[str, str], bytes]] = field(factory=list)

    async def send(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        lines = "".join(f"{name.replace('_', '-')}:{text}\n" for name, text in headers.items())
        await self.stream.send_all(f"{command}\n{lines}\n".encode() + body + b"\0")

    async def read(self) -> None:
        """Collect what the broker sends, until one side closes."""
        try:
            while data := await self.stream.receive_some(65536):
                frames, self.rest = read_frames(self.rest + data)
                self.frames += frames
        except trio.ClosedResourceError:
            pass

    async def settle(self) -> None:
        """Let the broker do, and this side read, all that can be done without time passing."""
        await trio.testing.wait_all_tasks_blocked()

    async def open(self, **headers: str) -> None:
        await self.send("CONNECT", accept_version="1.2", host="test", **headers)
        await self.settle()

    def messages(self) -> list[Message]:
        """DIAG messages that came since the last call."""
        frames, self.frames = self.frames, []
        return [
            Message(headers["destination"], headers, json.loads(body))
            for command, headers, body in frames
            if command == "MESSAGE" and headers["destination"].startswith("DIAG")
        ]


@define(eq=False)
class Running:
    """A broker in memory that serves until the test ends."""

    server: Server
    reporter: Reporter
    listener: MemoryListener
    nursery: trio.Nursery

    def dial(self) -> Peer:
        """A connection on which nothing was said."""
        peer = Peer(self.listener.connect())
        self.nursery.start_soon(peer.read)
        return peer

    async def peer(self, *destinations: str, **headers: str) -> Peer:
        """A client with an open session, subscribed to ``destinations``."""
        peer = self.dial()
        await peer.open(**headers)
        for name in destinations:
            await peer.send("SUBSCRIBE", destination=name, id=name)
        await peer.settle()
        return peer


@asynccontextmanager
async def running(**options: object) -> AsyncIterator[Running]:
    await trio.sleep(1000)  # no clock of the real world begins at 0
    server, reporter = assemble(**options)
    listener, handle, started = MemoryListener(), ServerHandle(()), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, [Entrance(listener)], handle, started.set)
        await started.wait()
        yield Running(server, reporter, listener, nursery)
        nursery.cancel_scope.cancel()


UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: v12.stomp\r\n\r\n"
)


def websocket_frame(payload: bytes) -> bytes:
    """A text message with a mask of zeros."""
    assert len(payload) < 126
    return bytes((0x81, 0x80 | len(payload))) + bytes(4) + payload


async def open_websocket(broker: Running) -> Peer:
    peer = broker.dial()
    await peer.stream.send_all(UPGRADE)
    await peer.settle()
    await peer.stream.send_all(websocket_frame(b"CONNECT\naccept-version:1.2\nhost:test\n\n\0"))
    await peer.settle()
    return peer


# --- the schema -----------------------------------------------------------------------------------

PYTHON_TYPES: dict[str, Callable[[object], bool]] = {
    schema.BIGINT: lambda value: type(value) is int,
    schema.DOUBLE: lambda value: type(value) is float,
    schema.STRING: lambda value: type(value) is str,
    schema.BOOLEAN: lambda value: type(value) is bool,
    schema.TIMESTAMP: lambda value: is_timestamp(value),
    schema.DOUBLES: lambda value: is_list(value, float),
    schema.BIGINTS: lambda value: is_list(value, int),
}


def is_timestamp(value: object) -> bool:
    assert isinstance(value, str)
    return datetime.strptime(value, "%Y-%m-%dT%H:%M:%S.%f%z").tzinfo == UTC and len(value) == 27


def is_list(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(type(each) is kind for each in value)


def assert_matches(record: dict[str, object], fields: Iterable[Field]) -> None:
    """The same fields, and values of their types."""
    fields = list(fields)
    assert set(record) == {each.name for each in fields}
    for each in fields:
        value = record[each.name]
        fits = each.nullable if value is None else PYTHON_TYPES[each.type](value)
        assert fits, (each.name, value)


def assert_message_matches(message: Message) -> None:
    """The body is what the schema says of its topic."""
    table = PERIODIC.get(message.topic, schema.EVENT)
    body = dict(message.body)
    assert message.headers["content-type"] == "application/json"
    if table.is_list:
        for item in message.items:
            assert_matches(item, table.fields)
        del body["items"]
        assert_matches(body, (*PREFIX, *PAGE, *table.beside))
    else:
        assert_matches(body, table.columns)
    assert body["v"] == SCHEMA_VERSION
    assert body["interval_s"] == (0.0 if table is schema.EVENT else INTERVAL_S)


def test_the_schema_needs_nothing_but_attrs() -> None:
    tree = ast.parse(Path(schema.__file__).read_text(encoding="utf-8"))
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [ast.unparse(node) for node in imported] == ["from attrs import frozen"]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_tables_are_sound(table: Table) -> None:
    names = [each.name for each in (*table.columns, *PAGE, *table.beside)]
    assert len(names) == len(set(names))
    assert "items" not in names
    assert {each.type for each in table.columns} <= set(PYTHON_TYPES)
    assert all(each.meaning for each in table.columns)
    assert {key for _, key in table.headers} <= set(names)


DOCUMENT = Path(__file__).parent.parent / "docs" / "diag.md"
SECTION = re.compile(r"^### `(DIAG/[^`]+)`$(.*?)(?=^###? )", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("table", [*schema.REPORTED, schema.EVENT], ids=lambda table: table.name)
def test_the_documentation_tells_what_the_schema_tells(table: Table) -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    sections = {topic.partition("<")[0]: text for topic, text in SECTION.findall(document)}
    section = sections[table.topic]
    for each in (*table.beside, *table.fields):
        kind = each.type + (" or null" if each.nullable else "")
        assert f"| `{each.name}` | {kind} | {each.meaning} |" in section
    examples = EXAMPLE.findall(section)
    assert examples
    for example in examples:
        message = Message(table.topic, {"content-type": "application/json"}, json.loads(example))
        assert_message_matches(message)


async def test_all_topics_belong_to_the_broker_alone() -> None:
    server, _ = assemble()
    assert len(PERIODIC) == 8
    for topic in [*PERIODIC, schema.EVENT.topic + "connect"]:
        assert server.broker.routes.open(topic).reserved


# --- the records ----------------------------------------------------------------------------------


async def test_every_record_matches_the_schema(autojump_clock: trio.testing.MockClock) -> None:
    async with running(ttl_ms=60_000) as broker:
        observer = await broker.peer("DIAG*", login="anna")
        browser = await open_websocket(broker)
        reader = await broker.peer("/topic/a")
        await reader.send("SEND", b"hello", destination="/topic/a")
        await reader.send("SEND", b"for later", destination="/topic/later")
        await observer.settle()
        await trio.sleep(INTERVAL_S)
        await observer.settle()
        messages = observer.messages()
        for message in messages:
            assert_message_matches(message)
        periodic = {message.topic: message for message in messages if message.topic in PERIODIC}
        assert set(periodic) == set(PERIODIC)
        for table in schema.REPORTED:
            assert not table.is_list or periodic[table.topic].items, table.name
        assert len({message.body["ts"] for message in periodic.values()}) == 1
        await browser.stream.aclose()


async def test_records_tell_what_happened(autojump_clock: trio.testing.MockClock) -> None:
    async with running(ttl_ms=60_000) as broker:
        observer = await broker.peer(*PERIODIC, login="anna")
        reader = await broker.peer("/topic/a")
        await reader.send("SEND", b"hello", destination="/topic/a")
        await reader.send("SEND", b"for later", destination="/topic/later")
        await trio.sleep(INTERVAL_S)
        await observer.settle()
        told = {message.topic: message for message in observer.messages()}
    anna = next(item for item in told["DIAG/connections"].items if item["user"] == "anna")
    assert (anna["state"], anna["stomp_version"], anna["transport"]) == ("open", "1.2", "tcp")
    assert (anna["subscriptions"], anna["frames_in_total"]) == (8, 9)
    assert anna["connected_at"] == "2025-12-31T23:59:55.250000Z"
    assert anna["last_in_age_s"] == INTERVAL_S
    items = {item["destination"]: item for item in told["DIAG/destinations"].items}
    assert set(items) == {"/topic/a", "/topic/later"}
    a, later = items["/topic/a"], items["/topic/later"]
    assert (a["type"], a["subscribers"], a["enqueued_total"]) == ("topic", 1, 1)
    assert (a["bytes_in_total"], a["delivered_total"], a["depth"]) == (5, 1, 0)
    assert (later["subscribers"], later["delivered_total"], later["depth"]) == (0, 0, 1)
    waiting, parked = told["DIAG/queues"].items
    assert (waiting["destination"], waiting["capacity"]) == ("input", 1_000_000)
    assert (parked["destination"], parked["stale_depth"]) == ("/topic/later", 1)
    assert parked["oldest_input_age_s"] == INTERVAL_S
    stages = {(item["destination"], item["stage"]) for item in told["DIAG/latency"].items}
    assert stages == {
        ("/topic/a", "ingress"),
        ("/topic/a", "delivery"),
        ("/topic/later", "ingress"),
    }
    assert told["DIAG/stale"].body["stale_queue_size"] == 1
    assert told["DIAG/process"].body["uptime_s"] == INTERVAL_S


async def test_the_seeds_headers_repeat_the_body(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as broker:
        observer = await broker.peer("DIAG/session", "DIAG/ws_buffer", "DIAG/stale")
        await open_websocket(broker)
        await trio.sleep(INTERVAL_S)
        await observer.settle()
        told = {message.topic: message for message in observer.messages()}
    session, buffers, stale = (told[f"DIAG/{name}"] for name in ("session", "ws_buffer", "stale"))
    figures = {"clients": 2, "websockets": 1, "stomp_connected": 2, "subscriptions": 3}
    for name, figure in figures.items():
        assert (session.headers[name], session.body[name]) == (str(figure), figure)
    for name in ("allocated", "hits", "misses"):
        assert buffers.headers[name] == str(buffers.body[name])
    for name in ("input-queue-size", "output-queue-size", "stale-queue-size"):
        assert stale.headers[name] == str(stale.body[name.replace("-", "_")]) == "0"


async def test_split_websocket_frames_are_counted(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as broker:
        observer = await broker.peer("DIAG/ws_buffer")
        browser = await open_websocket(broker)
        whole = websocket_frame(b"SEND\ndestination:/topic/a\n\nx\0")
        large = bytes((0x82, 0xFE)) + (20_000).to_bytes(2, "big") + bytes(4) + b"\n" * 20_000
        # Three frames in pieces; the last piece of one read may begin the next.
        for piece in (whole[:1], whole[1:3], whole[3:] + whole[:9], whole[9:]):
            await browser.stream.send_all(piece)
            await browser.settle()
        for piece in (large[:10_000], large[10_000:15_000], large[15_000:] + whole[:5]):
            await browser.stream.send_all(piece)
            await browser.settle()
        await trio.sleep(INTERVAL_S)
        await observer.settle()
        body = observer.messages()[0].body
    assert body["underruns_fixed"] == 3
    assert body["hits"] == 5
    assert body["allocated"] == 5
    assert body["dropped_frames"] == 0
    assert body["cache_entries"] == broker.server.codecs.cached_heads > 0


async def test_waiting_output_is_measured(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as broker:
        # Whoever writes to such a stream waits until the other side has read.
        ours, theirs = trio.testing.lockstep_stream_pair()
        broker.listener.hand_over(theirs)
        await ours.send_all(b"CONNECT\naccept-version:1.2\nhost:test\n\n\0")
        await trio.sleep(3)
        data = await ours.receive_some(65536)
        await trio.testing.wait_all_tasks_blocked()
        outbox = next(iter(broker.server.connections)).outbox
        assert outbox.peak_bytes == len(data) > 0
        assert outbox.blocked_s == 3.0


async def test_who_was_told_an_error_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    async with running(diag_interval_s=1.0, linger_s=100.0) as broker:
        observer = await broker.peer("DIAG/connections")
        await broker.peer(login="bob")
        guilty = await broker.peer(login="carl")
        await guilty.send("NONSENSE")
        await trio.sleep(1)
        await observer.settle()
        items = {item["user"]: item for item in observer.messages()[0].items}
    assert (items["bob"]["errors_total"], items["bob"]["state"]) == (0, "open")
    assert (items["carl"]["errors_total"], items["carl"]["state"]) == (1, "closed")


async def test_wildcard_subscribers_are_counted() -> None:
    server, reporter = assemble()
    server.broker.routes.open("/topic/a")
    paper = listen(server, "DIAG/destinations", "/topic/*")
    run_interval(reporter)
    assert [item["subscribers"] for item in paper.messages()[0].items] == [1]


# --- the stream -----------------------------------------------------------------------------------


async def test_offsets_have_no_gap_over_all_topics(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as broker:
        observer = await broker.peer("DIAG*")
        for _ in range(3):
            visitor = await broker.peer("/topic/a")
            await visitor.send("UNSUBSCRIBE", id="/topic/a")
            await visitor.stream.aclose()
            await trio.sleep(INTERVAL_S)
            await observer.settle()
        messages = observer.messages()
    assert len({message.topic for message in messages}) >= 11
    assert [message.offset for message in messages] == list(range(len(messages)))
    assert {message.body["epoch"] for message in messages} == {broker.reporter.stream.epoch}
    assert len({message.body["broker_id"] for message in messages}) == 1


async def test_each_start_is_an_epoch_of_its_own_and_the_name_can_be_chosen() -> None:
    (_, one), (_, two) = assemble(diag_broker_id="north"), assemble()
    assert one.stream.epoch != two.stream.epoch
    assert one.stream.broker_id == "north"
    assert two.stream.broker_id
    assert one.stream.next_offset == 0


async def test_nothing_is_computed_while_nobody_listens() -> None:
    class Untouchable(dict[Connection, None]):
        def __iter__(self) -> Iterator[Connection]:
            raise AssertionError("somebody looked")

        def __len__(self) -> int:
            raise AssertionError("somebody counted")

    server, reporter = assemble()
    server.connections = Untouchable()
    before = len(callbacks())
    run_interval(reporter)
    assert reporter.stream.next_offset == 0
    assert server.broker.fan_out.messages == 0
    assert len(gc.callbacks) == before


@pytest.mark.parametrize("topic", PERIODIC)
async def test_only_what_is_heard_is_published(topic: str) -> None:
    server, reporter = assemble()
    paper = listen(server, topic)
    run_interval(reporter)
    assert [(message.topic, message.offset) for message in paper.messages()] == [(topic, 0)]
    assert reporter.stream.next_offset == server.broker.fan_out.messages == 1


async def test_a_long_list_comes_in_parts_each_in_a_turn_of_its_own() -> None:
    server, reporter = assemble()
    names = {f"/topic/{number}" for number in range(2_500)}
    for name in names:
        server.broker.routes.open(name)
    paper = listen(server, "DIAG/destinations")
    reporter.tick(0.0)
    assert paper.messages() == []
    parts = []
    for _ in range(4):
        reporter.end_turn(0.0)
        parts.append(paper.messages())
    assert [len(messages) for messages in parts] == [1, 1, 1, 0]
    messages = [message for each in parts for message in each]
    assert [message.offset for message in messages] == [0, 1, 2]
    assert [(m.body["part"], m.body["parts"]) for m in messages] == [(1, 3), (2, 3), (3, 3)]
    assert [len(message.items) for message in messages] == [1000, 1000, 500]
    assert {item["destination"] for message in messages for item in message.items} == names


async def test_parts_that_nobody_hears_any_more_take_no_offset() -> None:
    server, reporter = assemble()
    for number in range(2_500):
        server.broker.routes.open(f"/topic/{number}")
    client = Client("listener", Paper(), "here")
    asked = Subscribed("1", "DIAG/destinations", "auto", (), None)
    server.broker.apply(client, [asked], 0.0, 0.0)
    reporter.tick(0.0)
    reporter.end_turn(0.0)
    server.broker.forget(client, CloseReason.CLIENT_CLOSED, 0.0)
    reporter.end_turn(0.0)
    reporter.end_turn(0.0)
    assert reporter.stream.next_offset == 1


async def test_an_interval_lists_a_bounded_number_and_the_next_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporter_module, "MAX_LISTED", 40)
    server, reporter = assemble()
    paper = listen(server, "DIAG/destinations")
    for number in range(99):
        server.broker.routes.open(f"/topic/{number}")
    total = len(server.broker.routes)
    told = []
    for _ in range(4):
        run_interval(reporter)
        told.append([item["destination"] for m in paper.messages() for item in m.items])
    assert all(len(names) <= 40 for names in told)
    assert total > 99
    assert {name for names in told[:3] for name in names} == {f"/topic/{n}" for n in range(99)}
    assert told[3] == told[0]


async def test_lists_that_are_not_out_yet_are_not_planned_again() -> None:
    server, reporter = assemble()
    for number in range(2_500):
        server.broker.routes.open(f"/topic/{number}")
    paper = listen(server, "DIAG/destinations", "DIAG/session")
    reporter.tick(0.0)
    reporter.end_turn(0.0)
    reporter.tick(5.0)
    for _ in range(10):
        reporter.end_turn(5.0)
    topics = [message.topic for message in paper.messages()]
    assert topics.count("DIAG/destinations") == 3
    assert topics.count("DIAG/session") == 2


async def test_an_interval_of_0_means_no_statistics(autojump_clock: trio.testing.MockClock) -> None:
    async with running(diag_interval_s=0.0) as broker:
        observer = await broker.peer("DIAG*")
        observer.messages()
        await trio.sleep(100)
        await broker.peer()
        await observer.settle()
        assert {message.topic for message in observer.messages()} == {"DIAG/event/connect"}


async def test_a_bug_in_the_statistics_does_not_end_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, reporter = assemble()
    paper = listen(server, "DIAG/process", "DIAG/latency", "DIAG/event/drop")
    reporter.wall = lambda: float("nan")
    reporter.tick(0.0)
    assert "statistics of this interval are incomplete" in caplog.text
    caplog.clear()
    server.broker.events.tell("drop", reason="test")
    reporter.end_turn(0.0)
    assert "events or statistics are incomplete" in caplog.text
    reporter.wall = wall
    run_interval(reporter, 5.0)
    messages = paper.messages()
    assert [message.offset for message in messages] == [0, 1, 2]
    assert told(messages) == [("drop", "", "test", "")]


# --- events ---------------------------------------------------------------------------------------


def told(messages: Sequence[Message]) -> list[tuple[object, ...]]:
    """What events say."""
    keys = ("name", "destination", "reason", "detail")
    return [
        tuple(message.body[key] for key in keys)
        for message in messages
        if message.topic == f"DIAG/event/{message.body.get('name')}"
    ]


async def test_events_of_a_session(autojump_clock: trio.testing.MockClock) -> None:
    async with running(diag_interval_s=0.0) as broker:
        observer = await broker.peer("DIAG/event/*")
        observer.messages()
        visitor = await broker.peer("/topic/a", login="bob")
        await visitor.send("UNSUBSCRIBE", id="/topic/a")
        await visitor.send("DISCONNECT")
        await trio.sleep(5)
        await visitor.stream.aclose()
        await observer.settle()
        messages = observer.messages()
    for message in messages:
        assert_message_matches(message)
    assert told(messages) == [
        ("connect", "", "", "STOMP 1.2 over tcp from in-memory"),
        ("subscribe", "/topic/a", "", ""),
        ("unsubscribe", "/topic/a", "", ""),
        ("disconnect", "", "client-disconnect", "from in-memory"),
    ]
    assert {message.body["user"] for message in messages} == {"bob"}


async def test_a_missed_heartbeat_is_an_event(autojump_clock: trio.testing.MockClock) -> None:
    async with running(diag_interval_s=0.0) as broker:
        observer = await broker.peer("DIAG/event/heartbeat", "DIAG/event/disconnect")
        await broker.peer(heart_beat="1000,0")
        await trio.sleep(60)
        await observer.settle()
        messages = observer.messages()
    late, gone = told(messages)
    assert late[:3] == ("heartbeat", "", "late")
    assert gone[:3] == ("disconnect", "", "heart-beat-timeout")


async def test_drops_are_told_once_for_each_reason() -> None:
    server, reporter = assemble()
    paper = listen(server, "DIAG/event/drop")
    drops, stale = server.broker.fan_out.drops, server.broker.stale.statistics
    server.inbox.dropped, drops.no_subscriber, stale.dropped = 3, 700, 20
    drops.backlog_abandoned, server.broker.events.lost = 4, 5
    run_interval(reporter)
    assert told(paper.messages()) == [
        ("drop", "", "input-queue-full", "3"),
        ("drop", "", "no-subscriber", "700"),
        ("drop", "", "stale-queue-full", "20"),
        ("drop", "", "backlog-abandoned", "4"),
        ("drop", "", "too-many-events", "5"),
    ]
    run_interval(reporter)
    assert paper.messages() == []
    drops.no_subscriber += 1
    run_interval(reporter)
    assert told(paper.messages()) == [("drop", "", "no-subscriber", "1")]


async def test_drops_before_anybody_listened_are_not_told() -> None:
    server, reporter = assemble()
    server.inbox.dropped = 3
    run_interval(reporter)
    paper = listen(server, "DIAG/event/drop")
    run_interval(reporter)
    assert paper.messages() == []


async def test_what_a_slow_listener_misses_does_not_feed_itself() -> None:
    server, reporter = assemble(slow_consumer="drop-newest")
    slow = listen(server, "DIAG*")
    paper = listen(server, "DIAG/event/drop", "DIAG/event/slow")
    slow.takes = False
    run_interval(reporter)
    missed = reporter.stream.next_offset
    assert paper.messages() == []
    assert reporter.stream.lost == missed == 8
    for _ in range(5):
        run_interval(reporter)
        assert told(paper.messages()) == [("drop", "DIAG", "slow-consumer", str(missed))]
        missed = 9


async def test_many_events_of_a_turn_are_spread_over_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporter_module, "MAX_TURN_EVENTS", 10)
    server, reporter = assemble()
    paper = listen(server, "DIAG/event/subscribe")
    paper.data = b""
    for number in range(25):
        server.broker.events.tell("subscribe", destination=f"/topic/{number}")
    counts = []
    for _ in range(4):
        reporter.end_turn(0.0)
        counts.append([message.body["destination"] for message in paper.messages()])
    assert [len(names) for names in counts] == [10, 10, 5, 0]
    assert [name for names in counts for name in names] == [
        f"/topic/{number}" for number in range(25)
    ]


async def test_an_event_that_nobody_hears_any_more_takes_no_offset() -> None:
    server, reporter = assemble()
    paper = Paper()
    client = Client("listener", paper, "here")
    server.broker.apply(client, [Subscribed("1", "DIAG/event/drop", "auto", (), None)], 0.0, 0.0)
    server.broker.events.tell("drop", reason="test")
    server.broker.forget(client, CloseReason.CLIENT_CLOSED, 0.0)
    reporter.end_turn(0.0)
    assert reporter.stream.next_offset == 0


# --- the process ----------------------------------------------------------------------------------


async def test_the_process_is_measured() -> None:
    record = process.process_record(Histogram(), process.PauseMeter(), 1.0)
    assert_matches(record, schema.PROCESS.fields)
    numbers = [record[name] for name in ("pid", "rss_bytes", "threads", "trio_tasks")]
    assert all(isinstance(number, int) and number > 0 for number in numbers)


async def test_the_process_is_measured_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_STAT", Path("/nowhere/stat"))
    monkeypatch.setattr(process, "_FILES", "/nowhere/fd")
    record = process.process_record(Histogram(), process.PauseMeter(), 1.0)
    assert_matches(record, schema.PROCESS.fields)
    assert record["rss_bytes"] != 0
    assert (record["vms_bytes"], record["fds"]) == (0, 0)


async def test_the_longest_turn_of_an_interval_is_told() -> None:
    server, reporter = assemble()
    paper = listen(server, "DIAG/process")
    server.dispatcher.turn_times.observe(0.004, 99)
    server.dispatcher.turn_times.observe(0.5, 1)
    run_interval(reporter)
    body = paper.messages()[0].body
    assert body["loop_lag_ms_max"] == 500.0
    lag = body["loop_lag_ms_p50"]
    assert isinstance(lag, float)
    assert 3.2 <= lag <= 6.4
    run_interval(reporter)
    body = paper.messages()[0].body
    assert (body["loop_lag_ms_p50"], body["loop_lag_ms_max"]) == (0.0, 0.0)


async def test_the_dispatcher_times_its_turns(autojump_clock: trio.testing.MockClock) -> None:
    async with running(diag_interval_s=0.0) as broker:
        await broker.peer()
        dispatcher = broker.server.dispatcher
        assert dispatcher.turn_times.count == dispatcher.turns > 0


def test_percentiles_lie_within_their_bucket() -> None:
    times = Histogram()
    assert process.percentile_ms(times, 0.5) == 0.0
    times.observe(0.001, 100)  # between 0.8 and 1.6 ms
    assert 0.8 <= process.percentile_ms(times, 0.5) <= 1.0
    times.observe(100.0, 1)  # beyond the last bound
    assert process.percentile_ms(times, 1.0) == 100_000.0
    assert process.percentile_ms(times, 0.99) <= 1.6


def callbacks() -> list[Callable[..., object]]:
    """Who is told of collections, once what other tests left is gone."""
    gc.collect()
    return list(gc.callbacks)


def test_pauses_are_measured_only_while_asked_for() -> None:
    before = callbacks()
    meter = process.PauseMeter()
    meter.turn(True)
    meter.turn(True)
    assert len(gc.callbacks) == len(before) + 1
    gc.collect()
    measured = meter.total_s
    assert measured > 0.0
    meter.turn(False)
    assert gc.callbacks == before
    gc.collect()
    assert meter.total_s == measured


def test_a_meter_that_is_dropped_leaves_nothing_behind() -> None:
    before = callbacks()
    meter = process.PauseMeter()
    meter.turn(True)
    del meter
    gc.collect()
    assert gc.callbacks == before


async def test_pauses_are_measured_while_the_process_is_heard() -> None:
    server, reporter = assemble()
    before = len(callbacks())
    client = Client("listener", Paper(), "here")
    server.broker.apply(client, [Subscribed("1", "DIAG/process", "auto", (), None)], 0.0, 0.0)
    run_interval(reporter)
    assert len(gc.callbacks) == before + 1
    server.broker.forget(client, CloseReason.CLIENT_CLOSED, 0.0)
    run_interval(reporter)
    assert len(gc.callbacks) == before
