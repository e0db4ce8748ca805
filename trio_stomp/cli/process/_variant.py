"""Which of its two variants this broker is: interpreted, or with compiled hot modules."""

from inspect import isfunction

from trio_stomp.frames import FrameDecoder


def told_variant() -> str:
    """Return the suffix of the version: `` (compiled)``, or nothing."""
    return "" if isfunction(FrameDecoder.receive_data) else " (compiled)"
