"""A store over a log: the outcome of an append when requests, answers or owners are lost."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.cluster import (
    LATE,
    LOST,
    PATIENCE_S,
    REFUSED,
    UNANSWERED,
    FakeLog,
    Memories,
    Node,
)
from tests.support.stores import ignore
from trio_stomp.cluster import LogEntry, ReplicatedStore
from trio_stomp.cluster._entries import BatchReader, encode_append
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
    MemoryStore,
    Put,
    StaleSequence,
    StoreBroken,
    StoreError,
    StoreUnavailable,
    Trim,
    Turn,
    append_sound,
)

PLACE = "queue:/queue/a"
LARGE = bytes(range(256)) * 4
"""An append of six entries."""
MANY = round(PATIENCE_S)


def put(number: int, body: bytes = b"x") -> Turn:
    return Turn([Put(PLACE, number, b"h:1\n", [body])])


@define
class Owner:
    """A recovered node: its store and its state."""

    nodes: Memories = field(factory=Memories)
    store: ReplicatedStore = field(init=False)
    commit: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.store = self.nodes.make()
        self.commit = self.store.recover(ignore).commit

    def puts(self, body: bytes = b"x") -> None:
        self.commit = self.store.append([put(self.commit + 1, body)], self.commit)

    def bodies(self) -> list[bytes]:
        page = self.store.read(PLACE, 4, 0, 1 << 30)
        return [body for run in page.runs for body in run.bodies]


def appends(log: FakeLog) -> list[int]:
    """Return the commits in a log, as a new node reads them."""
    return [batch.first for batch in BatchReader().feed(log.entries)]


def test_a_record_that_no_node_can_store_is_not_published() -> None:
    """The log can hold numbers that no local store can, and each node would end at the entry."""
    owner = Owner()
    bad = Put(PLACE, 7, b"", [b"bad"], expires_ms=2**63)
    turns = [Turn([bad, *put(1, b"good").records]), put(2, b"next")]
    owner.commit, left_out = append_sound(owner.store, turns, owner.commit)
    assert [record for record, _ in left_out] == [bad]
    owner.puts(b"last")
    assert owner.bodies() == [b"good", b"next", b"last"]
    assert Owner(owner.nodes).bodies() == owner.bodies()


@pytest.mark.parametrize("body", [b"x", LARGE], ids=["one-entry", "several"])
@pytest.mark.parametrize(
    "faults",
    [
        *([LOST], [UNANSWERED], [LATE], [LOST] * MANY, [LATE, UNANSWERED], ["", LATE]),
        *([UNANSWERED, REFUSED], [LATE, REFUSED], [LOST, REFUSED, LOST]),
    ],
    ids=lambda faults: "-".join(faults),
)
def test_unanswered_append_is_retried_and_stored_once(faults: list[str], body: bytes) -> None:
    owner = Owner()
    owner.nodes.log.faults.extend(faults)
    owner.puts(body)
    owner.puts(b"next")
    assert owner.bodies() == [body, b"next"]
    assert appends(owner.nodes.log) == [1, 2]
    assert Owner(owner.nodes).bodies() == [body, b"next"]


@pytest.mark.parametrize(("fault", "is_there"), [(LOST, False), (LATE, True), (UNANSWERED, True)])
def test_an_append_in_doubt_ends_the_store_and_the_log_decides(fault: str, is_there: bool) -> None:
    owner = Owner()
    owner.puts()
    owner.nodes.log.faults.extend([fault] + [LOST] * 2 * MANY)
    with pytest.raises(StoreBroken, match="no answer"):
        owner.puts(b"doubtful")
    owner.nodes.log.faults.clear()
    with pytest.raises(StoreBroken):
        owner.puts()
    assert owner.bodies() == [b"x"]  # no client has seen it
    assert Owner(owner.nodes).bodies() == [b"x", b"doubtful"][: 1 + is_there]


def test_a_log_that_does_not_answer_is_not_opened() -> None:
    nodes = Memories()
    nodes.log.faults.extend([LOST] * 2 * MANY)
    with pytest.raises(StoreUnavailable, match="cannot be used"):
        Owner(nodes)


def test_refused_append_is_not_stored_and_the_next_may_be() -> None:
    owner = Owner()
    for faults in ([REFUSED], ["", "", REFUSED]):  # at once, and after a part of it
        owner.nodes.log.faults.extend(faults)
        with pytest.raises(StoreUnavailable, match="is full"):
            owner.puts(LARGE)
    owner.puts(b"y")
    assert owner.bodies() == Owner(owner.nodes).bodies() == [b"y"]


def test_a_former_owner_stores_nothing_more() -> None:
    former = Owner()
    former.puts()
    owner = Owner(former.nodes)
    before = list(owner.nodes.log.entries)
    for _ in range(2):
        with pytest.raises(StaleSequence):
            former.puts(b"late")
    assert owner.nodes.log.entries == before
    assert former.bodies() == owner.bodies() == [b"x"]
    owner.puts(b"y")
    assert Owner(owner.nodes).bodies() == [b"x", b"y"]


def test_deliveries_are_doubtful_unless_the_owner_ended_orderly() -> None:
    nodes = Memories()

    def owned(
        *, ends: bool, fails: bool = False, empties: bool = False, gives_up: bool = False
    ) -> bool:
        """Own the log for a while. Return whether earlier owners' deliveries are in doubt."""
        store = nodes.make()
        found = store.recover(ignore)
        commit = store.append([put(found.commit + 1)], found.commit)
        if fails:
            nodes.log.faults.append(REFUSED)
            with pytest.raises(StoreUnavailable):
                store.append([put(commit + 1)], commit)
        if empties:
            store.append([Turn([Done(range(1, commit + 1))])], commit)
        if gives_up:
            store.give_up()
        if ends:
            store.close()
        return found.is_doubtful

    assert not owned(ends=True)  # the first owner
    assert not owned(ends=False)
    assert owned(ends=True)
    assert owned(ends=True)  # messages of that time remain
    assert owned(ends=True, empties=True)
    assert not owned(ends=True)
    assert not owned(ends=True, fails=True)
    assert owned(ends=True, empties=True)
    assert not owned(ends=True, gives_up=True)
    assert owned(ends=True)


