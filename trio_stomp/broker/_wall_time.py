"""Between the broker's clock, in seconds, and the time of the wall, in ms since 1970."""


def wall_ms(clock_s: float, offset_s: float) -> int:
    """A moment of the broker's clock as it is told to others.

    Args:
      offset_s: Wall time less the broker's clock, in seconds.
    """
    return round((clock_s + offset_s) * 1000)


def clock_s(wall_ms: int, offset_s: float) -> float:
    """A moment that others told, by the broker's clock; ``offset_s`` as above."""
    return wall_ms / 1000 - offset_s
