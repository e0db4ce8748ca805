"""Snapshots, with which an empty node or one behind a purge begins."""

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest
import trio
import trio.testing
from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.cluster import FakeLog, Node
from tests.support.stores import ignore
from trio_stomp.cluster import LocalState, LogEntry, ReplicatedStore, Snapshot, write_snapshot
from trio_stomp.cluster._local_state import Unfit, digest_at
from trio_stomp.cluster._snapshot import find_snapshot, read_snapshot
from trio_stomp.store import (
    Append,
    Atomic,
    Begin,
    Delivered,
    Done,
    DropStream,
    Keep,
    Progress,
    Put,
    Record,
    StoreBroken,
    StoreError,
    StoreUnavailable,
    Turn,
)
from trio_stomp.store.tools import open_view

PLACE = "queue:/queue/a"


@define
class Member:
    """A node with its own journal, on logs that all share."""

    node: Node
    store: ReplicatedStore = field(init=False)
    commit: int = 0

    @classmethod
    def at(cls, path: Path, like: "Member | None" = None) -> "Member":
        path.mkdir()
        node = Node(path)
        node.snapshots.max_bytes = 100  # several parts
        if like is not None:
            node.log, node.snapshots = like.node.log, like.node.snapshots
        return cls(node)

    def open(self) -> "Member":
        store = self.node.make()
        assert isinstance(store, ReplicatedStore)
        self.store = store
        self.commit = store.recover(ignore).commit
        return self

    def add(self, *records: Record) -> None:
        self.commit = self.store.append([Turn(records)], self.commit)

    def puts(self, number: int) -> None:
        self.add(Put(PLACE, number, b"h:1\n", [b"%d" % number]))

    def bodies(self) -> list[bytes]:
        runs = self.store.read(PLACE, 4, 0, 1 << 30).runs
        return [body for run in runs for body in run.bodies]

    def write(self) -> Snapshot | None:
        view = open_view(str(self.node.path / f"local-{self.node._number}"))
        try:
            return write_snapshot(view, self.node.snapshots)
        finally:
            view.close()

    def purge(self, snapshot: Snapshot) -> None:
        """Delete the entries that a snapshot covers, as its writer does."""
        self.node.log.purge(snapshot.sequence + 1)
        self.node.snapshots.purge(snapshot.first)


def filled(path: Path) -> Member:
    """Return a node with messages, some of them done, settings and a stream."""
    member = Member.at(path).open()
    for number in range(1, 31):
        member.puts(number)
    member.add(Done(range(5, 25)), Delivered([3]), Keep("key", "text"))
    member.add(Begin("s", "epoch", 7))
    member.add(Append("s", 7, b"h:2\n", [b"x", b"y"], 99))
    return member


@pytest.mark.parametrize("is_behind", [True, False], ids=["behind", "new"])
def test_a_node_behind_a_purge_begins_with_a_snapshot(tmp_path: Path, is_behind: bool) -> None:
    owner = filled(tmp_path / "a")
    other = Member.at(tmp_path / "b", owner)
    if is_behind:
        owner.store.close()
        other.open().store.close()
        owner.open()
    snapshot = owner.write()
    assert snapshot is not None
    owner.puts(40)
    owner.purge(snapshot)
    owner.store.close()
    for _ in range(2):  # and again from its own disk
        found = other.node.make()
        recovered = found.recover(ignore)
        assert recovered.commit == owner.commit
        assert recovered.settings == {"key": "text"}
        assert (recovered.deliveries, recovered.next_id) == ({3: 1}, 41)
        assert found.read_stream("s", 0, 99)[0].bodies == [b"x", b"y"]
        found.close()
    other.open()
    assert other.bodies() == [b"%d" % n for n in (1, 2, 3, 4, *range(25, 31), 40)]
    other.puts(41)
    later = other.write()
    assert later is not None
    assert (later.commit, later.first) == (other.commit, snapshot.last + 1)
    other.purge(later)
    other.store.close()
    assert len(Member.at(tmp_path / "c", owner).open().bodies()) == 12