@pytest.mark.parametrize("place", ["seen:/queue/a", "retained:/topic/a", "scheduled:"])
def test_what_no_consumer_gets_is_never_in_doubt(place: str) -> None:
    nodes = Memories()
    nodes.make().recover(ignore)
    doubtful = []
    for number in (1, 2, 3):
        store = nodes.make()
        doubtful.append(store.recover(ignore).is_doubtful)
        store.append([Turn([Put(place, number, b"", [b"x"])])], number - 1)
        store.close()
    assert doubtful == [True, False, False]


def test_simultaneous_owners_are_distinguished() -> None:
    """An owner finds an identical entry of another owner where it tried to write."""
    nodes = Memories()
    others: list[Owner] = []
    nodes.log.faults.append(lambda: others.append(Owner(nodes)))
    owner = Owner(nodes)

    def other_puts_the_same() -> None:
        with pytest.raises(StaleSequence):
            others[0].puts()

    nodes.log.faults.append(other_puts_the_same)
    owner.puts()
    assert owner.bodies() == [b"x"]


def test_an_append_that_was_purged_before_it_could_be_read_is_in_doubt() -> None:
    owner = Owner()
    log = owner.nodes.log
    log.faults.extend([UNANSWERED, lambda: log.purge(log.last() + 1)])
    with pytest.raises(StoreBroken, match="purged"):
        owner.puts()


def test_an_append_is_in_doubt_while_the_log_refuses_to_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(log: FakeLog, after: int) -> NoReturn:
        raise StoreUnavailable("temporarily unavailable")

    owner = Owner()
    owner.nodes.log.faults.append(UNANSWERED)
    monkeypatch.setattr(FakeLog, "read", refuse)
    with pytest.raises(StoreBroken, match="temporarily unavailable"):
        owner.puts()


def test_node_overtaken_before_it_has_read_the_log_may_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes, read = Memories(), FakeLog.read

    def overtaken(log: FakeLog, after: int) -> Sequence[LogEntry]:
        monkeypatch.setattr(FakeLog, "read", read)
        Owner(nodes).puts()
        return read(log, after)

    monkeypatch.setattr(FakeLog, "read", overtaken)
    with pytest.raises(StoreUnavailable, match="another node owns the log"):
        Owner(nodes)
    assert Owner(nodes).bodies() == [b"x"]


def test_an_append_of_several_entries_that_was_not_finished_is_void() -> None:
    owner = Owner()
    owner.puts()
    log = owner.nodes.log
    first, second, *_ = encode_append(7, 2, [put(2, LARGE)], log.max_bytes)
    for entry in (first, second):
        log.publish(entry, log.last())
    owner = Owner(owner.nodes)
    assert owner.bodies() == [b"x"]
    owner.puts(b"y")
    log.publish(second, log.last())  # from an unknown writer, and without a beginning
    assert Owner(owner.nodes).bodies() == [b"x", b"y"]


