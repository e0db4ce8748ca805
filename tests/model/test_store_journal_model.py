"""The journal against a model in dicts, over random lives with tiny segments and restarts."""

import tempfile

from _oracle.store_disk import Disk, Model, open_store, read_all, read_place
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from trio_stomp.store import Atomic, Delivered, Done, DropPlace, Forget, Keep, Put, Record, Turn

PLACES = st.sampled_from(["a", "b", "seen:c"])
LEVELS = st.sampled_from([4, 4, 9])
KEYS = st.sampled_from(["k", "l"])
SIZES = st.sampled_from([0, 1, 900, 30_000, 100_000])
LIMITS = st.sampled_from([1, 100, 2000, 50_000]) | st.integers(1, 1 << 20)


class JournalMachine(RuleBasedStateMachine):
    """One store, one model; a turn is gathered from records, or an Atomic of them."""

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.disk = Disk()
        self.model = Model()
        self.durable = Model()
        self.next_id = 1
        self.commit = 0
        self.open()

    def open(self) -> None:
        self.store, self.recovered = open_store(self.directory.name, self.disk)
        assert self.recovered.commit == self.commit
        assert self.recovered.settings == self.model.settings
        assert self.recovered.next_id >= self.next_id
        assert not self.recovered.damage
        assert read_all(self.store, self.recovered) == self.model.places
        assert self.recovered.deliveries == {
            id: deliveries
            for messages in self.model.places.values()
            for id, (_, deliveries) in messages.items()
            if deliveries
        }

    def append(self, records: list[Record], urgent: bool) -> None:
        self.commit = self.store.append([Turn(records, urgent)], self.commit)
        self.model.apply(records)
        if urgent:
            self.durable = self.model.copy()

    def make_put(self, data: st.DataObject, size: int | None = None) -> Put:
        count = data.draw(st.sampled_from([1, 1, 1, 3, 20]))
        # Some ids are used for records that are never stored.
        first = self.next_id + data.draw(st.sampled_from([0, 0, 0, 700]))
        self.next_id = first + count
        if size is None:
            size = data.draw(st.sampled_from([0, 1, 100, 900]))
        return Put(
            data.draw(PLACES),
            first,
            b"head",
            [b"%d" % (first + n) * size for n in range(count)],
            level=data.draw(LEVELS),
            transient=data.draw(st.sampled_from([False, False, False, True])),
            deliveries=data.draw(st.sampled_from([0, 0, 0, 2])),
        )

    def some_ids(self, data: st.DataObject) -> list[int]:
        ids = sorted(self.model.ids)
        which = data.draw(st.sampled_from(["all", "most", "first", "some", "unknown"]))
        if which == "unknown" or not ids:
            return [self.next_id + 5]
        if which == "all":
            return ids
        if which == "most":
            keep = data.draw(st.integers(0, len(ids) - 1))
            return ids[:keep] + ids[keep + 1 :] or ids
        if which == "first":
            return ids[: data.draw(st.integers(1, len(ids)))]
        return data.draw(st.lists(st.sampled_from(ids), min_size=1, unique=True))

    @rule(data=st.data(), urgent=st.booleans(), times=st.integers(1, 6))
    def put(self, data: st.DataObject, urgent: bool, times: int) -> None:
        for _ in range(times):
            self.append([self.make_put(data)], urgent)

    @rule(data=st.data(), urgent=st.booleans())
    def done(self, data: st.DataObject, urgent: bool) -> None:
        self.append([Done(self.some_ids(data))], urgent)

    @rule(data=st.data(), urgent=st.booleans())
    def deliver(self, data: st.DataObject, urgent: bool) -> None:
        self.append([Delivered(self.some_ids(data))], urgent)

    @rule(data=st.data(), urgent=st.booleans())
    def move(self, data: st.DataObject, urgent: bool) -> None:
        put, ids = self.make_put(data), self.some_ids(data)
        self.append([Atomic([put, Done(ids), self.make_put(data)])], urgent)

    @rule(data=st.data(), urgent=st.booleans(), sizes=st.lists(SIZES, min_size=2, max_size=12))
    def commit_large(self, data: st.DataObject, urgent: bool, sizes: list[int]) -> None:
        """Append an atomic group that may be larger than what is read at once."""
        parts: list[Put | Done] = [self.make_put(data, size) for size in sizes]
        if data.draw(st.booleans()):
            parts.insert(0, Done(self.some_ids(data)))
        self.append([Atomic(parts)], urgent)

    @rule(place=PLACES)
    def drop(self, place: str) -> None:
        self.append([DropPlace(place)], True)

    @rule(key=KEYS, text=st.sampled_from(["", "x", "y" * 300]))
    def keep(self, key: str, text: str) -> None:
        self.append([Keep(key, text)], True)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.append([Forget(key)], True)

    @rule(times=st.integers(1, 40))
    def idle(self, times: int) -> None:
        """Append short-lived records, so that old segments are cleaned."""
        for _ in range(times):
            put = Put("idle", self.next_id, b"", [bytes(1000)])
            self.next_id += 1
            self.append([put], False)
            self.append([Done([put.first])], True)

    @rule(place=PLACES, level=LEVELS, limit=LIMITS, data=st.data())
    def read(self, place: str, level: int, limit: int, data: st.DataObject) -> None:
        messages = self.model.places.get((place, level), {})
        after = data.draw(st.sampled_from([0, *messages]))
        expected = {id: message for id, message in messages.items() if id > after}
        assert read_place(self.store, place, level, after, limit) == expected

    @rule()
    def restart(self) -> None:
        self.store.close()
        assert not self.disk.open_files
        self.model.restart()
        self.durable = self.model.copy()
        self.open()

    @invariant()
    def nothing_is_damaged(self) -> None:
        if hasattr(self, "store"):
            assert self.store.statistics().damaged == 0

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.directory.cleanup()


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
