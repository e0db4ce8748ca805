"""All jobs of the pipeline beside each other on one root, as processes: none disturbs another."""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from _bench.process import running_broker

from tests.support import spark as _spark

_spark.require("deltalake")

from kill_spark import TOOL, Load, Process, compare, wait_for  # noqa: E402

from trio_stomp.spark import StreamAddress  # noqa: E402
from trio_stomp.spark.lake import open_store  # noqa: E402

pytestmark = pytest.mark.full


@pytest.fixture
def place(tmp_path: Path) -> Iterator[StreamAddress]:
    options = ("--data-dir", str(tmp_path / "broker"), "--diag-interval-s", "1")
    with running_broker(options) as broker:
        yield StreamAddress(f"stomp://127.0.0.1:{broker.port}")


class Job(Process):
    """A command of ours on one root.

    Args:
      mark: What its log has for each piece of work.
      loop: Run it again ``while`` it succeeds, or ``until`` it does, as a service manager does:
        Spark gives up if a busy machine takes ten seconds to start a worker of Python.
    """

    def __init__(self, root: Path, mark: str, *words: str, loop: str = "") -> None:
        self._mark = mark
        command = [*TOOL, *words, "--root", str(root / "out")]
        if loop:
            command = ["sh", "-c", f"{loop} {shlex.join(command)}; do sleep 0.1; done"]
        self._file = root / f"{'-'.join(words[:2])}.log"
        super().__init__(command, self._file, " ".join(words[:2]))

    def done(self) -> int:
        """Return how many pieces of work it has done."""
        return self._file.read_text().count(self._mark)

    def works_on(self, before: int) -> None:
        """Wait until it has done more."""
        wait_for(f"{self.name} works", lambda: self.done() > before, self)


def test_sidecar_tables_compaction_and_report_beside_each_other(
    place: StreamAddress, tmp_path: Path
) -> None:
    to = ("--url", place.url)
    resident = (
        Job(tmp_path, "read  messages", "tables", "--interval=0.2", *to),
        Job(tmp_path, '"event":"batch"', "spark", "watch", "--interval=1", *to, loop="until"),
        Job(tmp_path, "compacted  ", "tables", "--compact", loop="while"),
    )
    load = Load(place, 100)
    with ExitStack() as stack:
        load.start()
        stack.callback(load.end)
        for each in resident:
            stack.callback(each.kill)
            each.start()
        for each in resident:
            each.works_on(1)
        report = Job(tmp_path, "report.html", "spark", "report")
        stack.callback(report.kill)
        report.finish()
        assert report.done() == 1
        for each in resident:
            each.works_on(each.done())
    Job(tmp_path, "", "tables", "--once", *to).finish()
    found = compare(open_store(tmp_path / "out"), place, tmp_path)
    assert found["rows"]
    assert [found[name] for name in ("lost", "doubled", "changed")] == [0, 0, 0]