def test_an_expected_commit_that_is_stale_changes_nothing() -> None:
    owner = Owner()
    with pytest.raises(StaleSequence, match="last commit is 0"):
        owner.store.append([put(1)], 5)
    assert owner.store.append([], 0) == 0
    owner.puts()
    assert len(owner.nodes.log.entries) == 2


def test_transient_bodies_stay_here_and_their_ids_are_not_used_again() -> None:
    owner = Owner()
    turn = Turn([Put(PLACE, 5, b"", [b"secret"], transient=True)])
    owner.commit = owner.store.append([turn], 0)
    assert owner.bodies() == [b"secret"]
    assert b"secret" not in b"".join(entry.payload for entry in owner.nodes.log.entries)
    other = owner.nodes.make()
    assert other.recover(ignore).next_id > 5
    assert other.read(PLACE, 4, 0, 100).runs == []


RECORDS = (
    Put("p", 1, b"h", [b"", b"b"], 9, received_ms=5, expires_ms=1 << 60, deliveries=3),
    Done([1, 5, 7]),
    Done(range(3, 2000)),
    Done(range(3, 30, 2)),
    Done([]),
    Delivered([8]),
    DropPlace("žluť"),
    Keep("k", "text"),
    Forget("k"),
    Begin("s", "e", 7),
    Append("s", 7, b"h", [b"\xff"], 9),
    Trim("s", 8),
    DropStream("s"),
)


@pytest.mark.parametrize("max_bytes", [40, 100_000])
def test_every_record_comes_back_as_it_was(max_bytes: int) -> None:
    turns = [Turn(RECORDS), Turn([Atomic(RECORDS)], is_urgent=False), Turn([])]
    payloads = encode_append(7, 3, turns, max_bytes)
    entries = [LogEntry(number, payload) for number, payload in enumerate(payloads, 5)]
    (batch,) = BatchReader().feed(entries)
    assert (batch.first, batch.sequence) == (3, entries[-1].sequence)
    assert repr(batch.turns) == repr(turns).replace("(Put", "[Put").replace("),)", ")]") or [
        listed(turn) for turn in batch.turns
    ] == [listed(turn) for turn in turns]


def listed(turn: Turn) -> list[object]:
    """Return a turn with all sequences as lists, for comparison."""

    def plain(thing: object) -> object:
        if isinstance(thing, list | tuple | range):
            return [plain(each) for each in thing]
        names = getattr(thing, "__slots__", None)
        if names is None or isinstance(thing, bytes | str | int):
            return thing
        return [type(thing), *(plain(getattr(thing, name)) for name in names if name[0] != "_")]

    return [turn.is_urgent, plain(turn.records)]


@pytest.mark.parametrize("payload", [b"", b"hello", b"TSL2" + bytes(40)])
def test_another_applications_stream_is_not_taken_for_a_log(payload: bytes) -> None:
    nodes = Memories()
    nodes.log.publish(payload, 0)
    with pytest.raises(StoreError, match="not of this broker"):
        Owner(nodes)


def test_a_damaged_entry_is_named() -> None:
    owner = Owner()
    owner.puts()
    log = owner.nodes.log
    log.entries[1] = LogEntry(2, log.entries[1].payload[:-1])
    with pytest.raises(StoreError, match="entry 2 of the log is damaged"):
        Owner(owner.nodes)


# --- local state ----------------------------------------------------------------------------------


def grown(node: Node, count: int) -> ReplicatedStore:
    """Return an open store of a node after some appends."""
    store = node.make()
    assert isinstance(store, ReplicatedStore)
    commit = store.recover(ignore).commit
    for number in range(commit + 1, commit + 1 + count):
        store.append([put(number, b"%d" % number)], number - 1)
    return store


def read(store: ReplicatedStore) -> list[bytes]:
    return [body for run in store.read(PLACE, 4, 0, 1 << 30).runs for body in run.bodies]


def damage(folder: Path) -> None:
    for file in folder.glob("local-*/journal/*"):
        file.write_bytes(file.read_bytes().replace(b"1", b"7"))


def forget(folder: Path) -> None:
    for file in folder.glob("local-*/journal/*"):
        file.unlink()


