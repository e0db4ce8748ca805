"""Every store against a model of plain dicts, with restarts in between."""

import tempfile
from pathlib import Path

import pytest
from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.support.stores import KINDS, Message, Opened, make_place
from tests.support.stores import numbers as numbers
from tests.support.stores import postgres as postgres
from trio_stomp.store import (
    Append,
    Atomic,
    Begin,
    Delivered,
    Done,
    DropPlace,
    DropStream,
    Forget,
    Keep,
    PlaceState,
    Put,
    Record,
    Trim,
    Turn,
)

PLACES = st.sampled_from(["queue:/queue/a", "durable:ž", "nothing\0"])
LEVELS = st.sampled_from([0, 4])
BODIES = st.lists(st.binary(max_size=20), min_size=1, max_size=4)
HEADS = st.sampled_from([b"", b"a:b\n", b"\xff\0"])
TEXTS = st.text(st.sampled_from("až\0\x1a1"), max_size=3)
STREAMS = st.sampled_from(["/stream/a", "/stream/b"])
IDS = st.lists(st.integers(1, 60), max_size=8)


@define
class StoredMessage:
    """A message of the model."""

    lane: tuple[str, int]
    message: Message
    transient: bool


@define
class Log:
    """A stream of the model: all messages, and which of them may be trimmed."""

    epoch: str
    trimmed: int = 0
    messages: list[tuple[bytes, bytes, int]] = field(factory=list)


@define
class Model:
    """The expected contents of a store."""

    held: dict[int, StoredMessage] = field(factory=dict)
    settings: dict[str, str] = field(factory=dict)
    logs: dict[str, Log] = field(factory=dict)
    next_id: int = 1
    commit: int = 0

    def apply(self, record: Record) -> None:
        match record:
            case Atomic(records):
                for part in records:
                    self.apply(part)
            case Put():
                for id, body in enumerate(record.bodies, record.first):
                    times = record.received_ms, record.expires_ms
                    message = Message(body, record.head, *times, record.deliveries)
                    self.held[id] = StoredMessage(
                        (record.place, record.level), message, record.transient
                    )
            case Done(ids):
                for id in ids:
                    self.held.pop(id, None)
            case Delivered(ids):
                for id in ids:
                    if (held := self.held.get(id)) is not None:
                        count = held.message.deliveries + 1
                        held.message = held.message._replace(deliveries=count)
            case DropPlace(place):
                self.held = {id: held for id, held in self.held.items() if held.lane[0] != place}
            case Keep(key, text):
                self.settings[key] = text
            case Forget(key):
                self.settings.pop(key, None)
            case Begin(stream, epoch):
                self.logs[stream] = Log(epoch)
            case Append():
                shared = record.head, record.written_ms
                self.logs[record.stream].messages += [(body, *shared) for body in record.bodies]
            case Trim(stream, before):
                log = self.logs[stream]
                log.trimmed = max(log.trimmed, min(before, len(log.messages)))
            case DropStream(stream):
                self.logs.pop(stream, None)

    def forget_transient(self) -> None:
        self.held = {id: held for id, held in self.held.items() if not held.transient}

    def lanes(self) -> dict[tuple[str, int], dict[int, Message]]:
        found: dict[tuple[str, int], dict[int, Message]] = {}
        for id, held in self.held.items():
            found.setdefault(held.lane, {})[id] = held.message
        return found


