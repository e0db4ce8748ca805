"""The format ``stomp`` for Spark, which looks for a ``DefaultSource`` in modules ``pyspark_*``.

``spark.readStream.format("stomp")`` needs no registration where this module is installed.
"""

try:
    from trio_stomp.spark import StompDataSource as DefaultSource
except ImportError:
    # Spark imports this module when any source in Python is looked up. An older PySpark, or none of
    # pyarrow, must not break the others: this one is then not found.
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