def test_a_log_that_is_shortened_again_meanwhile_begins_with_a_newer_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = filled(tmp_path / "a")
    newcomer = Member.at(tmp_path / "b", owner)
    renew, renewed = LocalState.renew, list[int]()

    def shorten() -> None:
        snapshot = owner.write()
        assert snapshot is not None
        owner.purge(snapshot)

    def slow(self: LocalState, progress: Progress) -> None:
        renew(self, progress)
        if not renewed:
            shorten()
        renewed.append(self.position)

    shorten()
    owner.puts(31)
    monkeypatch.setattr(LocalState, "renew", slow)
    newcomer.open()
    assert newcomer.bodies() == owner.bodies()
    assert renewed == [34, 35]


def test_without_its_snapshot_a_log_that_was_shortened_is_refused(tmp_path: Path) -> None:
    owner = filled(tmp_path / "a")
    snapshot = owner.write()
    assert snapshot is not None
    owner.purge(snapshot)
    owner.puts(40)
    del owner.node.snapshots.entries[-1]
    assert find_snapshot(owner.node.snapshots) is None
    with pytest.raises(StoreError, match="no snapshot has what is between"):
        Member.at(tmp_path / "b", owner).open()


def test_one_of_two_simultaneous_snapshots_fails_and_none_replaces_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = filled(tmp_path / "a")
    kept = owner.node.snapshots
    assert owner.write() is not None
    assert owner.write() is None  # nothing new
    owner.puts(50)
    meanwhile: list[Snapshot | None] = []
    publish = FakeLog.publish

    def another_first(log: FakeLog, payload: bytes, expected: int) -> int:
        monkeypatch.setattr(FakeLog, "publish", publish)
        meanwhile.append(owner.write())
        return publish(log, payload, expected)

    monkeypatch.setattr(FakeLog, "publish", another_first)
    assert owner.write() is None
    (second,) = meanwhile
    assert second is not None
    assert find_snapshot(kept) == second
    owner.puts(51)
    third = owner.write()
    assert third is not None
    kept.entries = [each for each in kept.entries if each.sequence != third.first]
    assert find_snapshot(kept) == second  # the third is incomplete


@pytest.mark.parametrize(
    "records",
    [
        [Append("s", 9, b"h:2\n", [b"z", b"z"], 99)],
        [Atomic([Append("s", 9, b"h:2\n", [b"z"], 99), Keep("k", "x")])],
        [Append("s", 9, b"h:2\n", [b"z"], 99), Append("s", 10, b"h:2\n", [b"q"], 99)],
        [DropStream("s"), Begin("s", "later", 3), Append("s", 3, b"h:2\n", [b"z"], 99)],
        [Begin("t", "epoch", 0)],
    ],
    ids=["append", "atomic", "two", "anew", "begin"],
)
def test_streams_that_are_ahead_after_a_crash_are_not_appended_twice(
    tmp_path: Path, records: list[Record]
) -> None:
    """A stream's part of an append reaches the disk before the journal's part."""
    owner = filled(tmp_path / "a")
    folder = owner.node.path / f"local-{owner.node._number}"
    shutil.copytree(folder / "journal", tmp_path / "before")
    owner.add(*records)
    expected = owner.store.local.state().streams
    content = owner.store.read_stream("s", 0, 999)
    owner.store.local.store.close()
    shutil.rmtree(folder / "journal")
    shutil.copytree(tmp_path / "before", folder / "journal")
    owner.open()
    found = owner.store.local.state().streams
    assert {name: (each.epoch, each.first, each.next) for name, each in found.items()} == {
        name: (each.epoch, each.first, each.next) for name, each in expected.items()
    }
    assert [(run.first, run.bodies) for run in owner.store.read_stream("s", 0, 999)] == [
        (run.first, run.bodies) for run in content
    ]
    owner.store.close()


@pytest.mark.parametrize(
    "harm",
    [
        lambda log: log.write_bytes(log.read_bytes()[:-2] + b"??"),
        lambda log: log.write_bytes(log.read_bytes()[:-2]),
    ],
    ids=["damaged", "shorter"],
)
def test_a_stream_that_lost_its_end_is_made_anew_with_the_rest(
    tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    owner = filled(tmp_path / "a")
    folder = owner.node.path / f"local-{owner.node._number}"
    shutil.copytree(folder, tmp_path / "killed")
    owner.store.local.close()
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "killed", folder)
    (log,) = folder.glob("streams/*/*.log")
    harm(log)
    other = Member.at(tmp_path / "b", owner).open()
    other.add(Append("s", 9, b"h:2\n", [b"z"], 99))
    other.store.close()
    owner.open()
    runs = owner.store.read_stream("s", 0, 999)
    assert [body for run in runs for body in run.bodies] == [b"x", b"y", b"z"]
    owner.store.local.close()
    other.store.local.close()