class StoreMachine(RuleBasedStateMachine):
    """Records are gathered, then appended as some turns; every step compares what is read."""

    kind: str
    request: pytest.FixtureRequest

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.model = Model()
        self.records: list[Record] = []
        self.turns: list[Turn] = []
        self.time_ms = 0
        self.epochs = 0

    @initialize()
    def open(self) -> None:
        self.opened = Opened(make_place(self.kind, Path(self.directory.name), self.request))

    def teardown(self) -> None:
        if hasattr(self, "opened"):
            self.opened.store.close()
        self.directory.cleanup()

    def tell(self, record: Record) -> None:
        self.model.apply(record)
        self.records.append(record)

    @rule(place=PLACES, level=LEVELS, head=HEADS, bodies=BODIES, transient=st.booleans())
    def put(self, place, level, head, bodies, transient) -> None:
        times = {"received_ms": self.time_ms, "expires_ms": 5 * len(head)}
        first = self.model.next_id
        self.model.next_id += len(bodies)
        self.tell(Put(place, first, head, bodies, level, **times, transient=transient))

    @rule(ids=IDS)
    def finish(self, ids) -> None:
        self.tell(Done(ids))

    @rule(ids=IDS)
    def deliver(self, ids) -> None:
        self.tell(Delivered(ids))

    @rule(place=PLACES)
    def drop_place(self, place) -> None:
        self.tell(DropPlace(place))

    @rule(key=TEXTS, text=TEXTS)
    def keep(self, key, text) -> None:
        self.tell(Keep(key, text))

    @rule(key=TEXTS)
    def forget(self, key) -> None:
        self.tell(Forget(key))

    @rule(ids=IDS, place=PLACES, body=st.binary(max_size=5))
    def move(self, ids, place, body) -> None:
        first = self.model.next_id
        self.model.next_id += 1
        self.tell(Atomic([Done(ids), Put(place, first, b"", [body], deliveries=2), Keep("m", "1")]))

    @rule(stream=STREAMS, head=HEADS, bodies=BODIES)
    def write(self, stream, head, bodies) -> None:
        if stream not in self.model.logs:
            self.epochs += 1
            self.tell(Begin(stream, f"e{self.epochs}"))
        first = len(self.model.logs[stream].messages)
        self.tell(Append(stream, first, head, bodies, self.time_ms))

    @rule(stream=STREAMS, before=st.integers(0, 20))
    def trim(self, stream, before) -> None:
        if stream in self.model.logs:
            self.tell(Trim(stream, before))

    @rule(stream=STREAMS)
    def drop_stream(self, stream) -> None:
        self.tell(DropStream(stream))

    @rule()
    def let_time_pass(self) -> None:
        self.time_ms += 10

    @rule(is_urgent=st.booleans())
    def end_turn(self, is_urgent) -> None:
        self.turns.append(Turn(self.records, is_urgent))
        self.records = []

    @rule()
    def append(self) -> None:
        self.turns.append(Turn(self.records))
        self.records = []
        self.opened.append_turns(*self.turns)
        self.model.commit += len(self.turns)
        self.turns = []

    @rule(how=st.sampled_from(["restart", "crash"]))
    def end(self, how) -> None:
        self.append()
        self.model.forget_transient()
        recovered = getattr(self.opened, how)()
        lanes = self.model.lanes()
        assert recovered.commit == self.model.commit
        assert recovered.next_id >= self.model.next_id
        assert recovered.settings == self.model.settings
        assert not recovered.damage
        assert recovered.places == {
            lane: PlaceState(
                len(found),
                sum(len(message.body) for message in found.values()),
                min(found),
                expires_ms=recovered.places[lane].expires_ms,
            )
            for lane, found in lanes.items()
        }
        for lane, found in lanes.items():
            times = [message.expires_ms for message in found.values() if message.expires_ms]
            if times:
                assert 0 < recovered.places[lane].expires_ms <= min(times), "never too late"
        assert recovered.deliveries == {
            id: held.message.deliveries
            for id, held in self.model.held.items()
            if held.message.deliveries
        }
        assert recovered.streams.keys() == self.model.logs.keys()
        for stream, state in recovered.streams.items():
            assert state == self.opened.store.stream_state(stream)

    @invariant()
    def messages_are_read(self) -> None:
        if self.records or self.turns:
            return
        lanes = self.model.lanes()
        for place in ("queue:/queue/a", "durable:ž", "nothing\0"):
            for level in (0, 4):
                expected = lanes.get((place, level), {})
                assert self.opened.read(place, level, limit_bytes=15) == expected
        assert self.opened.store.statistics().live_messages == len(self.model.held)

    @invariant()
    def streams_are_read(self) -> None:
        if self.records or self.turns:
            return
        for stream in ("/stream/a", "/stream/b"):
            state = self.opened.store.stream_state(stream)
            log = self.model.logs.get(stream)
            if log is None:
                assert state is None
                continue
            assert state is not None
            assert (state.epoch, state.next) == (log.epoch, len(log.messages))
            assert state.first <= log.trimmed
            found = self.opened.read_stream(stream, limit_bytes=15)
            assert found == {
                offset: log.messages[offset] for offset in range(state.first, state.next)
            }
            for time_ms in range(0, self.time_ms + 11, 10):
                later = [o for o, message in found.items() if message[2] >= time_ms]
                expected = min(later, default=state.next)
                assert self.opened.store.find_offset(stream, time_ms) == expected


EXAMPLES = {"memory": 60, "sqlite": 25, "postgresql": 10, "journal": 25, "replicated": 10}


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_behaves_like_the_model(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    make_place(kind, tmp_path, request)  # or the test is skipped
    machine = type("Machine", (StoreMachine,), {"kind": kind, "request": request})
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=EXAMPLES[kind], stateful_step_count=40, deadline=None),
    )
