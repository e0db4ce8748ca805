"""Several streams in one root, by the sidecar, with a broker of this tree and its store."""

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest

from tests.support import spark as _spark
from tests.support.spark import spark as spark

_spark.require("pyspark", "deltalake")

from tests.support.fleet import DIAG, A, B, Fleet, of_topic  # noqa: E402
from tests.support.fleet import fleet as fleet  # noqa: E402
from trio_stomp.spark.running import Sidecar, SidecarError  # noqa: E402
from trio_stomp.spark.running._sidecar import follow  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def once(spark: "SparkSession", fleet: Fleet) -> Callable[..., None]:
    """Return a function that runs ``trio-stomp spark once`` for a stream."""

    def run(stream: str, checkpoint: str = "", **more: str) -> None:
        source = {"url": fleet.url(), "stream": stream, "failOnDataLoss": "false", **more}
        follow(spark, Sidecar(source, fleet.out, checkpoint=checkpoint), Event())

    return run


def test_streams_have_checkpoints_of_their_own(fleet: Fleet, once: Callable[..., None]) -> None:
    fleet.start()
    for number in range(2):
        fleet.send("/topic/a", f"{2 * number}", f"{2 * number + 1}")
        fleet.send("/topic/b", f"{number}")
        for stream in (A, B, DIAG):
            once(stream)
        fleet.restart()
    expected = [*of_topic("/topic/a", 4), *of_topic("/topic/b", 2)]
    assert fleet.rows("messages") == expected
    ((_, found),) = fleet.statistics().items()
    assert found == list(range(len(found)))
    assert not (Path(fleet.out) / "tables" / "_gap").exists()


def test_a_checkpoint_of_another_stream_is_refused(
    fleet: Fleet, once: Callable[..., None], tmp_path: Path
) -> None:
    fleet.start()
    fleet.send("/topic/a", "0")
    fleet.send("/topic/b", "0")
    mine = str(tmp_path / "mine")
    once(A, mine)
    with pytest.raises(SidecarError, match=f"of {A}, not of {B}: give each stream a checkpoint"):
        once(B, mine)
    fleet.send("/topic/a", "1")
    once(A, mine)
    assert fleet.rows("messages") == of_topic("/topic/a", 2)


def test_a_new_checkpoint_begins_where_the_tables_are(
    fleet: Fleet, once: Callable[..., None]
) -> None:
    """So a root is continued whose checkpoint, of an earlier version, served all streams."""
    fleet.start()
    fleet.send("/topic/a", "0")
    fleet.tables(A)
    fleet.send("/topic/a", "1")
    once(A, startingOffsets="latest")
    assert fleet.rows("messages") == of_topic("/topic/a", 2)
