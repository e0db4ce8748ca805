"""A broker that profiles its processor time: ``python -m _bench.sampled FILE OPTION…``.

Between ``START`` and ``STOP``, a timer of its processor time interrupts it, and the function that
the main thread runs is counted. A call into C, and so into the kernel, counts for the calling
function. At the end the counts are written to ``FILE``.
"""

import json
import runpy
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

START, STOP = signal.SIGRTMIN + 3, signal.SIGRTMIN + 4
EVERY_S = 0.001
"""The interval of samples, in processor time of all threads. The kernel may be coarser."""


def main() -> None:
    """Run a broker until it ends, and write the counts."""
    file = Path(sys.argv.pop(1))
    counts: Counter[tuple[str, str]] = Counter()

    def sample(_number: int, frame: FrameType | None) -> None:
        if frame is not None:
            counts[frame.f_code.co_filename, frame.f_code.co_qualname] += 1

    def switch(number: int, _frame: FrameType | None) -> None:
        every_s = EVERY_S if number == START else 0.0
        signal.setitimer(signal.ITIMER_PROF, every_s, every_s)

    signal.signal(signal.SIGPROF, sample)
    signal.signal(START, switch)
    signal.signal(STOP, switch)
    try:
        runpy.run_module("trio_stomp", run_name="__main__", alter_sys=True)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        rows = [[*where, count] for where, count in counts.items()]
        file.write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
