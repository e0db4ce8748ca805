"""Times of the command line."""

import re
import time
from datetime import datetime

WALL = re.compile(r"@(\d{1,12}(?:\.\d{1,6})?)")
AGO = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(s|m|h|d)")
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}


def time_of(text: str) -> float:
    """Return the seconds since 1970 of a time.

    Args:
      text: ``@`` and seconds since 1970; a span before now, such as ``10m``; or ISO 8601, where a
        time without a zone is local time.

    Raises:
      ValueError: it is none of these.
    """
    if found := WALL.fullmatch(text):
        return float(found[1])
    if found := AGO.fullmatch(text):
        return time.time() - float(found[1]) * UNITS_S[found[2]]
    try:
        return max(datetime.fromisoformat(text).timestamp(), 0.0)
    except ValueError:
        raise ValueError(
            f"{text[:80]!r} is no time; write one like 2026-11-21T12:00:00Z, @SECONDS since 1970, "
            "or a span before now, such as 10m"
        ) from None
