"""Damaged journals: they open, return nothing altered, and remain usable."""

import random
from collections.abc import Mapping

from _oracle.store_disk import Disk, Messages, filled, open_store, read_all, some_turns

from _fuzz.target import Target, check, check_equal
from _fuzz.targets import damage
from _fuzz.targets.files import own_file
from trio_stomp.store import JournalStore, Put, Recovered, StoreError, Turn

BASES = 4
SEGMENT_BYTES = (1 << 20, 4096, 4096, 1 << 20)
Known = dict[tuple[str, int, int], bytes]
"""Every body that was ever stored, by place, level and id."""


def make(name: str) -> Target:
    """Return the target, with journals in memory and a directory for their lock."""
    directory = str(own_file("lock").parent)
    damage.fix_markers("trio_stomp.store.journal._tail")
    bases = [write_base(directory, number) for number in range(BASES)]

    def run(data: bytes) -> None:
        files, known, settings = bases[(data[0] if data else 0) % BASES]
        judge(directory, damage.harm(files, data[1:]), known, settings)

    files = (
        "store/journal/_replay.py",
        "store/journal/_scan.py",
        "store/journal/format/_decode.py",
        "store/journal/format/_format.py",
        "store/journal/_segment.py",
        "store/journal/_opening.py",
        "store/disk/_quarantine.py",
        "store/tools/_view.py",
        "store/journal/_index.py",
    )
    words = [bytes([kind, file, 0, 0, 0]) for kind in range(10) for file in range(3)]
    return Target(name, run, files, damage.generate, (*words, bytes(5), b"\xff" * 5), 80)


def write_base(directory: str, number: int) -> tuple[Mapping[str, bytes], Known, set[str]]:
    """Return a journal, all messages that were ever in it, and all values of settings."""
    disk, known, settings = Disk(), Known(), set[str]()
    store, recovered = open_store(directory, disk, SEGMENT_BYTES[number])
    turns = list(some_turns(random.Random(number), (0, 20, 60, 6)[number]))
    for commit, turn in enumerate(turns, recovered.commit):
        store.append([turn], commit)
    store.close()
    for record in (record for turn in turns for record in flat(turn)):
        if isinstance(record, Put):
            for id, body in enumerate(record.bodies, record.first):
                known[record.place, record.level, id] = body
        settings.add(getattr(record, "text", ""))
    return {path: bytes(file.data) for path, file in disk.files.items()}, known, settings


def flat(turn: Turn) -> list[object]:
    """Return the records, including those of an Atomic."""
    return [part for record in turn.records for part in getattr(record, "records", (record,))]


def judge(directory: str, files: Mapping[str, bytes], known: Known, settings: set[str]) -> None:
    """Open, look, append, and open again."""
    disk = Disk({path: filled(data) for path, data in files.items()})
    try:
        store, recovered = open_store(directory, disk)
    except StoreError:
        check(not disk.open_files, f"open files: {disk.open_files}")
        return
    try:
        found = look(store, recovered, known, settings)
        store.append([Turn([Put("new", recovered.next_id, b"head", [b"new"])])], recovered.commit)
    finally:
        store.close()  # else the next one finds it locked
    check_equal(disk.open_files, [], "open files")
    store, again = open_store(directory, disk)
    try:
        check_equal(again.commit, recovered.commit + 1, "commit")
        messages = read_all(store, again)
        check_equal(messages.pop(("new", 4)), {recovered.next_id: (b"new", 0)}, "appended")
        check_equal(bodies(messages), found, "opened again")
        check_equal(again.settings, recovered.settings, "settings again")
    finally:
        store.close()


def bodies(messages: Messages) -> Known:
    """Return bodies by place, level and id."""
    return {(*key, id): body for key, ids in messages.items() for id, (body, _) in ids.items()}


def look(store: JournalStore, recovered: Recovered, known: Known, settings: set[str]) -> Known:
    """Return all messages, and check that they were stored once."""
    found = bodies(read_all(store, recovered))
    check(found.items() <= known.items(), f"altered: {found.items() - known.items()}")
    check(set(recovered.settings.values()) <= settings, f"setting: {recovered.settings}")
    latest = max((id for _, _, id in found), default=0)
    check(recovered.next_id > latest, f"next id: {recovered.next_id} after {latest}")
    return found
