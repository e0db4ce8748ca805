"""Records that no store can hold: each store refuses the same ones, and stores the rest."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trio_stomp.store import (
    Atomic,
    Delivered,
    Done,
    DropPlace,
    Forget,
    JournalStore,
    Keep,
    MemoryStore,
    Put,
    Record,
    SqlStore,
    Store,
    StoreUnavailable,
    Turn,
    append_sound,
    flaws_of,
    shape_of,
)

INTEGERS = st.sampled_from(
    [0, 1, *(2**bits + by for bits in (31, 32, 53, 63, 64) for by in (-1, 0))]
)
TIMES = INTEGERS | INTEGERS.map(lambda number: -number)
TEXTS = st.sampled_from(["", "a", "ü", "\ud800", "a\0b", "x" * 65_535, "ü" * 32_768])
PUTS = st.builds(
    Put,
    TEXTS,
    first=st.integers(10, 20) | INTEGERS,
    head=st.binary(max_size=3),
    bodies=st.lists(st.binary(max_size=3), min_size=1, max_size=2),
    level=INTEGERS,
    received_ms=TIMES,
    expires_ms=TIMES,
    deliveries=INTEGERS,
)
SIMPLE = PUTS | st.builds(Keep, TEXTS, TEXTS) | TEXTS.map(Forget) | TEXTS.map(DropPlace)
GOOD = Put("queue:/queue/q", 1, b"", [b"good"])


def opened(kind: str, directory: Path) -> Store:
    store: Store = JournalStore(str(directory))
    if kind == "sqlite":
        store = SqlStore(f"sqlite:///{directory}.db")
    store.recover(lambda _done, _total: None)
    return store


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
@given(record=SIMPLE | st.lists(PUTS, min_size=1, max_size=2).map(Atomic))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_a_store_holds_each_record_without_a_flaw(
    kind: str, record: Record, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = opened(kind, tmp_path_factory.mktemp("store") / "data")
    if not flaws_of([Turn([record])]):
        assert store.append([Turn([record])], 0) == 1
    store.close()


BAD = (
    (Put("q", 2, b"", [b"bad"], expires_ms=2**63), "expires_ms is", "1 messages of 3 bytes at 'q'"),
    (Keep("declared:\ud800", ""), "key is -1", "Keep 'declared:\\ud800'"),
    (
        Atomic([Done([1]), Put("x" * 2**16, 2, b"", [b"b"])]),
        "place is 65536, but must be from 0 to 65535",
        f"Done '' + 1 messages of 1 bytes at '{'x' * 200}'",
    ),
)


@pytest.mark.parametrize(("bad", "flaw", "shape"), BAD)
@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_the_rest_of_an_append_is_stored(
    kind: str, bad: Record, flaw: str, shape: str, tmp_path: Path
) -> None:
    store = opened(kind, tmp_path / "data")
    if kind == "sqlite" and "place" in flaw:
        pytest.skip("a database has no such limit")
    number, left_out = append_sound(store, [Turn([bad, GOOD]), Turn([Delivered([1])])], 0)
    assert number == 2
    assert [record for record, _ in left_out] == [bad]
    assert left_out[0][1].startswith(flaw)
    assert shape_of(bad) == shape
    assert [run.bodies for run in store.read(GOOD.place, 4, 0, 1000).runs] == [[b"good"]]
    store.close()


class Broken(MemoryStore):
    """A store that raises an error."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def append(self, turns: Sequence[Turn], expected: int) -> int:
        raise self.error


@pytest.mark.parametrize("error", [StoreUnavailable("full"), KeyError("a bug")])
def test_other_errors_are_those_of_the_store(error: Exception) -> None:
    with pytest.raises(type(error)):
        append_sound(Broken(error), [Turn([GOOD])], 0)
