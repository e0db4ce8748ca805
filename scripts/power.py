"""Open journals as power cuts leave them, and compare their contents with their promises.

    python scripts/power.py --states 1000 --seed 1
    python scripts/power.py --states 100000 --seed 2 --segment-bytes 16384 --progress

A store lives on a disk in memory: SENDs, acknowledgements, transactions and composites with and
without streams, segments that are cleaned, files that are compressed. The power fails at any
moment: each sector of 512 bytes, each length and each name that was not synced is there or not.
Then:

- committed messages are there, in order, and messages whose end was committed do not return;
- messages in progress are there or not, a transaction or composite as a whole;
- a stream has no gaps in its offsets, and the effects of a power cut are never taken for damage;
- the store remains usable, and returns the same messages again.

The states are those of ``_oracle.power``. The exit code is 1 if a promise does not hold.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from _oracle.power import State, broken_promises, disk_of, found_in, states
from _oracle.store_disk import open_store

from trio_stomp.store import Keep, Turn

SHOWN = 20


def violations(directory: str, state: State) -> list[str]:
    """Return the broken promises of a state, one line each."""
    disk = disk_of(directory, state)
    store, recovered = open_store(directory, disk)
    try:
        found = found_in(store, recovered)
        lines = broken_promises(state, *found) + [f"damage: {line}" for line in recovered.damage]
        store.append([Turn([Keep("after", "x")])], recovered.commit)
    except AssertionError as error:
        return [f"the contents contradict each other: {error}"]
    finally:
        store.close()
    store, recovered = open_store(directory, disk)
    try:
        if found_in(store, recovered) != found or recovered.damage:
            lines.append("reopened, the store has other contents")
    finally:
        store.close()
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check. Return 1 if a promise does not hold."""
    parser = argparse.ArgumentParser(description="Power cuts of a journal with streams.")
    parser.add_argument("--states", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--segment-bytes", type=int, default=4096, help="of the journal (4096)")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    parser.add_argument("--progress", action="store_true", help="a line every 100 states")
    args = parser.parse_args(arguments)
    began, bad, units, lines = time.monotonic(), 0, 0, list[str]()
    with tempfile.TemporaryDirectory() as directory:
        found = states(args.seed, args.states, segment_bytes=args.segment_bytes)
        for number, state in enumerate(found, 1):
            more = violations(directory, state)
            bad += bool(more)
            units += len(state.units)
            lines += more
            if args.progress and number % 100 == 0:
                print(f"{number} states, {bad} with violations", file=sys.stderr)
    for line in lines[:SHOWN]:
        print(line[:300])
    result = {
        "states": args.states,
        "seed": args.seed,
        "segment_bytes": args.segment_bytes,
        "units_under_way": units,
        "states_with_violations": bad,
        "violations": len(lines),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(result))
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
