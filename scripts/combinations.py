"""Test random combinations of the features of queues against a model, on a real broker.

    python scripts/combinations.py --minutes 5 --seed 7
    python scripts/combinations.py --minutes 5 --seed 7 --tree DIRECTORY

A few clients and an operator do one step after the other, over sockets, with a journal, SQLite or
no store: selectors, priorities, groups, exclusive consumers, prefetch, each ack mode, NACK with
back-off, redelivery limits, dead letters, lifetimes, schedules, each overflow policy, duplicate
ids, transactions, durable subscriptions, wildcards, composite destinations, browsers, purge, move,
redeliver, pause. There are few queues, and few values of each header, so that features meet. The
broker of a round has some scenarios side by side, which share its restarts (SIGTERM, SIGKILL) and
pauses. One round in three has a queue that is larger than the memory.

After each step a model in plain Python (``_combinations/model.py``) must explain each MESSAGE
(consumer, order, selector, group, credit, redelivery, expiry), and each message that is due to a
ready consumer must have come. Between phases the numbers of waiting and unacknowledged messages
must be those of the model. At the end all queues are drained: nothing is missing, nothing more
comes.

The exit code is 1 if something is found. Its scenario is repeated with fewer steps, as long as the
broker fails, and printed: policies, steps, what the model expected and what the broker did.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from _bench.process import ROOT
from _combinations.rounds import SCENARIOS, Failed, Setup, draw, run, shrink

DEEP_ROUNDS = 3
"""One round in this number has a deep queue."""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--round", type=int, default=0, help="the first round")
    parser.add_argument("--scenarios", type=int, default=SCENARIOS, help="scenarios of a round")
    parser.add_argument("--shrink-s", type=float, default=120.0, help="seconds for fewer steps")
    parser.add_argument("--tree", type=Path, default=ROOT, help="checkout of the broker")
    return parser.parse_args(argv)


def report(failed: Failed, setup: Setup, until: float) -> None:
    """Print a finding, with fewer steps if it repeats."""
    best, repeats = shrink(failed, setup, until)
    print(f"store: {setup.store or 'none'}; it repeats: {'yes' if repeats else 'no'}")
    for name, policy in best.plan.policies.items():
        print(f"  {name}: {policy}")
    print("\n".join(best.scene.log))
    print(f"FINDING: {best}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run rounds until the time is up or something is found, and return the exit code."""
    args = parse(argv)
    began, number, scenarios = time.monotonic(), args.round, 0
    while number == args.round or time.monotonic() < began + args.minutes * 60:
        is_deep = number % DEEP_ROUNDS == DEEP_ROUNDS - 1
        seed = f"{args.seed} {number}"
        plans, setup = draw(seed, args.scenarios, args.tree.resolve(), is_deep=is_deep)
        try:
            run(plans, setup)
        except Failed as failed:
            seconds = time.monotonic() - began
            print(f"found in {seconds:.0f} s, --seed {args.seed} --round {number}: {failed}")
            report(failed, setup, time.monotonic() + args.shrink_s)
            return 1
        number += 1
        scenarios += len(plans)
    seconds = time.monotonic() - began
    print(f"0 findings: {number - args.round} rounds, {scenarios} scenarios in {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
