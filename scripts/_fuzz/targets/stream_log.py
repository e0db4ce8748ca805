"""Damaged stream logs: they open, return nothing altered, and remain usable."""

import random
from collections.abc import Mapping

from _oracle.store_disk import EVERYTHING, Disk, filled

from _fuzz.target import Target, check, check_equal
from _fuzz.targets import damage
from trio_stomp.store import Append, StoreError
from trio_stomp.store.streams._log import StreamLog

DIRECTORY = "/streams/x"
NAME = "/topic/prices é"
BASES = 4
MESSAGES = 60
HEAD = b"a:b\n"


def make(name: str) -> Target:
    """Return the target, with logs in memory."""
    damage.fix_markers("trio_stomp.store.streams._log")
    bases = [write_base(number) for number in range(BASES)]

    def run(data: bytes) -> None:
        judge(damage.harm(bases[(data[0] if data else 0) % BASES], data[1:]))

    files = (
        "store/streams/_recovery.py",
        "store/streams/_format.py",
        "store/streams/_segment.py",
        "store/streams/_log.py",
        "store/streams/_damage.py",
        "store/streams/_index.py",
    )
    words = [bytes([kind, file, 0, 0, 0]) for kind in range(10) for file in range(4)]
    return Target(name, run, files, damage.generate, (*words, bytes(5), b"\xff" * 5), 80)


def body_at(offset: int) -> bytes:
    """Return the body that was appended at an offset."""
    return b"%d" % offset * (1 + offset % 7)


def write_base(number: int) -> dict[str, bytes]:
    """Return a log: of one file, of many, with packed ones, or of one that began late."""
    disk = Disk()
    segment_bytes = (1 << 20, 400, 400, 300)[number]
    log = StreamLog.create(DIRECTORY, disk, NAME, "epoch", segment_bytes)
    chance, offset = random.Random(number), 0
    if number == 3:
        offset = 40
        log.start_at(offset)
    while offset < MESSAGES:
        count = chance.randint(1, 4)
        append(log, offset, count)
        offset += count
    while number >= 2 and log.compress_one():
        pass
    log.close()
    return {path: bytes(file.data) for path, file in disk.files.items()}


def append(log: StreamLog, first: int, count: int) -> None:
    """Append messages, and sync them."""
    log.mark()
    bodies = [body_at(offset) for offset in range(first, first + count)]
    log.append([Append(NAME, first, HEAD, bodies, 1000 + first)])
    log.sync()


def judge(files: Mapping[str, bytes]) -> None:
    """Open, read all, find, append, compress, and open again."""
    disk = Disk({path: filled(data) for path, data in files.items()})
    log = open_log(disk)
    if log is None:
        return
    found = read_all(log)
    check_equal(found, {offset: body_at(offset) for offset in found}, "altered")
    following = log.state().next
    check(following > max(found, default=-1), f"next: {following}")
    for written_ms in (0, 1000 + MESSAGES // 2, 1 << 40):
        check(0 <= log.find_offset(written_ms) <= following, "find_offset: out of range")
    append(log, following, 3)
    while log.compress_one():
        pass
    new = {offset: body_at(offset) for offset in range(following, following + 3)}
    check_equal(read_all(log), found | new, "after compression")
    log.close()
    check_equal(disk.open_files, [], "open files")
    again = open_log(disk)
    check(again is not None, "gone: was there before")
    if again is not None:
        check_equal(read_all(again), found | new, "opened again")
        again.close()


def open_log(disk: Disk) -> StreamLog | None:
    """Open a log. Return None if there is none, or an error refuses it."""
    try:
        return StreamLog.open(DIRECTORY, disk, 300)
    except StoreError:
        return None


def read_all(log: StreamLog) -> dict[int, bytes]:
    """Return bodies by offset, and check their order, heads and times."""
    found: dict[int, bytes] = {}
    for run in log.read(log.state().first, EVERYTHING):
        check_equal(run.head, HEAD, "head")
        for offset, body in enumerate(run.bodies, run.first):
            check(offset > max(found, default=-1), f"order: {offset} comes again")
            found[offset] = body
    return found
