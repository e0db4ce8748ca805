"""What the RECEIPT of a SEND tells beside its id: header lines."""

import re

STORED = b"stored:memory\n"
"""Of a message that waits for its consumer."""
DUPLICATE = b"duplicate:true\n"
"""Of a message that was there before."""


_OFFSET = re.compile(rb"^x-stream-offset:(\d+)$", re.MULTILINE)


def of_earlier(evidence: bytes, behind: int) -> bytes:
    """What a RECEIPT tells that covers all of a run but the last ``behind`` messages."""
    if not behind or b"x-stream-offset" not in evidence:
        return evidence
    return _OFFSET.sub(lambda line: b"x-stream-offset:%d" % (int(line[1]) - behind), evidence)


def together(told: list[bytes]) -> bytes:
    """Of a composite: how many took it, whether any keeps it, whether all of it was there."""
    lines = b"".join(told).splitlines()
    matched = [int(line[8:]) for line in lines if line.startswith(b"matched:")]
    evidence = b"matched:%d\n" % sum(matched) if matched else b""
    if all(DUPLICATE in each for each in told):
        evidence += DUPLICATE
    stored = sorted(line for line in lines if line.startswith(b"stored:"))
    # The weakest promise holds for the whole: "stored:memory", if there is one.
    weakest = STORED.strip() if STORED.strip() in stored else b"".join(stored[:1])
    return evidence + (weakest + b"\n" if weakest else b"")
