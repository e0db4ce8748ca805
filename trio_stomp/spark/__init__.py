"""Apart from the floors: the broker's streams in Spark.

Handles: the data source ``stomp``, idempotent Parquet of its micro-batches, the typed tables made
of that, sessions for the scripts.
Does not handle: keeping messages (the broker's streams do), or anything in the broker's process.
Needs the extra ``spark`` and Java 17; nothing of the server imports this, and Trio is not used.
"""

from trio_stomp.spark._client import Bounds as Bounds
from trio_stomp.spark._client import Place as Place
from trio_stomp.spark._client import StreamAway as StreamAway
from trio_stomp.spark._client import StreamClient as StreamClient
from trio_stomp.spark._client import StreamError as StreamError
from trio_stomp.spark._compact import compact as compact
from trio_stomp.spark._compact import compact_closed as compact_closed
from trio_stomp.spark._compact import expire_raw as expire_raw
from trio_stomp.spark._session import SparkMissing as SparkMissing
from trio_stomp.spark._session import check_installed as check_installed
from trio_stomp.spark._session import open_session as open_session
from trio_stomp.spark._sink import RawSink as RawSink
from trio_stomp.spark._source import StompDataSource as StompDataSource