def test_a_message_that_is_damaged_here_comes_from_the_log(tmp_path: Path) -> None:
    """It is left out neither of a snapshot nor of the owner's deliveries."""
    owner = filled(tmp_path / "a")
    owner.add(Put(PLACE, 31, b"h:1\n", [b"precious"]))
    folder = owner.node.path / f"local-{owner.node._number}"
    owner.store.local.close()  # the damage must not be at the end of an unfinished file
    owner.open()
    owner.puts(32)
    for file in sorted(folder.glob("journal/*.log"))[:1]:
        with file.open("r+b") as journal:
            journal.seek(file.read_bytes().find(b"precious"))
            journal.write(b"pr")
            journal.seek(-1, 1)
            journal.write(b"X")
    with pytest.raises(StoreError, match="damaged"):
        owner.write()
    assert find_snapshot(owner.node.snapshots) is None
    with pytest.raises(StoreUnavailable, match="1 stored messages are damaged"):
        owner.bodies()
    with pytest.raises(StoreBroken):
        owner.puts(33)
    store, local = ReplicatedStore(owner.node.log, owner.store.local), owner.store.local
    store.recover(ignore)
    owner.store = store
    assert owner.bodies()[-2:] == [b"precious", b"32"]
    local.close()


def test_a_stream_begins_again_and_grows_in_turns_of_one_append(tmp_path: Path) -> None:
    owner = filled(tmp_path / "a")
    other = Member.at(tmp_path / "b", owner)
    turns = [
        Turn([DropStream("s")]),
        Turn([Begin("s", "later", 3)]),
        Turn([Atomic([Append("s", 3, b"h:2\n", [b"z"], 99)])]),
    ]
    owner.store.append(turns, owner.commit)
    owner.store.local.close()
    runs = other.open().store.read_stream("s", 0, 99)
    assert [(run.first, run.bodies) for run in runs] == [(3, [b"z"])]
    other.store.local.close()


def test_a_view_shows_one_moment_whatever_is_appended(tmp_path: Path) -> None:
    owner = filled(tmp_path / "a")
    view = open_view(str(owner.node.path / f"local-{owner.node._number}"))
    with owner.store.local.appending:
        view.fix()
    owner.add(Append("s", 9, b"h:2\n", [b"z"], 99))
    owner.puts(60)
    found = view.recover(ignore)
    assert found.streams["s"].next == 9
    assert view.read_stream("s", 0, 99)[0].bodies == [b"x", b"y"]
    assert found.next_id == 31
    view.close()
    owner.store.close()


async def digest(path: Path, local: LocalState, position: int) -> tuple[str, int]:
    return await digest_at(local, lambda: open_view(str(path)), position)


async def test_equal_states_have_equal_digests_whatever_led_to_them(tmp_path: Path) -> None:
    owner = filled(tmp_path / "owner")
    local, path = owner.store.local, owner.node.path / "local-0"
    other = Member.at(tmp_path / "other", owner)
    follower = LocalState(other.node.open_local, newest=lambda: None, log=owner.node.log)
    follower.open(ignore)
    follower.follow(owner.node.log.read(0))
    expected = await digest(path, local, local.position)
    assert expected[1] > 10
    assert await digest(other.node.path / "local-0", follower, local.position) == expected
    snapshot = owner.write()
    assert snapshot is not None
    owner.purge(snapshot)
    newcomer = Member.at(tmp_path / "new", owner)
    from_snapshot = newcomer.node.make().local
    from_snapshot.renew(ignore)
    assert await digest(newcomer.node.path / "local-1", from_snapshot, local.position) == expected
    assert await digest(path, local, local.position - 1) == ("", 0)  # it has passed the entry
    async with trio.open_nursery() as tasks:
        found: list[tuple[str, int]] = []

        async def take_later() -> None:
            found.append(await digest(path, local, local.position + 1))

        tasks.start_soon(take_later)
        await trio.testing.wait_all_tasks_blocked(0.05)
        for number in (40, 41):
            await trio.to_thread.run_sync(owner.puts, number)
    follower.follow(owner.node.log.read(follower.position)[:1])
    assert found == [await digest(other.node.path / "local-0", follower, follower.position)]
    assert found != [expected]
    for each in (local, follower, from_snapshot):
        each.close()


