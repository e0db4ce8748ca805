"""Formatting of figures for people."""

from datetime import datetime, timedelta

_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def short(value: float) -> str:
    """Format a figure with three digits: 1.23 M, 45.6 k, 0.123."""
    for scale, letter in _SCALES:
        if abs(value) >= scale:
            return f"{value / scale:.3g} {letter}"
    return f"{value:.3g}" if value != round(value) else f"{value:.0f}"


def count(value: float) -> str:
    """Format a whole number with all digits."""
    return f"{value:,.0f}"


def ms(value: float) -> str:
    """Format milliseconds, in seconds if that is shorter."""
    return f"{value / 1000:.3g} s" if value >= 1000 else f"{value:.3g} ms"


def share(value: float) -> str:
    """Format a share as a percentage."""
    return f"{100 * value:.3g} %"


def lasting(seconds: float) -> str:
    """Format a duration: 12 s, 13 min, 4 h 28 min, 2 d 3 h."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def clock(moment: datetime, with_day: bool = False, with_seconds: bool = False) -> str:
    """Format a time of day, with the date if there are several."""
    day = "%d %b " if with_day else ""
    return moment.strftime(day + ("%H:%M:%S" if with_seconds else "%H:%M"))


def each(seconds: float) -> str:
    """Format the width of a bucket: a minute, a quarter of an hour, 5 s."""
    return {1: "a second", 60: "a minute", 900: "a quarter of an hour"}.get(
        int(seconds), lasting(seconds)
    )


def nice_step(span: float, most: int = 5) -> float:
    """Return a step of 1, 2 or 5 times a power of ten that cuts ``span`` into ``most`` at most."""
    step = 1e-9
    while True:
        for factor in (1, 2, 5):
            if span <= step * factor * most:
                return step * factor
        step *= 10


TIME_STEPS = [
    timedelta(seconds=seconds)
    for seconds in (
        *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800),
        *(3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800),
    )
]


def time_step(span: timedelta, most: int = 9) -> timedelta:
    """Return a step of the clock that cuts ``span`` into ``most`` at most."""
    return next((step for step in TIME_STEPS if span <= step * most), TIME_STEPS[-1] * 4)
