"""Simulate clusters with faults in virtual time, and check what they promise.

    python scripts/cluster_sim.py --seeds 1000
    python scripts/cluster_sim.py --seed 17

The code of leases, log, local state, snapshots and nodes runs as it is, with its client of NATS and
its journals. Simulated are the engine, the network, the clocks, threads and the broker of the
owner. Everything random comes from the seed, so a seed always leads to the same events.

Nodes are killed (their directory stays, loses its end, is damaged or lost), paused for longer than
the lease, stopped and moved. The network of a node stalls or is cut. The engine loses servers and
its majority, answers late or not at all, stores without answering, and is full. Clocks differ.

With ``--partitions``, whole brokers, routers and forwarders run, too, for clients that send alone,
in transactions and to several destinations. Nodes also lose each other, and days' clocks are set.

The checks are:
- a later owner has all messages whose storage was confirmed, and none whose ACK was confirmed;
- only the writer of the log's last epoch confirms, each entry once, in the order of the log;
- an owner without a lease delivers nothing, and messages that may have been delivered before are
  marked;
- an append that is reported as failed is not in the log;
- another node becomes the owner in time if one was up to date when the owner was killed;
- no node ends with an error, and at the end all have the same state: that of the whole log.

With partitions, instead of the first and the third, as seen by clients:
- what has a RECEIPT arrives, until its ACK has one, and never after that, unless it was on its way
  while a node or the network stood still;
- what arrives again is marked, and each sender's messages keep their order in each queue;
- of a transaction or composite SEND over partitions, all messages arrive or none, each once, and
  what one takes from a queue is sent on once;
- no partition keeps messages for others at the end.

The exit code is 1 if a check fails.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

from _cluster.parted.simulation import PLANTS as PARTED
from _cluster.parted.simulation import PartedSimulation
from _cluster.simulation import DURATION_S, PLANTS, Result, Simulation, simulate

TELL_S = 10.0
"""The interval of lines about progress."""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds, from 1")
    parser.add_argument("--seed", type=int, help="only this seed, with all events")
    parser.add_argument("--nodes", default="3-9", help="nodes of a cluster: least-most")
    parser.add_argument("--duration", type=float, default=DURATION_S, help="seconds with faults")
    parser.add_argument(
        "--plant",
        choices=(*PLANTS, *PARTED),
        default="",
        help=f"insert a fault that the checks must find; with partitions: {', '.join(PARTED)}",
    )
    parser.add_argument("--partitions", type=int, default=1, help="partitions of a cluster")
    args = parser.parse_args(argv)
    if args.plant and (args.plant in PARTED) != (args.partitions > 1):
        parser.error(f"--plant {args.plant} does not go with --partitions {args.partitions}")
    least, _, most = args.nodes.partition("-")
    try:
        args.range = int(least), int(most or least)
    except ValueError:
        parser.error("--nodes is not LEAST-MOST, such as 3-9")
    if not 2 <= args.range[0] <= args.range[1]:
        parser.error("--nodes must be at least 2, and the first not greater than the second")
    return args


def show(found: Result, command: str) -> None:
    """Print the violations, the events before them, and the command that repeats them."""
    print(f"seed {found.seed}, {found.nodes} nodes: {len(found.violations)} violations")
    for event in found.trace:
        print(f"  {event[:300]}")
    for violation in found.violations:
        print(f"VIOLATION {violation[:1000]}")
    print(f"again: {command}", flush=True)


def summary(results: Sequence[Result], seconds: float) -> str:
    """Return the figures of all seeds as a table."""
    faults: Counter[str] = Counter()
    clients: Counter[str] = Counter()
    silences = [silence for each in results for silence in each.silences]
    for each in results:
        faults.update(each.faults)
        clients.update(each.clients)
    rows = [
        ("seeds", len(results)),
        *sorted(faults.items()),
        ("takeovers", sum(each.takeovers for each in results)),
        ("confirmed appends", sum(each.confirmed for each in results)),
        ("- after the lease", sum(each.unleased for each in results)),
        ("messages delivered again", sum(each.redelivered for each in results)),
        *clients.items(),
        ("rebuilt from a snapshot", sum(each.rebuilt for each in results)),
        ("kills of an owner, timed", len(silences)),
        ("- longest silence, ms", round(1000 * max(silences, default=0))),
        ("seeds with violations", sum(1 for each in results if each.violations)),
        ("wall time, s", round(seconds)),
    ]
    return "\n".join(f"{name:26}{count:>10,}" for name, count in rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the seeds, print the results, and return the exit code."""
    args = parse(argv)
    began = reported_at = time.monotonic()
    results: list[Result] = []
    same = f"--nodes {args.nodes} --duration {args.duration:g}"
    same += f" --plant {args.plant}" if args.plant else ""
    same += f" --partitions {args.partitions}" if args.partitions > 1 else ""
    make = partial(PartedSimulation, partitions=args.partitions)
    for seed in range(1, args.seeds + 1) if args.seed is None else [args.seed]:
        found = simulate(
            seed,
            args.range,
            prints=args.seed is not None,
            plant=args.plant,
            duration_s=args.duration,
            make=Simulation if args.partitions == 1 else make,
        )
        results.append(found)
        if found.violations:
            show(found, f"python scripts/cluster_sim.py --seed {seed} {same}")
        if time.monotonic() > reported_at + TELL_S:
            reported_at = time.monotonic()
            wrong = sum(1 for each in results if each.violations)
            print(f"{len(results)} seeds, {wrong} with violations", file=sys.stderr, flush=True)
    print(summary(results, time.monotonic() - began))
    return 1 if any(each.violations for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