@pytest.mark.parametrize("payload", [b"", b"TSS3" + bytes(40)])
def test_another_applications_stream_has_no_snapshots(payload: bytes) -> None:
    log = FakeLog()
    log.publish(payload, 0)
    with pytest.raises(StoreError, match="not of this broker"):
        find_snapshot(log)


def test_a_damaged_snapshot_is_named(tmp_path: Path) -> None:
    owner = filled(tmp_path / "a")
    snapshot = owner.write()
    assert snapshot is not None
    owner.purge(snapshot)
    owner.puts(40)
    entries = owner.node.snapshots.entries
    entries[1] = LogEntry(2, entries[1].payload[:60] + bytes(40))
    with pytest.raises(StoreError, match="entry 2 of the snapshots is damaged"):
        Member.at(tmp_path / "b", owner).open()


def test_entries_that_are_deleted_while_they_are_read_are_missed(tmp_path: Path) -> None:
    """The first is read before the log is shortened, the others after it."""
    owner = filled(tmp_path / "a")
    other = Member.at(tmp_path / "b", owner)
    local = other.node.make().local
    local.open(ignore)
    entries = list(owner.node.log.read(0))[:6]
    del entries[2:4]
    with pytest.raises(Unfit):
        local.follow(entries)
    assert local.position == 0
    local.close()


def test_a_snapshot_that_is_replaced_while_it_is_read_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_stomp.store.tools._content.GROUP_BYTES", 100)
    owner = filled(tmp_path / "a")
    owner.node.snapshots.at_once = 1
    snapshot = owner.write()
    assert snapshot is not None
    groups = read_snapshot(owner.node.snapshots, snapshot)
    next(groups)
    owner.puts(40)
    later = owner.write()
    assert later is not None
    owner.purge(later)
    with pytest.raises(StoreUnavailable, match="there is a newer one"):
        list(groups)
    assert list(read_snapshot(owner.node.snapshots, later))


class Nodes(RuleBasedStateMachine):
    """Nodes that own the log in turn, crash with their disk, and shorten the log."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp())
        self.members = [Member.at(self.folder / "0")]
        for name in "12":
            self.members.append(Member.at(self.folder / name, self.members[0]))
        self.owner = self.members[0].open()
        self.model: list[bytes] = []
        self.number = 0
        self.streamed = 0

    @rule(count=st.integers(1, 4))
    def put(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            self.owner.puts(self.number)
            self.model.append(b"%d" % self.number)

    @rule(count=st.integers(1, 3))
    def stream(self, count: int) -> None:
        if not self.streamed:
            self.owner.add(Begin("s", "epoch", 0))
        bodies = [b"%d" % (self.streamed + number) for number in range(count)]
        self.owner.add(Append("s", self.streamed, b"", bodies, 5))
        self.streamed += count

    @rule(at=st.integers(0, 5))
    def end(self, at: int) -> None:
        if at < len(self.model):
            self.owner.add(Done([int(self.model.pop(at))]))

    @rule(purges=st.booleans())
    def shorten(self, purges: bool) -> None:
        snapshot = self.owner.write()
        if snapshot is not None and purges:
            self.owner.purge(snapshot)

    @rule(index=st.integers(0, 2), loses_disk=st.booleans())
    def take_over(self, index: int, loses_disk: bool) -> None:
        self.owner.store.close()
        self.owner = self.members[index]
        if loses_disk:
            self.owner.node._number += 1
        self.owner.open()

    @invariant()
    def all_is_there(self) -> None:
        assert self.owner.bodies() == self.model
        runs = self.owner.store.read_stream("s", 0, 1 << 20)
        bodies = [body for run in runs for body in run.bodies]
        assert bodies == [b"%d" % number for number in range(self.streamed)]

    def teardown(self) -> None:
        self.owner.store.close()
        shutil.rmtree(self.folder)


def test_nodes_that_shorten_their_log_lose_nothing() -> None:
    Nodes.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
    Nodes.TestCase().runTest()
