"""Outside the floors: the broker's streams in Spark.

Handles: the data source ``stomp``, typed tables of Delta Lake or Parquet (``lake``, without Spark
too), their analysis and report, sessions for the scripts.
Does not handle: storing messages (the broker's streams do), or anything in the broker's process.
It needs the extra ``spark`` and Java 17; ``lake`` needs the extra ``tables`` alone. Nothing in the
server imports it, only the command ``trio-stomp tables``, and only its demo uses Trio.
"""

from typing import TYPE_CHECKING

from trio_stomp._lazy import lazily

if TYPE_CHECKING:
    from trio_stomp.spark._address import StreamAddress as StreamAddress
    from trio_stomp.spark._address import StreamAway as StreamAway
    from trio_stomp.spark._address import StreamError as StreamError
    from trio_stomp.spark._analysis import Thresholds as Thresholds
    from trio_stomp.spark._client import StreamClient as StreamClient
    from trio_stomp.spark._messages import Layout as Layout
    from trio_stomp.spark._results import analyse as analyse
    from trio_stomp.spark._results import days_with_tables as days_with_tables
    from trio_stomp.spark._results import read_results as read_results
    from trio_stomp.spark._session import SparkMissing as SparkMissing
    from trio_stomp.spark._session import check_installed as check_installed
    from trio_stomp.spark._session import open_session as open_session
    from trio_stomp.spark._tables import open_tables as open_tables
    from trio_stomp.spark.format import StompDataSource as StompDataSource
    from trio_stomp.spark.reporting import report as report
else:
    # The modules of the names, which are imported on first use: reading a stream without Spark must
    # not need Spark, and an executor imports only what it uses.
    _HOMES = {
        "_analysis": "Thresholds",
        "_address": "StreamAddress StreamAway StreamError",
        "_client": "StreamClient",
        "_messages": "Layout",
        "reporting": "report",
        "_results": "analyse days_with_tables read_results",
        "_session": "SparkMissing check_installed open_session",
        "format": "StompDataSource",
        "_tables": "open_tables",
    }
    __getattr__, __dir__ = lazily(__name__, _HOMES)
