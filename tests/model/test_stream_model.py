"""Streams against a plain list: readers everywhere, with and without a store, at any speed.

The model is a list of bodies by offset. Each reader knows the offset that it must see next; a gap
is right only where the MESSAGE says that the start was trimmed.
"""

from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.core import Actor, Bench, Received
from tests.support.durable_fakes import DurableBench
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.streams import Stream

TOPIC, STREAM = "/topic/t", "/stream/topic/t"
WINDOW = 1500
"""Bytes: about five messages with their overhead."""
MAX_AGE_S = 100
POLICY = DestinationPolicy(stream=True, stream_max_bytes=WINDOW, stream_max_age_ms=MAX_AGE_S * 1000)


@define(eq=False)
class Reading:
    """The model of a reader.

    Args:
      next: The next expected offset.
      until: The offset at which it ends; None = it does not.
      credit: The most messages in delivery; 0 = no limit.
    """

    actor: Actor
    next: int
    until: int | None
    credit: int
    is_cumulative: bool
    unacked: list[Received] = field(factory=list)
    is_ended: bool = False


class StreamMachine(RuleBasedStateMachine):
    """A stream in memory alone."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = self.make()
        self.readers: list[Reading] = []
        self.log: list[bytes] = []
        """Confirmed messages by offset."""
        self.pending: list[tuple[bytes, bool]] = []
        """Unconfirmed messages, and whether a failure of the store withdraws them."""
        self.count = 0
        self.begin()

    def make(self) -> Bench:
        return Bench(book={TOPIC: POLICY})

    def begin(self) -> None:
        self.hasty = self.bench.actor()
        self.filtered = self.bench.actor()
        self.stream.window_limit_bytes = WINDOW

    @property
    def stream(self) -> Stream:
        broker = self.bench.broker
        return broker.streams.find(STREAM, broker.destinations.open)

    def settle(self) -> None:
        """Confirm the pending messages."""
        self.log += [body for body, _ in self.pending]
        self.pending.clear()

    @rule(count=st.integers(1, 4), size=st.sampled_from([0, 3, 40]), survives=st.booleans())
    def publish(self, count: int, size: int, survives: bool) -> None:
        bodies = [b"%d:" % (self.count + place) + b"x" * size for place in range(count)]
        self.count += count
        sender = self.filtered if survives else self.hasty
        persistent = "true" if survives else "false"
        sender.sends(TOPIC, *bodies, kind=str(size), persistent=persistent)
        self.pending += [(body, survives) for body in bodies]
        self.bench.turn()
        self.after_publish()

    def after_publish(self) -> None:
        self.settle()

    @rule(
        start=st.one_of(st.sampled_from(["first", "last", "next"]), st.integers(0, 30)),
        length=st.one_of(st.none(), st.integers(0, 12)),
        ack=st.sampled_from(["auto", "client", "client-individual"]),
        credit=st.integers(1, 5),
        version=st.sampled_from(["1.0", "1.1", "1.2"]),
    )
    @precondition(lambda self: len(self.readers) < 5)
    def subscribe(
        self, start: str | int, length: int | None, ack: str, credit: int, version: str
    ) -> None:
        stream = self.stream
        places = {
            "first": stream.first,
            "last": max(stream.first, stream.next - 1),
            "next": stream.next,
        }
        at = start if isinstance(start, int) else places[start]
        actor = self.bench.actor(version)
        headers = {"x_stream_offset": str(start), "prefetch_count": str(credit)}
        until = None if length is None else at + length
        if until is not None:
            headers["x_stream_until"] = str(until)
        actor.subscribes(STREAM, ack=ack, **headers)
        self.bench.turn()
        mine = 0 if ack == "auto" else credit
        self.readers.append(Reading(actor, at, until, mine, ack == "client"))

    @rule(data=st.data())
    @precondition(lambda self: self.readers)
    def read(self, data: st.DataObject) -> None:
        self.look(data.draw(st.sampled_from(self.readers)))

    def look(self, reader: Reading) -> int:
        """Check the deliveries to a reader since the last call. Return their number."""
        frames = reader.actor.reads()
        stream = self.stream
        for frame in frames:
            assert not reader.is_ended
            assert frame.get("x-stream-epoch") == stream.epoch
            offset = int(frame.get("x-stream-offset") or "")
            if frame.get("x-stream-end"):
                assert offset == reader.until
                assert int(frame.get("x-stream-next") or "") <= len(self.log)
                assert max(reader.next, int(frame.get("x-stream-first") or "")) >= offset
                reader.is_ended = True
            else:
                first = frame.get("x-stream-first")
                if offset != reader.next:
                    assert first == str(offset)
                    assert reader.next < offset <= stream.first
                else:
                    assert first is None
                assert frame.body == self.log[offset]
                assert frame.get("destination") == TOPIC
                assert frame.get("kind") == str(len(frame.body.partition(b":")[2]))
                assert reader.until is None or offset < reader.until
                reader.next = offset + 1
            if reader.credit:
                reader.unacked.append(frame)
        assert not reader.credit or len(reader.unacked) <= reader.credit
        return len(frames)

    @rule(data=st.data(), negative=st.booleans())
    @precondition(lambda self: any(each.unacked for each in self.readers))
    def acknowledge(self, data: st.DataObject, negative: bool) -> None:
        reader = data.draw(st.sampled_from([each for each in self.readers if each.unacked]))
        place = data.draw(st.integers(0, len(reader.unacked) - 1))
        written = reader.actor.nacks if negative else reader.actor.acks
        written(reader.unacked[place])
        del reader.unacked[0 if reader.is_cumulative else place : place + 1]

    @rule(data=st.data(), room=st.booleans())
    @precondition(lambda self: self.readers)
    def jam(self, data: st.DataObject, room: bool) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        if room:
            reader.actor.opens_up()
        reader.actor.outbox.room = room

    @rule(data=st.data(), politely=st.booleans())
    @precondition(lambda self: self.readers)
    def leave(self, data: st.DataObject, politely: bool) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        self.readers.remove(reader)
        if politely:
            reader.actor.unsubscribes()
        else:
            reader.actor.is_gone()
        self.bench.turn()

    @rule(seconds=st.sampled_from([1, 60, MAX_AGE_S + 1]))
    def wait(self, seconds: int) -> None:
        self.bench.passes(seconds)

    @invariant()
    def what_is_safe_is_what_can_be_read(self) -> None:
        stream = self.stream
        assert stream.next == len(self.log)
        assert stream.first <= stream.next
        assert self.bench.memory.kept_bytes == stream.window_bytes

    def catch_up(self) -> None:
        """Let the store answer all requests."""
        self.bench.turn()

    def teardown(self) -> None:
        """However slow it was, in the end each reader has everything."""
        self.catch_up()
        for reader in self.readers:
            reader.actor.opens_up()
            busy = True
            while busy:
                self.catch_up()
                busy = self.look(reader) > 0
                for frame in reader.unacked:
                    reader.actor.nacks(frame)
                busy |= bool(reader.unacked)
                reader.unacked.clear()
            if reader.until is not None and reader.until <= self.stream.next:
                assert reader.is_ended
            elif not reader.is_ended:
                assert max(reader.next, self.stream.first) >= self.stream.next
        assert self.bench.broker.acknowledger.counters.redelivered == 0
        for actor in self.bench.peers:
            actor.is_gone()
        self.bench.turn()
        assert self.stream._waiting == {}
        self.stream.clear()
        assert self.bench.memory.used_bytes == 0
        assert len(self.bench.broker.timers) == 0


class StoredStreamMachine(StreamMachine):
    """The same beside a store, which may be slow, fail and be started again."""

    bench: DurableBench

    def make(self) -> Bench:
        return DurableBench(book={TOPIC: POLICY}, is_prompt=False)

    def after_publish(self) -> None:
        """It is safe when the store says so."""

    @rule()
    def answer(self) -> None:
        self.bench.answers()
        self.settle()

    @rule()
    def load(self) -> None:
        self.bench.loads()

    @rule()
    def fail_to_load(self) -> None:
        for wanted in self.bench.log.take_reads():
            wanted.take(None, self.bench.now)
        self.bench.turn()

    @rule()
    def fail(self) -> None:
        self.bench.fails()
        was_withdrawn = any(survives for _, survives in self.pending)
        self.pending = [each for each in self.pending if not each[1]]
        if was_withdrawn:
            assert self.filtered.error().get("code") == "storage"
            self.filtered = self.bench.actor()

    @rule(share=st.floats(0, 1))
    def trim(self, share: float) -> None:
        state = self.bench.store.stream_state(STREAM)
        if state is not None:
            before = state.first + round((state.next - state.first) * share)
            self.bench.broker.streams.retain(STREAM, state, before)
            self.bench.turn()

    @rule()
    def restart(self) -> None:
        epoch = self.stream.epoch
        self.bench.answers()
        self.settle()
        self.bench = self.bench.restarts()
        self.bench.is_prompt = False
        self.readers.clear()
        self.begin()
        assert self.stream.epoch == epoch

    @rule()
    def crash(self) -> None:
        if self.bench.store.stream_state(STREAM) is None:
            return
        self.bench = self.bench.restarts()
        self.bench.is_prompt = False
        self.pending.clear()
        self.readers.clear()
        self.begin()

    def catch_up(self) -> None:
        self.bench.turn()
        while self.bench.turns or self.bench.log.reads:
            self.bench.answers()
            self.settle()
            self.bench.loads()


TestStreamInMemory = StreamMachine.TestCase
TestStreamOnStore = StoredStreamMachine.TestCase
TestStreamInMemory.settings = TestStreamOnStore.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None
)
