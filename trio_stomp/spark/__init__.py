"""Outside the floors: the broker's streams in Spark.

Handles: the data source ``stomp``, typed tables of Delta Lake or Parquet (``lake``, without Spark
too), their analysis and report, sessions for the scripts.
Does not handle: storing messages (the broker's streams do), or anything in the broker's process.
It needs the extra ``spark`` and Java 17; ``lake`` needs the extra ``tables`` alone. Nothing in the
server imports it, only the command ``trio-stomp tables``, and only its demo uses Trio.
"""

from importlib import import_module
from typing import TYPE_CHECKING

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
        "Thresholds": "_analysis",
        "StreamAddress": "_address",
        "StreamAway": "_address",
        "StreamClient": "_client",
        "StreamError": "_address",
        "Layout": "_messages",
        "report": "reporting",
        "analyse": "_results",
        "days_with_tables": "_results",
        "read_results": "_results",
        "SparkMissing": "_session",
        "check_installed": "_session",
        "open_session": "_session",
        "StompDataSource": "format",
        "open_tables": "_tables",
    }

    def __getattr__(name: str) -> object:
        """Import a public name on first use."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

    def __dir__() -> list[str]:
        """Return the public names, imported or not."""
        return sorted([*globals(), *_HOMES])
