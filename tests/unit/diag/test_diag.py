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
from trio.testing import wait_all_tasks_blocked

from tests.support.core import OutboxFake
from tests.support.fakes import Client as Peer
from tests.support.fakes import Dial, Received, WebSocketPipe, open_dial
from tests.support.hostile import BINARY, TEXT, ws
from tests.support.startup import make_server
from trio_stomp import CloseReason, ServerHandle, Settings
from trio_stomp.base import LOOKS, PAGE, PREFIX, RECORDS, SCHEMA_VERSION, TABLES, Field, Table
from trio_stomp.base import schema as schema
from trio_stomp.broker import Client, Histogram
from trio_stomp.diag import Reporter
from trio_stomp.diag import _process as process
from trio_stomp.diag import _reporter as reporter_module
from trio_stomp.frames import FrameRun, Head
from trio_stomp.protocol import Subscribed
from trio_stomp.server import Connection, Server
from trio_stomp.startup import Security
from trio_stomp.transport import wire_over

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


def diag_messages(frames: Iterable[Received]) -> list[Message]:
    """Return the DIAG messages among these frames."""
    return [
        Message(frame["destination"], dict(frame.headers), json.loads(frame.body))
        for frame in frames
        if frame.command == "MESSAGE" and frame["destination"].startswith("DIAG")
    ]


# --- a broker without tasks, for what needs no connections ----------------------------------------


class Paper(OutboxFake):
    """An outbox that is read by a test."""

    def __init__(self) -> None:
        super().__init__()
        self.client = Client("listener", self, "here")

    def messages(self) -> list[Message]:
        """Return the messages since the last call."""
        self.write()
        return diag_messages(self.take())


def assemble(**options: object) -> tuple[Server, Reporter]:
    """Return a broker without tasks."""
    settings = Settings.of(**({"diag_interval_s": INTERVAL_S} | options))
    server = make_server(settings, Security(settings), ServerHandle(()))
    reporter = Reporter(settings.diag, server, wall=wall)
    server.assemble(server.broker, reporter)
    return server, reporter


def listen(server: Server, *destinations: str) -> Paper:
    """Subscribe a client. Return the list of its messages."""
    paper = Paper()
    now = server.clock.now()
    for name in destinations:
        # One at a time: on a busy machine a share of a turn may be too short for all.
        server.broker.apply(paper.client, [Subscribed(name, name, "auto", (), None)], now, now)
    server.broker.events.take()  # that it subscribed
    return paper


def listened(*destinations: str, **options: object) -> tuple[Server, Reporter, Paper]:
    """A broker that nobody runs, and what reaches a listener."""
    server, reporter = assemble(**options)
    return server, reporter, listen(server, *destinations)


def leave(server: Server, paper: Paper) -> None:
    """Let a listener go."""
    server.broker.forget(paper.client, CloseReason.CLIENT_CLOSED, 0.0)


def run_interval(reporter: Reporter, now: float = 0.0, turns: int = 50) -> None:
    """One tick, and as many turns as the lists may need."""
    reporter.tick(now)
    for _ in range(turns):
        reporter.end_turn(now)


# --- a broker that runs, in memory ----------------------------------------------------------------


@asynccontextmanager
async def running(**options: object) -> AsyncIterator[Dial]:
    async with open_dial(**({"diag_interval_s": INTERVAL_S} | options)) as dial:
        await dial.start()
        reporter_of(dial).wall = wall
        yield dial


def reporter_of(dial: Dial) -> Reporter:
    assert isinstance(dial.server.diagnostics, Reporter)
    return dial.server.diagnostics


async def joins(dial: Dial, *destinations: str, **headers: str) -> Peer:
    """A client with an open session, subscribed to ``destinations``."""
    client = await dial.connect("1.2", headers)
    for name in destinations:
        await client.send("SUBSCRIBE", {"destination": name, "id": name})
    await wait_all_tasks_blocked()
    return client


async def new_messages(client: Peer) -> list[Message]:
    """DIAG messages that came since the last call."""
    frames: list[Received] = []
    await wait_all_tasks_blocked()
    with trio.move_on_after(1e-6):
        while True:
            frames.append(await client.receive())
    return diag_messages(frames)


async def open_websocket(dial: Dial) -> Peer:
    pipe = WebSocketPipe(await dial.stream())
    await pipe.shake_hands()
    client = Peer(pipe)
    await client.connect()
    return client


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
    """Check a body against the schema of its topic."""
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


DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "diag.md"
SECTION = re.compile(r"^### `(DIAG/[^`]+)`$(.*?)(?=^###? )", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("table", [*schema.REPORTED, schema.EVENT], ids=lambda table: table.name)
def test_the_documentation_agrees_with_the_schema(table: Table) -> None:
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
        assert server.broker.destinations.open(topic).reserved


# --- the records ----------------------------------------------------------------------------------


async def test_records_report_the_traffic_and_match_the_schema(autojump_clock) -> None:
    async with running(ttl_ms=60_000) as broker:
        observer = await joins(broker, "DIAG*", login="anna")
        browser = await open_websocket(broker)
        reader = await joins(broker, "/topic/a")
        await reader.publish("/topic/a", b"hello")
        await reader.publish("/topic/later", b"for later")
        await wait_all_tasks_blocked()
        await trio.sleep(INTERVAL_S)
        messages = await new_messages(observer)
        await browser.aclose()
    for message in messages:
        assert_message_matches(message)
    found = {message.topic: message for message in messages if message.topic in PERIODIC}
    assert set(found) == set(PERIODIC)
    for table in schema.REPORTED:
        assert not table.is_list or found[table.topic].items, table.name
    assert len({message.body["ts"] for message in found.values()}) == 1
    anna = next(item for item in found["DIAG/connections"].items if item["user"] == "anna")
    assert (anna["state"], anna["stomp_version"], anna["transport"]) == ("open", "1.2", "tcp")
    assert (anna["subscriptions"], anna["frames_in_total"]) == (1, 2)
    assert anna["connected_at"] == "2025-12-31T23:59:55.250000Z"
    assert anna["last_in_age_s"] == INTERVAL_S
    items = {item["destination"]: item for item in found["DIAG/destinations"].items}
    assert set(items) == {"/topic/a", "/topic/later"}
    a, later = items["/topic/a"], items["/topic/later"]
    assert (a["type"], a["subscribers"], a["enqueued_total"]) == ("topic", 1, 1)
    assert (a["bytes_in_total"], a["delivered_total"], a["depth"]) == (5, 1, 0)
    assert (later["subscribers"], later["delivered_total"], later["depth"]) == (0, 0, 1)
    waiting, parked = found["DIAG/queues"].items
    assert (waiting["destination"], waiting["capacity"]) == ("input", 1_000_000)
    assert (parked["destination"], parked["stale_depth"]) == ("/topic/later", 1)
    assert parked["oldest_input_age_s"] == INTERVAL_S
    stages = {(item["destination"], item["stage"]) for item in found["DIAG/latency"].items}
    assert stages == {
        ("/topic/a", "ingress"),
        ("/topic/a", "delivery"),
        ("/topic/later", "ingress"),
    }
    assert found["DIAG/stale"].body["stale_queue_size"] == 1
    assert found["DIAG/process"].body["uptime_s"] == INTERVAL_S


async def test_the_seeds_headers_repeat_the_body(autojump_clock) -> None:
    async with running() as broker:
        observer = await joins(broker, "DIAG/session", "DIAG/ws_buffer", "DIAG/stale")
        await open_websocket(broker)
        await trio.sleep(INTERVAL_S)
        found = {message.topic: message for message in await new_messages(observer)}
    session, buffers, stale = (found[f"DIAG/{name}"] for name in ("session", "ws_buffer", "stale"))
    figures = {"clients": 2, "websockets": 1, "stomp_connected": 2, "subscriptions": 3}
    for name, figure in figures.items():
        assert (session.headers[name], session.body[name]) == (str(figure), figure)
    for name in ("allocated", "hits", "misses"):
        assert buffers.headers[name] == str(buffers.body[name])
    for name in ("input-queue-size", "output-queue-size", "stale-queue-size"):
        assert stale.headers[name] == str(stale.body[name.replace("-", "_")]) == "0"


async def test_split_websocket_frames_are_counted(autojump_clock) -> None:
    async with running() as broker:
        observer = await joins(broker, "DIAG/ws_buffer")
        await open_websocket(broker)
        whole = ws(TEXT, b"SEND\ndestination:/topic/a\n\nx\0")
        large = ws(BINARY, b"\n" * 6_000)
        # Three frames in pieces; the last piece of one read may begin the next.
        for piece in (whole[:1], whole[1:3], whole[3:] + whole[:9], whole[9:]):
            await broker._streams[-1].send_all(piece)
            await wait_all_tasks_blocked()
        for piece in (large[:2_000], large[2_000:5_000], large[5_000:] + whole[:5]):
            await broker._streams[-1].send_all(piece)
            await wait_all_tasks_blocked()
        await trio.sleep(INTERVAL_S)
        body = (await new_messages(observer))[0].body
    assert body["underruns_fixed"] == 3
    assert body["hits"] == 5
    assert body["allocated"] == 5
    assert body["dropped_frames"] == 0
    assert body["cache_entries"] == broker.server.codecs.cached_heads > 0


async def test_waiting_output_is_measured(autojump_clock) -> None:
    async with running() as broker:
        # Whoever writes to such a stream waits until the other side has read.
        ours, theirs = trio.testing.lockstep_stream_pair()
        broker.listener.hand_over(theirs)
        await ours.send_all(b"CONNECT\naccept-version:1.2\nhost:test\n\n\0")
        await trio.sleep(3)
        data = await ours.receive_some(65536)
        await wait_all_tasks_blocked()
        outbox = next(iter(broker.server.connections)).outbox
        assert outbox.peak_bytes == len(data) > 0
        assert outbox.blocked_s == 3.0


async def test_connection_with_an_error_is_closed(autojump_clock) -> None:
    async with running(diag_interval_s=1.0, linger_s=100.0) as broker:
        observer = await joins(broker, "DIAG/connections")
        await joins(broker, login="bob")
        guilty = await joins(broker, login="carl")
        await guilty.send("NONSENSE")
        await trio.sleep(1)
        items = {item["user"]: item for item in (await new_messages(observer))[0].items}
    assert (items["bob"]["errors_total"], items["bob"]["state"]) == (0, "open")
    assert (items["carl"]["errors_total"], items["carl"]["state"]) == (1, "closed")


async def test_wildcard_subscribers_are_counted() -> None:
    server, reporter = assemble()
    server.broker.destinations.open("/topic/a")
    paper = listen(server, "DIAG/destinations", "/topic/*")
    run_interval(reporter)
    assert [item["subscribers"] for item in paper.messages()[0].items] == [1]


# --- the stream -----------------------------------------------------------------------------------


async def test_offsets_have_no_gap_over_all_topics(autojump_clock) -> None:
    async with running() as broker:
        observer = await joins(broker, "DIAG*")
        for _ in range(3):
            visitor = await joins(broker, "/topic/a")
            await visitor.send("UNSUBSCRIBE", {"id": "/topic/a"})
            await visitor.aclose()
            await trio.sleep(INTERVAL_S)
        messages = await new_messages(observer)
    assert len({message.topic for message in messages}) >= 11
    assert [message.offset for message in messages] == list(range(len(messages)))
    assert {message.body["epoch"] for message in messages} == {reporter_of(broker).stream.epoch}
    assert len({message.body["broker_id"] for message in messages}) == 1


async def test_each_start_is_an_epoch_of_its_own_and_the_name_can_be_chosen() -> None:
    (_, one), (_, two) = assemble(diag_broker_id="north"), assemble()
    assert one.stream.epoch != two.stream.epoch
    assert one.stream.broker_id == "north"
    assert two.stream.broker_id
    assert one.stream.next_offset == 0


class Unseen(dict[Connection, None]):
    """Connections at which nobody may look."""

    def __iter__(self) -> Iterator[Connection]:
        raise AssertionError("somebody looked")


class Uncounted(Unseen):
    """Connections that nobody may count either."""

    def __len__(self) -> int:
        raise AssertionError("somebody counted")


async def test_nothing_is_computed_without_a_subscriber() -> None:
    server, reporter = assemble()
    server.connections = Uncounted()
    before = len(callbacks())
    run_interval(reporter)
    assert reporter.stream.next_offset == 0
    assert server.broker.fan_out.messages == 0
    assert len(gc.callbacks) == before


@pytest.mark.parametrize("topic", PERIODIC)
async def test_only_topics_with_subscribers_are_published(topic: str) -> None:
    server, reporter, paper = listened(topic)
    run_interval(reporter)
    assert [(message.topic, message.offset) for message in paper.messages()] == [(topic, 0)]
    assert reporter.stream.next_offset == server.broker.fan_out.messages == 1


def open_topics(server: Server, count: int, start: int = 0) -> set[str]:
    names = {f"/topic/{number}" for number in range(start, start + count)}
    for name in names:
        server.broker.destinations.open(name)
    return names


async def test_a_long_list_comes_in_parts_at_most_one_in_a_turn() -> None:
    server, reporter = assemble()
    names = open_topics(server, 2_500)
    paper = listen(server, "DIAG/destinations")
    reporter.tick(0.0)
    assert paper.messages() == []
    turns = []
    for _ in range(200):
        reporter.end_turn(0.0)
        turns.append(paper.messages())
    assert {len(messages) for messages in turns} == {0, 1}
    messages = [message for each in turns for message in each]
    assert [message.offset for message in messages] == [0, 1, 2]
    assert [(m.body["part"], m.body["parts"]) for m in messages] == [(1, 3), (2, 3), (3, 3)]
    assert [len(message.items) for message in messages] == [1000, 1000, 500]
    assert {item["destination"] for message in messages for item in message.items} == names
    assert all(message.body["full"] for message in messages)


async def test_no_turn_looks_at_more_or_describes_more_than_a_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = {"destination_mark": 0, "destination_record": 0, "latency_record": 0}

    def counted(name: str) -> Callable[..., object]:
        real = getattr(reporter_module, name)

        def call(*arguments: object, **named: object) -> object:
            work[name] += 1
            return real(*arguments, **named)

        return call

    for name in work:
        monkeypatch.setattr(reporter_module, name, counted(name))
    server, reporter = assemble()
    for name in open_topics(server, 2_500):
        server.broker.destinations.open(name).observe_ingress(0.1, 1)
    listen(server, "DIAG/destinations", "DIAG/latency")
    reporter.tick(0.0)
    assert sum(work.values()) == 0
    for _ in range(500):
        before = dict(work)
        reporter.end_turn(0.0)
        done = {name: work[name] - before[name] for name in work}
        assert done["destination_mark"] <= LOOKS
        assert done["destination_record"] + done["latency_record"] <= RECORDS
    assert 2_500 <= work["destination_mark"] < 2_510
    assert (work["destination_record"], work["latency_record"]) == (2_500, 2_500)


async def test_lists_wait_for_the_output_of_turns_but_not_for_ever() -> None:
    server, reporter, paper = listened("DIAG/destinations")
    reporter.tick(0.0)
    outbox = Connected(server, "1").connection.outbox
    turns = 0
    while not (messages := paper.messages()):
        server.outboxes.dirty = [outbox]
        reporter.end_turn(0.0)
        turns += 1
        assert server.inbox.take_nowait()  # another turn will come
    assert messages[0].items == []
    assert reporter_module.MAX_PUT_OFF < turns <= 3 * (reporter_module.MAX_PUT_OFF + 1)
    server.outboxes.dirty = []
    reporter.end_turn(0.0)
    reporter.tick(5.0)
    reporter.end_turn(5.0)
    reporter.end_turn(5.0)
    assert len(paper.messages()) == 1


async def test_parts_of_a_report_without_a_subscriber_take_no_offset() -> None:
    for turns in (1, 3, 10, 50, 51, 52, 60, 100):
        server, reporter, paper = listened("DIAG/destinations")
        open_topics(server, 2_500)
        run_interval(reporter, 0.0, turns)
        leave(server, paper)
        for _ in range(200):
            reporter.end_turn(0.0)
        assert reporter.stream.next_offset == len(paper.messages()) <= turns // 41


@pytest.fixture
def small_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter_module, "MAX_LISTED", 40)
    monkeypatch.setattr(reporter_module, "MAX_ITEMS", 10)


