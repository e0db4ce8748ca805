"""The limits on one frame."""

from attrs import frozen

from trio_stomp.base import option


@frozen
class FrameLimits:
    """The limits on one frame, checked before memory is allocated.

    For comparison: RabbitMQ has 100 headers of 100 KiB and a body of 100 MiB, ActiveMQ 1,000 of
    10 KiB and 100 MiB, Vert.x 1,000 of 10 KiB and 10 MB, NATS a payload of 1 MiB.
    """

    max_body_bytes: int = option(
        16 * 1024 * 1024, "maximum size of a frame's body", minimum=1, live=True
    )
    max_headers: int = option(
        256, "maximum number of header lines in a frame", minimum=1, live=True
    )
    max_header_line_bytes: int = option(
        16 * 1024, "maximum length of a header line", minimum=16, live=True
    )
    max_header_block_bytes: int = option(
        64 * 1024,
        "maximum size of the command and all header lines together",
        minimum=64,
        live=True,
    )

    def takes_lines_of(self, size: int) -> bool:
        """Return whether a frame with one header line of ``size`` bytes is within all limits."""
        return self.max_header_line_bytes >= size and self.max_header_block_bytes >= size + 32
