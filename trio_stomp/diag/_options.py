"""The options of the diagnostics floor."""

from attrs import frozen

from trio_stomp.base import option


@frozen
class DiagOptions:
    """The options of statistics: their interval, and the name of the broker."""

    diag_interval_s: float = option(
        5.0, "interval of statistics on the DIAG topics; 0 = none", minimum=0.0
    )
    diag_broker_id: str = option("", "this broker's name in its statistics; empty = the host name")
    diag_stream: bool = option(True, "store all DIAG messages for replay, in /stream/DIAG")
    diag_stream_max_bytes: int = option(
        256 * 1024 * 1024,
        "maximum size of that stream on disk, with a data directory",
        minimum=65536,
    )
    diag_stream_max_age_s: float = option(
        86_400.0, "maximum age of its messages; 0 = limited by size only", minimum=0.0
    )
    diag_stream_memory_bytes: int = option(
        32 * 1024 * 1024,
        "maximum size of its part in memory, or of all of it without a data directory",
        minimum=65536,
    )
    diag_full_s: float = option(
        60.0, "interval of reports on unchanged connections and destinations", minimum=0.0
    )