async def test_an_interval_lists_a_bounded_number_and_the_next_continues(
    small_lists: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter_module, "LOOKS", 5)
    server, reporter, paper = listened("DIAG/destinations")
    names = open_topics(server, 99)
    reported = []
    for interval in range(16):
        run_interval(reporter, interval * INTERVAL_S)
        messages = paper.messages()
        assert not any(message.body["full"] for message in messages)
        reported.append([str(item["destination"]) for m in messages for item in m.items])
    assert all(len(listed) <= 40 for listed in reported)
    assert {name for listed in reported[:3] for name in listed} == names
    # From now on nothing changes; each is still reported once in four rounds.
    assert sorted(name for listed in reported[3:15] for name in listed) == sorted(names)
    server.broker.destinations.open("/topic/7").enqueued += 1
    for _ in range(3):
        run_interval(reporter)
    again = [item["destination"] for m in paper.messages() for item in m.items]
    assert "/topic/7" in again
    assert len(again) <= 31


async def test_lists_that_are_not_out_yet_are_not_planned_again() -> None:
    server, reporter = assemble()
    open_topics(server, 2_500)
    paper = listen(server, "DIAG/destinations", "DIAG/session")
    reporter.tick(0.0)
    reporter.end_turn(0.0)
    reporter.tick(5.0)
    for _ in range(200):
        reporter.end_turn(5.0)
    topics = [message.topic for message in paper.messages()]
    assert topics.count("DIAG/destinations") == 3
    assert topics.count("DIAG/session") == 2


