"""The content of a store of one broker, as that of several partitions."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.stores import ignore
from trio_stomp.base import OptionError
from trio_stomp.broker import dialect
from trio_stomp.cluster.routing import Parting, Placement
from trio_stomp.store import (
    Append,
    Begin,
    JournalStore,
    Keep,
    MemoryStore,
    Put,
    Record,
    Turn,
)
from trio_stomp.store.tools import export_lines, import_lines, open_view

PLACEMENT = Placement(3)
QUEUES, TOPICS = (
    [
        next(name for number in range(99) if PLACEMENT.of(name := f"{kind}{number}") == partition)
        for partition in range(3)
    ]
    for kind in ("/queue/q", "/topic/t")
)
"""A queue and a topic in each partition."""
A, B, C = TOPICS

Part = Callable[..., list[MemoryStore]]


def put(place: str, first: int, destination: str, count: int = 1) -> Put:
    return Put(place, first, f"destination:{destination}\n".encode(), [b"x"] * count)


def durable(*names: str) -> str:
    fields = {"name": "\0d", "destinations": names, "selector": None, "no_local": False}
    return json.dumps(fields)


@pytest.fixture
def part(tmp_path: Path) -> Part:
    """Return a function that fills a store, and returns a store of each partition."""

    def parted(*records: Record, placement: Placement = PLACEMENT) -> list[MemoryStore]:
        store = JournalStore(str(tmp_path))
        store.recover(ignore)
        store.append([Turn([each]) for each in records], 0)
        store.close()
        view = open_view(str(tmp_path))
        try:
            whole = Parting(view, placement, dialect("native"))
            stores: list[MemoryStore] = []
            for number in placement.all:
                view_of_part = whole.part(number)
                copy = MemoryStore()
                found = view_of_part.recover(ignore)
                import_lines(copy, export_lines(view_of_part, found, ignore))
                stores.append(copy)
            return stores
        finally:
            view.close()

    return parted


def ids(stores: Sequence[MemoryStore], place: str) -> list[list[int]]:
    """Return the ids of a place's messages in each store."""
    return [
        [id for run in store.read(place, 4, 0, 1 << 20).runs for id in run.ids] for store in stores
    ]


def having(stores: Sequence[MemoryStore], key: str) -> list[int]:
    """Return the partitions that have a setting."""
    return [number for number, store in enumerate(stores) if key in store.state().settings]


def test_named_places_settings_and_streams_go_to_the_partition_of_their_name(part: Part) -> None:
    records: list[Record] = []
    for number, (queue, name) in enumerate(zip(QUEUES, TOPICS, strict=True)):
        first = 1 + 10 * number
        records += (put(f"queue:{queue}", first, "", 3),)
        records += put(f"retained:{name}", first + 3, ""), put(f"seen:{name}", first + 4, "")
        records += Keep(f"declared:{queue}", "{}"), Keep("steps", "1")
        records += Begin(f"/stream{name}", "e", 0), Append(f"/stream{name}", 0, b"", [b"s"], 1)
        records += (Keep(f"first:/stream{name}", "0"),)
    stores = part(*records)
    for number, (queue, name) in enumerate(zip(QUEUES, TOPICS, strict=True)):
        first = 1 + 10 * number
        only: list[list[int]] = [[], [], []]
        only[number] = [first, first + 1, first + 2]
        assert ids(stores, f"queue:{queue}") == only
        for key in (f"declared:{queue}", f"first:/stream{name}"):
            assert having(stores, key) == [number]
        state = stores[number].state()
        assert list(state.streams) == [f"/stream{name}"]
        assert sum(each.count for each in state.places.values()) == 5
        # No id is used again.
        assert state.next_id == 26
    assert having(stores, "steps") == [0, 1, 2]


def test_a_durable_subscription_with_a_wildcard_is_in_each_partition_with_its_messages(
    part: Part,
) -> None:
    messages = [put("durable:w", 1 + number, name) for number, name in enumerate([A, C, A, B])]
    stores = part(
        *(Keep("durable:w", durable("/topic/*")), Keep("durable:one", durable(B))),
        *(*messages, put("durable:one", 9, B)),
    )
    assert having(stores, "durable:w") == [0, 1, 2]
    assert ids(stores, "durable:w") == [[1, 3], [4], [2]]
    assert having(stores, "durable:one") == [1]
    assert ids(stores, "durable:one") == [[], [9], []]


def test_scheduled_messages_and_their_progress_go_where_they_will_be_sent(part: Part) -> None:
    progress = {"due_ms": 1, "sent": 1}
    stores = part(
        *(put("scheduled:", 1, A, 2), put("scheduled:", 3, C)),
        *(
            Keep("scheduled:1", json.dumps({**progress, "last": 2})),
            Keep("scheduled:3", json.dumps({**progress, "last": 3})),
        ),
    )
    assert ids(stores, "scheduled:") == [[1, 2], [], [3]]
    assert having(stores, "scheduled:1") == [0]
    assert having(stores, "scheduled:3") == [2]


def test_a_message_that_is_scheduled_for_several_partitions_is_refused(part: Part) -> None:
    with pytest.raises(OptionError, match=r"the scheduled message 7 is for .*--cluster-colocate"):
        part(put("scheduled:", 7, f"{A},{B}"))


def test_destinations_of_a_group_stay_together(part: Part) -> None:
    together = Placement(3, f"{A},{B}")
    stores = part(put("scheduled:", 7, f"{A},{B}"), placement=together)
    assert ids(stores, "scheduled:")[together.of(A)] == [7]


@pytest.mark.parametrize(("identity", "partition"), [("1_xs", 1), ("xs", 0), ("7_xs", 0)])
def test_messages_for_other_partitions_stay_in_that_by_which_others_know_them(
    part: Part, identity: str, partition: int
) -> None:
    stores = part(Keep("identity", identity), put("forwards:", 5, A))
    expected: list[list[int]] = [[], [], []]
    expected[partition] = [5]
    assert ids(stores, "forwards:") == expected


def test_ids_of_messages_begin_with_their_partition(part: Part) -> None:
    stores = part(Keep("identity", "12_xs"))
    assert [each.state().settings["identity"] for each in stores] == ["0_xs", "1_xs", "2_xs"]
