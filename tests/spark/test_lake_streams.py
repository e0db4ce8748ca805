"""Several streams, tables and brokers in one root, without Java."""

from shutil import rmtree

import pytest

pytest.importorskip("deltalake", reason="the extra tables is not installed")

from tests.support.fleet import DIAG, A, B, Fleet, of_topic
from tests.support.fleet import fleet as fleet


def test_each_table_of_a_stream_is_whole_whoever_runs_first(fleet: Fleet) -> None:
    fleet.start()
    jobs = [(A, "first"), (A, "second"), (B, "third"), (DIAG, "")]
    for number, order in enumerate((jobs, jobs[::-1], [jobs[1], jobs[0], jobs[1]])):
        fleet.send("/topic/a", f"{2 * number}", f"{2 * number + 1}")
        fleet.send("/topic/b", f"{number}")
        for stream, table in order:
            fleet.tables(stream, table)
        fleet.restart()
    for table in ("first", "second"):
        assert fleet.rows(table) == of_topic("/topic/a", 6)
    assert fleet.rows("third") == of_topic("/topic/b", 2)
    ((_, found),) = fleet.statistics().items()
    assert found == list(range(len(found)))


def test_a_table_that_was_deleted_is_made_anew(fleet: Fleet) -> None:
    fleet.start()
    fleet.send("/topic/a", "0", "1")
    for table in ("first", "second"):
        fleet.tables(A, table)
    rmtree(f"{fleet.out}/tables/first")
    fleet.send("/topic/a", "2")
    for table in ("second", "first"):
        fleet.tables(A, table)
        assert fleet.rows(table) == of_topic("/topic/a", 3)


def test_brokers_of_one_name_lose_nothing_in_one_root(fleet: Fleet) -> None:
    """Both have the name of this host, so one's log looks like what follows the other's."""
    for name in ("north", "south"):
        fleet.start(name)
    for number in range(3):
        for name in ("north", "south"):
            fleet.send("/topic/a", f"{number}", name=name)
            fleet.tables(DIAG, name=name)
            fleet.tables(A, name=name)
    found = fleet.statistics()
    assert len(found) == 2
    for offsets in found.values():
        assert offsets == list(range(len(offsets)))
    messages = [row for row in fleet.rows("messages") if row[0] == "/topic/a"]
    assert messages == sorted(of_topic("/topic/a", 3) * 2)