async def test_late_subscriber_gets_everything_first() -> None:
    server, reporter = assemble()
    names = open_topics(server, 3)
    for now in (0.0, 5.0):
        paper = listen(server, "DIAG/destinations")
        run_interval(reporter, now)
        (message,) = paper.messages()
        assert {item["destination"] for item in message.items} == names
        leave(server, paper)
        run_interval(reporter, now + 1)


# --- connections ----------------------------------------------------------------------------------


@define(eq=False)
class Connected:
    """A connection of a server that nobody runs."""

    server: Server
    name: str
    connection: Connection = field(init=False)

    def __attrs_post_init__(self) -> None:
        wire = wire_over(trio.testing.memory_stream_pair()[0])
        self.connection = self.server._connect(wire, None)
        self.connection.client.session_id = self.name
        self.server.connections[self.connection] = None

    def touch(self) -> None:
        """As the dispatcher does when it heard of it."""
        self.server.outboxes.touched.add(self.connection.outbox)

    def leave(self) -> None:
        self.connection.outbox.end()
        self.connection.lifecycle.finish()
        del self.server.connections[self.connection]


def reported_connections(reporter: Reporter, paper: Paper, now: float) -> tuple[list[str], bool]:
    """Return the names in the next list, sorted, and whether the list claims to be complete."""
    run_interval(reporter, now, 100)
    messages = [each for each in paper.messages() if each.topic == "DIAG/connections"]
    full = {message.body["full"] for message in messages}
    assert len(full) == 1
    names = [str(item["session_id"]) for message in messages for item in message.items]
    assert len(set(names)) == len(names)
    return sorted(names), bool(full.pop())


