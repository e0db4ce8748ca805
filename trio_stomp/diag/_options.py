"""What the diagnostics floor lets an operator choose."""

from attrs import frozen

from trio_stomp._option import option


@frozen
class DiagOptions:
    """How often statistics are published."""

    diag_interval_s: float = option(
        5.0, "time between statistics on the DIAG topics; 0 = none", minimum=0.0
    )