@pytest.mark.parametrize("harm", [lambda folder: None, damage, forget], ids=["no", "bad", "gone"])
def test_local_state_leads_up_to_the_log_or_is_made_anew(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    node = Node(tmp_path)
    grown(node, 3).close()
    harm(tmp_path)
    elsewhere = Node(tmp_path / "other", node.log)
    elsewhere.path.mkdir()
    grown(elsewhere, 2).close()
    store = grown(node, 1)
    assert read(store) == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert store.statistics().live_messages == 6
    store.close()


def test_a_former_owner_follows_the_log_from_its_open_state(tmp_path: Path) -> None:
    """Reading its journal again would take seconds in which it could not take over."""
    opened: list[bool] = []
    node = Node(tmp_path)
    store = grown(node, 2)
    local = store.local
    open_local = local.open_local
    local.open_local = lambda is_new: opened.append(is_new) or open_local(is_new)  # type: ignore[func-returns-value]
    ReplicatedStore.close(store)
    elsewhere = Node(tmp_path / "other", node.log)
    elsewhere.path.mkdir()
    grown(elsewhere, 2).close()
    local.open(ignore)
    local.follow(node.log.read(local.position))
    again = ReplicatedStore(node.log, local)
    again.recover(ignore)
    assert (read(again), opened) == ([b"1", b"2", b"3", b"4"], [])


def test_a_node_behind_a_purge_says_so(tmp_path: Path) -> None:
    node = Node(tmp_path)
    grown(node, 3).close()
    del node.log.entries[:2]
    store = grown(node, 1)  # its state reaches the log
    assert read(store) == [b"1", b"2", b"3", b"4"]
    store.close()
    newcomer = Node(tmp_path / "new", node.log)
    newcomer.path.mkdir()
    with pytest.raises(StoreError, match="begins after this node's state"):
        newcomer.make().recover(ignore)


def test_logged_entry_that_the_disk_refused_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = Owner()
    with monkeypatch.context() as patch:

        def fail(store: MemoryStore, turns: object, expected: int) -> int:
            raise StoreUnavailable("the disk is full")

        patch.setattr(MemoryStore, "append", fail)
        with pytest.raises(StoreBroken, match="disk is full"):
            owner.puts(b"y")
    with pytest.raises(StoreBroken):
        owner.puts(b"z")
    assert Owner(owner.nodes).bodies() == [b"y"]


# --- three nodes ----------------------------------------------------------------------------------


class ThreeNodes(RuleBasedStateMachine):
    """Nodes that own a failing log in turn, without knowing of each other."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = Memories()
        self.owners: list[Owner | None] = [None] * 3
        self.promised: list[bytes] = []
        self.doubtful: bytes = b""
        self.number = 0

    @rule(index=st.integers(0, 2))
    def open(self, index: int) -> None:
        self.nodes.log.faults.clear()
        owner = self.owners[index] = Owner(self.nodes)
        found = owner.bodies()
        assert found in (self.promised, [*self.promised, self.doubtful])
        self.promised = found
        self.doubtful = b""

    @rule(fault=st.sampled_from([LOST, REFUSED, UNANSWERED, LATE, LATE, ""]))
    def fail(self, fault: str) -> None:
        self.nodes.log.faults.append(fault)

    @precondition(lambda self: any(self.owners))
    @rule(index=st.integers(0, 2), is_large=st.booleans())
    def append(self, index: int, is_large: bool) -> None:
        owner = self.owners[index]
        if owner is None:
            return
        self.number += 1
        body = b"%d " % self.number + (LARGE if is_large else b"")
        try:
            owner.puts(body)
        except (StaleSequence, StoreUnavailable):
            pass
        except StoreBroken:
            if owner.store._broken.startswith("whether") and not self.doubtful:
                self.doubtful = body
        else:
            self.promised = [*self.promised, body]

    @invariant()
    def readers_see_what_was_promised(self) -> None:
        for owner in self.owners:
            if owner is not None:
                found = owner.bodies()
                assert found == self.promised[: len(found)]


def test_three_nodes_store_each_promised_message_once_and_in_order() -> None:
    ThreeNodes.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
    machine = ThreeNodes.TestCase()
    machine.runTest()


def test_records_of_a_kind_that_only_a_newer_version_has_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("trio_stomp.cluster._entries.pack_records", lambda _: [(11, "x")])
        payloads = encode_append(7, 1, [put(1)], 200)
    entries = [LogEntry(number, each) for number, each in enumerate(payloads, 1)]
    with pytest.raises(StoreError, match=r"entry 1 .* kind 11, which only a newer version"):
        list(BatchReader().feed(entries))