async def test_an_idle_connection_is_not_even_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    server, reporter, paper = listened("DIAG/connections")
    everybody = {str(number): Connected(server, str(number)) for number in range(200)}
    assert reported_connections(reporter, paper, 0.0) == (sorted(everybody), True)

    all_of_them, server.connections = server.connections, Unseen(server.connections)
    assert reported_connections(reporter, paper, 5.0) == ([], False)
    everybody["7"].touch()
    everybody["9"].touch()
    everybody["9"].touch()
    assert reported_connections(reporter, paper, 10.0) == (["7", "9"], False)
    assert reported_connections(reporter, paper, 15.0) == ([], False)
    server.connections = all_of_them
    assert reported_connections(reporter, paper, 60.0) == (sorted(everybody), True)


async def test_changes_in_a_full_list_are_not_repeated() -> None:
    server, reporter, paper = listened("DIAG/connections")
    one = Connected(server, "1")
    one.touch()
    assert reported_connections(reporter, paper, 0.0) == (["1"], True)
    one.touch()
    assert reported_connections(reporter, paper, 60.0) == (["1"], True)
    assert reported_connections(reporter, paper, 65.0) == ([], False)


async def test_closed_connection_is_neither_reported_nor_stored() -> None:
    server, reporter, paper = listened("DIAG/connections")
    gone = Connected(server, "1")
    reported_connections(reporter, paper, 0.0)
    for _ in range(3):
        gone = Connected(server, "2")
        gone.touch()
        gone.leave()
        assert not server.outboxes.touched
        assert gone.connection.outbox.owner is None
    gone.touch()  # a late change by a client that is gone
    assert reported_connections(reporter, paper, 5.0) == ([], False)
    assert not server.outboxes.touched


async def test_connection_with_waiting_bytes_is_checked_again() -> None:
    server, reporter, paper = listened("DIAG/connections")
    slow = Connected(server, "1")
    reported_connections(reporter, paper, 0.0)
    slow.connection.outbox.stage_bytes(b"x")  # the writer takes it without the core
    slow.touch()
    assert reported_connections(reporter, paper, 5.0) == (["1"], False)
    assert reported_connections(reporter, paper, 10.0) == (["1"], False)
    slow.connection.outbox.break_off()
    assert reported_connections(reporter, paper, 15.0) == (["1"], False)
    assert reported_connections(reporter, paper, 20.0) == ([], False)


