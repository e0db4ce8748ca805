"""A data directory of the first format, left by a killed broker, is read without loss.

``tests/data/store_format_1`` was written by a broker of version 0.1.0 before the format changed:
queues with priorities, dead letters, schedules, a last value, ids of duplicates, a durable
subscription, messages handed out before, copies made by compaction, streams (one of them with
compressed files). ``export.jsonl`` is the output of that broker's ``store export``.
"""

import shutil
from pathlib import Path

import pytest

from tests.support.stores import ignore
from trio_stomp.store import Append, JournalStore, Put, Turn, export_from, verify

FIXTURE = Path(__file__).parents[2] / "data" / "store_format_1"
EXPORT = (FIXTURE / "export.jsonl").read_text("utf-8").splitlines()


@pytest.fixture
def old(tmp_path: Path) -> str:
    for part in ("journal", "streams"):
        shutil.copytree(FIXTURE / part, tmp_path / part)
    return str(tmp_path)


def exported(directory: str) -> list[str]:
    return list(export_from(directory, ignore))


def test_the_tools_read_the_first_format(old: str) -> None:
    verdict = verify(old, ignore)
    assert (verdict.messages, verdict.streamed, verdict.damage) == (33, 79, [])
    assert exported(old) == EXPORT


@pytest.mark.parametrize("torn", [b"", b"\1", "half a batch"])
def test_nothing_is_lost_when_it_is_opened(old: str, torn: bytes | str) -> None:
    newest = max(Path(old, "journal").iterdir())
    if isinstance(torn, str):
        data = newest.read_bytes()
        marker = bytes.fromhex(newest.stem.partition("-")[2])
        torn = data[data.rfind(marker, 0, data.rfind(marker)) :][:90]
    with newest.open("ab") as file:
        file.write(torn)
    store = JournalStore(old)
    recovered = store.recover(ignore)
    assert recovered.damage == []
    state = recovered.streams["/stream/topic/prices"]
    put = Put("queue:/queue/orders", recovered.next_id, b"destination:/queue/orders\n", [b"new"])
    append = Append("/stream/topic/prices", state.next, b"a:b\n", [b"new"], 1 << 41)
    store.append([Turn([put, append])], recovered.commit)
    store.close()
    lines = exported(old)
    new = [line for line in lines if line not in EXPORT]
    assert [line for line in EXPORT[1:-1] if line not in lines and '"prices"' not in line] == [
        line for line in EXPORT if '"name":"/stream/topic/prices"' in line
    ]
    assert sum('"body":"new"' in line for line in new) == 2
    assert verify(old, ignore).damage == []


def test_verify_notices_a_stream_cut_short_since_the_store_was_closed(old: str) -> None:
    """Within a record; at its end, the number of messages would be unknown."""
    store = JournalStore(old)
    recovered = store.recover(ignore)
    first = recovered.streams["/stream/topic/prices"].next
    append = Append("/stream/topic/prices", first, b"a:b\n", [b"new"], 1 << 41)
    store.append([Turn([append])], recovered.commit)
    store.close()
    (path,) = Path(old, "streams").glob("*/*22bad366642bbe19.log")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 2)
    (line,) = verify(old, ignore).damage
    assert path.name in line
    store = JournalStore(old)
    # A reader may have seen the offset, so it is not used again.
    assert store.recover(ignore).streams["/stream/topic/prices"].next > first
    store.close()
