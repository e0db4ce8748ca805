"""The format ``stomp``: Spark's source and sink for destinations of a broker.

Handles: options, offsets of micro-batches, rows of messages and messages of rows.
Does not handle: connections and their protocol, and the rows of statistics, which are below.
"""

from trio_stomp.spark.format._format_options import SourceOptions as SourceOptions
from trio_stomp.spark.format._insight_sink import InsightSink as InsightSink
from trio_stomp.spark.format._source import StompDataSource as StompDataSource