async def test_connections_beyond_the_list_limit_are_reported_in_turn(
    small_lists: None,
) -> None:
    server, reporter, paper = listened("DIAG/connections")
    names = sorted(f"{number:03}" for number in range(99))
    everybody = [Connected(server, name) for name in names]
    first = [reported_connections(reporter, paper, now * 5.0) for now in range(4)]
    assert {len(reported) for reported, _ in first[:3]} <= set(range(30, 41))
    assert not any(full for _, full in first)
    assert sorted({name for reported, _ in first for name in reported}) == names
    # Without any activity, ten connections are reported in each interval, whichever they are.
    quiet = [reported_connections(reporter, paper, now * 5.0)[0] for now in range(4, 14)]
    assert {len(reported) for reported in quiet} == {9, 10}
    assert sorted(name for reported in quiet for name in reported) == names
    for one in everybody:
        one.touch()
    busy = [reported_connections(reporter, paper, now * 5.0)[0] for now in range(14, 18)]
    assert max(map(len, busy)) <= 40
    assert sorted({name for reported in busy for name in reported}) == names


async def test_heard_and_sent_to_is_touched(autojump_clock) -> None:
    async with running(diag_stream=False) as broker:
        one, two = await joins(broker, "/topic/a"), await joins(broker)
        touched = broker.server.outboxes.touched
        assert {outbox.owner for outbox in touched} == set(broker.server.connections)
        touched.clear()
        await two.publish("/topic/b", b"x")
        await wait_all_tasks_blocked()
        assert len(touched) == 1
        await two.publish("/topic/a", b"x")
        await wait_all_tasks_blocked()
        assert {outbox.owner for outbox in touched} == set(broker.server.connections)
        await one.aclose()
        await wait_all_tasks_blocked()
        assert {outbox.owner for outbox in touched} == set(broker.server.connections)
        assert len(touched) == 1


async def test_a_missed_heartbeat_touches(autojump_clock) -> None:
    async with running(diag_stream=False) as broker:
        await joins(broker, **{"heart-beat": "1000,0"})
        touched = broker.server.outboxes.touched
        touched.clear()
        await trio.sleep(1.5)
        assert len(touched) == 1


async def test_the_census_equals_a_full_count(autojump_clock) -> None:
    def counted(server: Server) -> tuple[int, int, int]:
        found = [each for each in server.connections if each.bytes_in]
        upgraded = [each.websocket for each in server.connections if each.websocket is not None]
        held = sum(each.statistics().buffered_bytes for each in upgraded)
        return len(found), len(upgraded), held

    def published_by(server: Server) -> tuple[int, int, int]:
        census = server.census()
        return census.clients, census.websockets, census.ws_allocated

    async with running(diag_stream=False) as broker:
        server, said_nothing = broker.server, await broker.open()
        peers = [said_nothing, await joins(broker), await open_websocket(broker)]
        cut = ws(TEXT, b"SEND\ndestination:/topic/a\n\nx\0")[:20]
        await broker._streams[-1].send_all(cut)
        await wait_all_tasks_blocked()
        assert published_by(server) == counted(server)
        assert published_by(server)[:2] == (2, 1)
        assert published_by(server)[2] > 0
        for peer in peers:
            await peer.aclose()
            await wait_all_tasks_blocked()
            assert published_by(server) == counted(server)
        assert published_by(server) == (0, 0, 0)
        assert not server.outboxes.blocked
        assert not server.outboxes.touched


# --- the largest of many --------------------------------------------------------------------------


async def test_queues_and_parked_messages_are_ranked_in_slices() -> None:
    server, reporter = assemble(ttl_ms=60_000)
    broker = server.broker
    for number in range(3 * LOOKS):
        broker.queues.open(f"/queue/{number}")
    for name, count in (("/queue/700", 3), ("/queue/10", 3), ("/topic/a", 1), ("/topic/b", 1)):
        frames = FrameRun(Head("SEND", (("destination", name),), -1, name), [b"x"] * count, [])
        broker.apply(Client("sender", Paper(), "there"), [frames], 0.0, 0.0)
    paper = listen(server, "DIAG/queues")
    reporter.tick(0.0)
    for _ in range(3):
        reporter.end_turn(0.0)
        assert paper.messages() == []
    for _ in range(100):
        reporter.end_turn(0.0)
    (message,) = paper.messages()
    assert message.body["full"]
    names = [item["destination"] for item in message.items]
    assert len(names) == 1 + 500 + 2
    assert names[0] == "input"
    assert set(names[1:3]) == {"/queue/700", "/queue/10"}
    assert set(names[-2:]) == {"/topic/a", "/topic/b"}


