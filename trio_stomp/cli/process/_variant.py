"""The variant of the running code: interpreted, or with compiled modules."""

from inspect import isfunction

from trio_stomp.frames import FrameDecoder


def variant_suffix() -> str:
    """Return the suffix of the version: `` (compiled)`` or an empty string."""
    return "" if isfunction(FrameDecoder.receive_data) else " (compiled)"
