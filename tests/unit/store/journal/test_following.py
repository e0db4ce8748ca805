"""A journal that follows another store knows at any time what a restart would recover."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.stores import ignore
from trio_stomp.store import (
    CHARGED,
    Append,
    Atomic,
    Begin,
    Delivered,
    Done,
    DropPlace,
    Forget,
    JournalOptions,
    JournalStore,
    Keep,
    Put,
    Turn,
)
from trio_stomp.store.journal import _tally

HEADS = (b"h:1\n", CHARGED + b"alice\nh:1\n", CHARGED + b"bob\n")
PLACES = ("queue:/queue/a", "queue:/queue/b")
steps = st.lists(
    st.one_of(
        st.tuples(
            *(st.just("put"), st.sampled_from(PLACES), st.sampled_from(HEADS)),
            *(st.integers(1, 5), st.booleans()),
        ),
        st.tuples(
            st.just("done"), st.lists(st.integers(1, 60), min_size=1, max_size=9, unique=True)
        ),
        st.tuples(st.just("delivered"), st.integers(1, 60)),
        st.tuples(st.just("drop"), st.sampled_from(PLACES)),
        st.tuples(st.just("keep"), st.sampled_from("xy")),
        st.tuples(st.just("forget"), st.sampled_from("xy")),
        st.tuples(st.just("stream"), st.integers(1, 3)),
    ),
    max_size=40,
)


class Appender:
    """Makes records of steps, with ids and offsets as a broker chooses them."""

    def __init__(self) -> None:
        self.next_id = 1
        self.offset = 0

    def turn(self, step: tuple[object, ...]) -> Turn:
        match step:
            case ("put", str(place), bytes(head), int(count), is_atomic):
                bodies = [b"x" * (self.next_id % 7)] * count
                record = Put(place, self.next_id, head, bodies, 4)
                self.next_id += count
                return Turn([Atomic([record])] if is_atomic else [record])
            case ("done", list(ids)):
                return Turn([Done(sorted(ids))])
            case ("delivered", int(id)):
                return Turn([Delivered([id])])
            case ("drop", str(place)):
                return Turn([DropPlace(place)])
            case ("keep", str(key)):
                return Turn([Keep(key, f"{self.next_id}")])
            case ("forget", str(key)):
                return Turn([Forget(key)])
        (_, grown) = step
        assert isinstance(grown, int)
        self.offset += grown
        return Turn([Append("s", self.offset - grown, b"h:2\n", [b"y"] * grown, 5)])


@settings(max_examples=60, deadline=None)
@given(steps, st.sampled_from([4096, 64 * 1024 * 1024]))
def test_the_state_equals_that_after_a_restart(
    script: list[tuple[object, ...]], segment_bytes: int
) -> None:
    options = JournalOptions(segment_bytes=segment_bytes)
    few, _tally.FEW_ROWS = _tally.FEW_ROWS, 4
    try:
        with TemporaryDirectory() as folder:
            store = JournalStore(str(Path(folder)), options=options, follows=True)
            store.recover(ignore)
            appender = Appender()
            commit = store.append([Turn([Begin("s", "e", 0)])], 0)
            for step in script:
                commit = store.append([appender.turn(step)], commit)
            state = store.state()
            store.close()
            again = JournalStore(str(Path(folder)), options=options)
            found = again.recover(ignore)
            again.close()
    finally:
        _tally.FEW_ROWS = few
    assert state.commit == found.commit == commit
    assert state.next_id == found.next_id
    assert state.settings == found.settings
    assert state.deliveries == found.deliveries
    assert state.places == found.places
    assert {name: each.next for name, each in state.streams.items()} == {"s": appender.offset}
    assert found.streams == state.streams
