"""Header lines of the RECEIPT of a SEND."""

import re

from trio_stomp.broker.names import nearly

STORED = b"stored:memory\n"
"""For a message in a queue that is not durable."""
DUPLICATE = b"duplicate:true\n"
"""For a duplicate, which was not accepted again."""


MATCHED_NONE = b"matched:0\n"
_HINT = b"hint:"
HINTS = {
    "/queue/": _HINT + b"the name of a queue begins with /queue/\n",
    "/topic/": _HINT + b"this is another topic than the one that begins with /topic/\n",
}
"""For a message without subscribers whose destination has a prefix similar to the key."""


JOB_IS = b"scheduledJobId:%d\n"
"""For a scheduled message: its number, by which it can be removed."""

_NUMBERED = re.compile(rb"^(x-stream-offset|scheduledJobId):(\d+)$", re.MULTILINE)


def unmatched(name: str) -> bytes:
    """Return the lines for a message to ``name`` that has no subscribers."""
    return MATCHED_NONE + HINTS.get(nearly(name), b"")


def hint_of(name: str) -> str:
    """Return the hint for a destination that looks like another kind, or ""."""
    return HINTS.get(nearly(name), b"").decode().removeprefix(_HINT.decode()).rstrip()


def of_earlier(evidence: bytes, later: int) -> bytes:
    """Return the lines of an earlier RECEIPT in a run.

    Args:
      evidence: The lines for the whole run.
      later: The number of messages after the RECEIPT's one. Its numbers are lower by this.
    """
    if not later:
        return evidence
    return _NUMBERED.sub(lambda line: b"%b:%d" % (line[1], int(line[2]) - later), evidence)


def together(parts: list[bytes]) -> bytes:
    """Combine the lines of all parts of a composite SEND.

    The matches are added up, ``duplicate`` must hold for all parts, and ``stored`` is the weakest.
    """
    lines = b"".join(parts).splitlines()
    matched = [int(line[8:]) for line in lines if line.startswith(b"matched:")]
    evidence = b"matched:%d\n" % sum(matched) if matched else b""
    hints = sorted({line for line in lines if line.startswith(_HINT)})
    if hints and not sum(matched):
        evidence += hints[0] + b"\n"
    if all(DUPLICATE in each for each in parts):
        evidence += DUPLICATE
    stored = sorted(line for line in lines if line.startswith(b"stored:"))
    # The weakest promise counts for the whole: "stored:memory", if any.
    weakest = STORED.strip() if STORED.strip() in stored else b"".join(stored[:1])
    return evidence + (weakest + b"\n" if weakest else b"")


def volatile_warning(name: str) -> str:
    """Return the log line for a persistent message on a broker without a store."""
    return (
        f"a message to {name[:80]} is persistent, but this broker stores nothing on disk: start "
        "it with --data-dir DIR (until then RECEIPTs say stored:memory)"
    )