async def test_an_interval_of_0_means_no_statistics(autojump_clock) -> None:
    async with running(diag_interval_s=0.0) as broker:
        observer = await joins(broker, "DIAG*")
        await new_messages(observer)
        await trio.sleep(100)
        await joins(broker)
        assert {message.topic for message in await new_messages(observer)} == {"DIAG/event/connect"}


@pytest.mark.bugs
async def test_a_bug_in_the_statistics_does_not_end_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, reporter, paper = listened("DIAG/process", "DIAG/latency", "DIAG/event/drop")
    reporter.wall = lambda: float("nan")
    reporter.tick(0.0)
    assert "statistics of this interval are incomplete" in caplog.text
    caplog.clear()
    server.broker.events.record("drop", reason="test")
    reporter.end_turn(0.0)
    assert "events or statistics are incomplete" in caplog.text
    reporter.wall = wall
    run_interval(reporter, 5.0)
    messages = paper.messages()
    assert [message.offset for message in messages] == [0, 1, 2]
    assert events_in(messages) == [("drop", "", "test", "")]


# --- events ---------------------------------------------------------------------------------------


def events_in(messages: Sequence[Message]) -> list[tuple[object, ...]]:
    """Return the contents of events."""
    keys = ("name", "destination", "reason", "detail")
    return [
        tuple(message.body[key] for key in keys)
        for message in messages
        if message.topic == f"DIAG/event/{message.body.get('name')}"
    ]


async def test_events_of_a_session(autojump_clock) -> None:
    async with running(diag_interval_s=0.0) as broker:
        observer = await joins(broker, "DIAG/event/*")
        await new_messages(observer)
        visitor = await joins(broker, "/topic/a", login="bob")
        await visitor.send("UNSUBSCRIBE", {"id": "/topic/a"})
        await visitor.send("DISCONNECT")
        await trio.sleep(5)
        await visitor.aclose()
        messages = await new_messages(observer)
    for message in messages:
        assert_message_matches(message)
    assert events_in(messages) == [
        ("connect", "", "", "STOMP 1.2 over tcp from in-memory"),
        ("subscribe", "/topic/a", "", ""),
        ("unsubscribe", "/topic/a", "", ""),
        ("disconnect", "", "client-disconnect", "from in-memory"),
    ]
    assert {message.body["user"] for message in messages} == {"bob"}


async def test_a_missed_heartbeat_is_an_event(autojump_clock) -> None:
    async with running(diag_interval_s=0.0) as broker:
        observer = await joins(broker, "DIAG/event/heartbeat", "DIAG/event/disconnect")
        await joins(broker, **{"heart-beat": "1000,0"})
        await trio.sleep(60)
        messages = await new_messages(observer)
    late, gone = events_in(messages)
    assert late[:3] == ("heartbeat", "", "late")
    assert gone[:3] == ("disconnect", "", "heart-beat-timeout")


async def test_drops_are_reported_once_for_each_reason() -> None:
    server, reporter = assemble()
    server.inbox.dropped = 9
    run_interval(reporter)
    paper = listen(server, "DIAG/event/drop")
    run_interval(reporter)
    assert paper.messages() == []  # it was before anybody listened
    drops, stale = server.broker.fan_out.drops, server.broker.stale.statistics
    server.inbox.dropped, drops.no_subscriber, stale.dropped = 9 + 3, 700, 20
    drops.backlog_abandoned, server.broker.events.lost = 4, 5
    run_interval(reporter)
    assert events_in(paper.messages()) == [
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
    assert events_in(paper.messages()) == [("drop", "", "no-subscriber", "1")]


async def test_a_drop_names_the_destination_that_lost_most_in_its_interval() -> None:
    server, reporter, paper = listened("DIAG/event/drop")
    drops, history = server.broker.fan_out.drops, server.broker.event_history
    losses = {1.0: ("/topic/few", 1), 2.0: ("/topic/many", 3), 3.0: ("/topic/few", 1)}
    for now, (name, count) in losses.items():
        history.now = now
        history.lost("no-subscriber", name, count=count)
        drops.no_subscriber += count
        if now > 1:
            run_interval(reporter, now + 0.5)
    assert events_in(paper.messages()) == [
        ("drop", "/topic/many", "no-subscriber", "4"),
        ("drop", "/topic/few", "no-subscriber", "1"),
    ]


async def test_drops_of_a_slow_diag_subscriber_cause_no_further_drops() -> None:
    server, reporter, slow = listened("DIAG*", slow_consumer="drop-newest")
    paper = listen(server, "DIAG/event/drop", "DIAG/event/slow")
    slow.is_jammed = True
    run_interval(reporter)
    missed = reporter.stream.next_offset
    assert paper.messages() == []
    assert reporter.stream.lost == missed == 8
    for _ in range(5):
        run_interval(reporter)
        assert events_in(paper.messages()) == [("drop", "DIAG", "slow-consumer", str(missed))]
        missed = 9


async def test_many_events_of_a_turn_are_spread_over_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporter_module, "MAX_TURN_EVENTS", 10)
    server, reporter, paper = listened("DIAG/event/subscribe")
    paper.messages()
    for number in range(25):
        server.broker.events.record("subscribe", destination=f"/topic/{number}")
    counts = []
    for _ in range(4):
        reporter.end_turn(0.0)
        counts.append([message.body["destination"] for message in paper.messages()])
    assert [len(names) for names in counts] == [10, 10, 5, 0]
    assert [name for names in counts for name in names] == [
        f"/topic/{number}" for number in range(25)
    ]


