"""What the diagnostics floor lets an operator choose."""

from attrs import frozen

from trio_stomp._option import option


@frozen
class DiagOptions:
    """How often statistics are published, and under which name."""

    diag_interval_s: float = option(
        5.0, "time between statistics on the DIAG topics; 0 = none", minimum=0.0
    )
    diag_broker_id: str = option(
        "", "this broker's name in its statistics; empty = the name of the machine"
    )
