"""The statistics as tables of Delta Lake or Parquet, on any storage, without Spark and Java.

Handles: typed rows from messages, each message once, compaction.
Does not handle: analysis and report, which read the tables with Spark.
"""

from trio_stomp.spark.lake._drain import Drain as Drain
from trio_stomp.spark.lake._place import LakeError as LakeError
from trio_stomp.spark.lake._place import Place as Place
from trio_stomp.spark.lake._place import file_name as file_name
from trio_stomp.spark.lake._place import in_spark as in_spark
from trio_stomp.spark.lake._store import FOLDER as FOLDER
from trio_stomp.spark.lake._store import DeltaStore as DeltaStore
from trio_stomp.spark.lake._store import Source as Source
from trio_stomp.spark.lake._store import Store as Store
from trio_stomp.spark.lake._store import open_store as open_store
from trio_stomp.spark.lake._upkeep import compact as compact
from trio_stomp.spark.lake._upkeep import drop_raw as drop_raw
from trio_stomp.spark.lake._writer import Totals as Totals
from trio_stomp.spark.lake._writer import Writer as Writer
from trio_stomp.spark.lake._writer import days_of as days_of
