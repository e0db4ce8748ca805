"""What the RECEIPT of a SEND tells beside its id: header lines."""

import re

from trio_stomp.broker.names import nearly

STORED = b"stored:memory\n"
"""Of a message that waits for its consumer."""
DUPLICATE = b"duplicate:true\n"
"""Of a message that was there before."""


MATCHED_NONE = b"matched:0\n"
_HINT = b"hint:"
HINTS = {
    "/queue/": _HINT + b"the name of a queue begins with /queue/\n",
    "/topic/": _HINT + b"this is another topic than the one that begins with /topic/\n",
}
"""Of a message that nobody takes, by what the name of its destination nearly begins with."""


JOB_IS = b"scheduledJobId:%d\n"
"""The number of a message that is sent later, by which it can be ended."""

_NUMBERED = re.compile(rb"^(x-stream-offset|scheduledJobId):(\d+)$", re.MULTILINE)


def unmatched(name: str) -> bytes:
    """Return what a RECEIPT tells of a message that nobody takes."""
    return MATCHED_NONE + HINTS.get(nearly(name), b"")


def hint_of(name: str) -> str:
    """Return that hint in words, or "" if there is none."""
    return HINTS.get(nearly(name), b"").decode().removeprefix(_HINT.decode()).rstrip()


def of_earlier(evidence: bytes, behind: int) -> bytes:
    """Return what a RECEIPT tells that covers all of a run but the last ``behind`` messages."""
    if not behind:
        return evidence
    return _NUMBERED.sub(lambda line: b"%b:%d" % (line[1], int(line[2]) - behind), evidence)


def together(told: list[bytes]) -> bytes:
    """Of a composite: how many took it, whether any keeps it, whether all of it was there."""
    lines = b"".join(told).splitlines()
    matched = [int(line[8:]) for line in lines if line.startswith(b"matched:")]
    evidence = b"matched:%d\n" % sum(matched) if matched else b""
    hints = sorted({line for line in lines if line.startswith(_HINT)})
    if hints and not sum(matched):
        evidence += hints[0] + b"\n"
    if all(DUPLICATE in each for each in told):
        evidence += DUPLICATE
    stored = sorted(line for line in lines if line.startswith(b"stored:"))
    # The weakest promise holds for the whole: "stored:memory", if there is one.
    weakest = STORED.strip() if STORED.strip() in stored else b"".join(stored[:1])
    return evidence + (weakest + b"\n" if weakest else b"")


def volatile_told(name: str) -> str:
    """Return the warning to the operator when a message that is to survive cannot."""
    return (
        f"a message to {name[:80]} is persistent, but this broker stores nothing on disk: start "
        "it with --data-dir DIR (until then RECEIPTs say stored:memory)"
    )
