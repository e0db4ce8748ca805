"""What the diagnostics floor lets an operator choose."""

from attrs import frozen

from trio_stomp.base import option


@frozen
class DiagOptions:
    """The options of published statistics: how often, and under which name."""

    diag_interval_s: float = option(
        5.0, "time between statistics on the DIAG topics; 0 = none", minimum=0.0
    )
    diag_broker_id: str = option(
        "", "this broker's name in its statistics; empty = the name of the machine"
    )
    diag_stream: bool = option(True, "all DIAG messages are kept for replay, in /stream/DIAG")
    diag_stream_max_bytes: int = option(
        256 * 1024 * 1024, "size of that stream on disk, with a data directory", minimum=65536
    )
    diag_stream_max_age_s: float = option(
        86_400.0, "age of its oldest message; 0 = no bound but its size", minimum=0.0
    )
    diag_stream_memory_bytes: int = option(
        32 * 1024 * 1024,
        "size of its part in memory; without a data directory, of all of it",
        minimum=65536,
    )
    diag_full_s: float = option(
        60.0,
        "connections and destinations that have not changed are told of as often as this",
        minimum=0.0,
    )