async def test_an_event_without_a_subscriber_takes_no_offset() -> None:
    server, reporter, paper = listened("DIAG/event/drop")
    server.broker.events.record("drop", reason="test")
    leave(server, paper)
    reporter.end_turn(0.0)
    assert reporter.stream.next_offset == 0


# --- the process ----------------------------------------------------------------------------------


@pytest.mark.parametrize("has_proc", [True, False])
async def test_the_process_is_measured(has_proc: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_proc:
        monkeypatch.setattr(process, "_STAT", Path("/nowhere/stat"))
        monkeypatch.setattr(process, "_FILES", "/nowhere/fd")
    record = process.process_record(Histogram(), process.PauseMeter(), 7, 1.0)
    assert_matches(record, schema.PROCESS.fields)
    numbers = [record[name] for name in ("pid", "rss_bytes", "threads", "trio_tasks")]
    assert all(isinstance(number, int) and number > 0 for number in numbers)
    assert has_proc or (record["vms_bytes"], record["fds"]) == (0, 0)


async def test_longest_turn_of_an_interval_is_reported() -> None:
    server, reporter, paper = listened("DIAG/process")
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


async def test_tasks_are_counted_as_they_come_and_go() -> None:
    meter = process.TaskMeter()

    def living() -> int:
        return trio.lowlevel.current_statistics().tasks_living

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        assert meter.count() == living()
        for _ in range(3):
            nursery.start_soon(trio.sleep_forever)
        assert meter.count() == living()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert meter.count() == living()


async def test_a_dropped_task_meter_removes_its_instrument(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = hooked()
    meter = process.TaskMeter()
    meter.count()
    (hooks,) = hooked() - before
    del meter
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.lowlevel.checkpoint)
    with pytest.raises(KeyError):
        trio.lowlevel.remove_instrument(hooks)
    assert not caplog.records


def hooked() -> set[trio.abc.Instrument]:
    return {each for each in gc.get_objects() if type(each) is process._TaskHooks}


def callbacks() -> list[Callable[..., object]]:
    """Return the callbacks of the garbage collector, without leftovers of other tests."""
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


def test_the_longest_pause_is_of_the_last_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1.0, 1.25, 2.0, 2.5, 3.0, 3.125])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    meter = process.PauseMeter()
    for _ in range(2):
        meter.note("start")
        meter.note("stop")
    assert meter.longest_s == 0.0  # its interval still runs
    meter.end_interval()
    assert (meter.longest_s, meter.total_s) == (0.5, 0.75)
    meter.note("start")
    meter.end_interval()
    assert meter.longest_s == 0.0
    meter.note("stop")
    meter.end_interval()
    assert meter.longest_s == 0.125


def test_a_dropped_pause_meter_removes_its_callback() -> None:
    before = callbacks()
    meter = process.PauseMeter()
    meter.turn(True)
    del meter
    gc.collect()
    assert gc.callbacks == before


async def test_pauses_are_measured_while_the_process_is_heard() -> None:
    server, reporter = assemble()
    before = len(callbacks())
    paper = listen(server, "DIAG/process")
    run_interval(reporter)
    assert len(gc.callbacks) == before + 1
    leave(server, paper)
    run_interval(reporter)
    assert len(gc.callbacks) == before
