"""Overload a broker tenfold, and check that it sheds load as promised and spares other clients.

    python scripts/overload.py --compare --json result.json
    python scripts/overload.py --minutes 1 --scenario drop-oldest

The first four scenarios have 100 subscribers each, and one of them never reads a byte. The others
read at a fixed rate, and the producers send ten times as much. Meanwhile, 99 subscribers of a topic
with little traffic measure its latency. The promises that are checked:

- RSS stays within (``--max-memory-bytes`` + RSS of the idle broker) x 1.2;
- the p99 of the others is at most 3 times that of the same run without the stuck one
  (``--compare``: runs without and with it take turns). Below 5 ms a p99 counts as 5 ms;
- every drop is accounted for, to the message, once the broker is at rest: copies that RECEIPTs
  promised = received + dropped + waiting, as DIAG reports, and each drop is reported with a reason.

    drop-oldest  a topic; slow_consumer = drop-oldest; the stuck one stays for the whole run
    disconnect   a topic; slow_consumer = disconnect; disconnected clients connect again
    lone         a topic whose other subscribers all keep up with ten times the rate; outboxes of
                 the broker's default size (32 MiB), slow_consumer = drop-oldest
    queues       three queues, overflow reject (memory is its bound), drop-oldest and block (8 MiB
                 each), with a consumer each that never acknowledges

The others are attacks (``--scenario attacks`` = all of them): one client sends frames that the
limits allow, to delay all others. The ping-pong of another client each 50 ms and a health probe are
measured before and meanwhile. The promises that are checked: the ping-pong waits at most 200 ms,
and 100 ms in 99 of 100, counted in processor time of the broker; ``/livez`` answers within 1 s; RSS
as above. The longest turn of the event loop is only shown.

    wildcards    180 subscriptions to all of 60,000 queues, in one write
    selectors    1,000 selectors of eight LIKEs, and a message with a header of 16,000 characters
    choosers     the same selectors at a queue of 50,000 messages, and one consumer without any
    browses      11,000 browses of 50,000 messages, whose client does not read
    patterns     16,384 patterns of a and *, and 100 new names
    composites   1,024 SENDs to 32 deep queues each
    commits      16 COMMITs of 1,024 frames, by two connections
    topics       a COMMIT of 1,023 frames to a topic with 1,024 subscriptions
    pages        /metrics and /queuez, repeatedly, with 60,000 queues
    lasts        40 subscriptions to 20,000 last values
    names        30 connections that send to 4,090 long names each

Floods (``--scenario floods`` = all of them) are attacks that only write, by 1, 4 and 30 connections
(``begins-1``, …): of anybody on this machine, whose neighbour is anybody, too; and of a user, whose
neighbour is another user (``begins-1-user``, …).

    smallest     SENDs of 23 bytes
    begins       BEGIN and ABORT in pairs
    escapes      SENDs with 250 headers full of escapes
    passing      SUBSCRIBE and UNSUBSCRIBE in pairs
    confirmed    SENDs with a receipt each, which are read
    unread-auto, unread-client
                 40 connections with 10 subscriptions each to a stored stream of 200,000 messages,
                 which read nothing; in two modes of acknowledgement

``--tree DIRECTORY`` attacks the broker of another checkout. The exit code is 1 if a promise does
not hold. Needs Linux.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _bench.process import ROOT
from _proof import attack_run
from _proof.attack_run import Felt, run_attack
from _proof.attacks import ASSAULTS
from _proof.floods import FLOODS
from _proof.judge import MIB, Times, Verdict, judge_latency
from _proof.load import Place
from _proof.overload_run import Outcome, Scenario, Shape, run_scenario
from _proof.tables import markdown
from _proof.watched import ProofError

FACTOR = 10.0
OUTBOX_BYTES = 1 * MIB
"""100 full outboxes are 100 MiB: less than nine tenths of a budget of 128 MiB, above which the
broker stops reading from producers, and would not be overloaded."""
BODY_BYTES = 1000
DIAG_STREAM_BYTES = 1 * MIB
"""Its default of 32 MiB would, with the outboxes, be more than nine tenths of the budget."""
LOADS = ("drop-oldest", "disconnect", "lone", "queues")
FLOOD_NAMES = tuple(each.name for each in FLOODS)
ATTACKS = tuple(each.name for each in ASSAULTS)
TOPIC = "/topic/proof"
RATE = 50.0
"""Messages a second that each consumer reads."""
QUEUE_CONSUMERS = 8
SCENARIOS = (*LOADS, *ATTACKS, *FLOOD_NAMES, "attacks", "floods")
LONG_S = 86_400
LEDGER = ("owed", "received", "dropped")
Result = list[Outcome]
QUEUES = """
["/queue/proof.reject"]
overflow = "reject"
["/queue/proof.drop"]
overflow = "drop-oldest"
max_bytes = 8388608
["/queue/proof.block"]
overflow = "block"
max_bytes = 8388608
"""


def scenarios(args: argparse.Namespace) -> list[Scenario]:
    """Return all scenarios that the command line selects."""
    rate, body, stuck = args.rate, args.body_bytes, args.stuck
    readers = args.subscribers - stuck
    topic = Place(TOPIC, readers, stuck, rate, FACTOR * rate, 4, body)
    alone = topic._replace(read_rate=2 * FACTOR * rate)
    outbox = ("--max-outbox-bytes", str(args.outbox_bytes))
    stall = ("--write-stall-s", str(LONG_S))
    offered = FACTOR * rate * QUEUE_CONSUMERS
    queues = [
        Place(f"/queue/proof.{name}", QUEUE_CONSUMERS, stuck, rate, offered, 2, body, acks=True)
        for name in ("reject", "drop", "block")
    ]
    return [
        Scenario("drop-oldest", (*outbox, *stall), _slow("drop-oldest"), (topic,), False),
        Scenario("disconnect", outbox, _slow("disconnect"), (topic,), True),
        Scenario("lone", stall, _slow("drop-oldest"), (alone,), False),
        Scenario("queues", (*outbox, *stall), QUEUES, tuple(queues), False),
    ]


def _slow(policy: str) -> str:
    return f'["{TOPIC}"]\nslow_consumer = "{policy}"\n'


def without_stuck(scenario: Scenario) -> Scenario:
    """Return the scenario without a stuck client."""
    return scenario._replace(places=tuple(each._replace(stuck=0) for each in scenario.places))


def prove(scenario: Scenario, shape: Shape, rounds: int, work: Path, *, compares: bool) -> Result:
    """Run a scenario, and the same without the stuck ones, in turn."""
    outcomes = []
    for _ in range(rounds):
        for each in (without_stuck(scenario), scenario) if compares else (scenario,):
            outcome = run_scenario(each, shape, work)
            say(headline(outcome))
            for verdict in outcome.verdicts:
                say(f"    {verdict.line()}")
            outcomes.append(outcome)
    return outcomes


def attack(args: argparse.Namespace, work: Path) -> list[Felt]:
    """Run the requested attacks."""
    felts = []
    for assault in (*ASSAULTS, *FLOODS):
        if assault.name not in args.scenario:
            continue
        felt = run_attack(assault, work, args.tree.resolve())
        say(attack_run.headline(felt))
        for verdict in felt.verdicts:
            say(f"    {verdict.line()}")
        felts.append(felt)
    return felts


def compare(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """Return the verdicts on runs with and without stuck clients."""
    alone = [each for each in outcomes if not each.stuck]
    beside = [each for each in outcomes if each.stuck]
    if not alone or not beside:
        return []
    return [
        judge_latency(
            "quiet topic",
            Times.sum_of(each.side for each in alone),
            Times.sum_of(each.side for each in beside),
        ),
        judge_latency(
            "overloaded destinations",
            Times.sum_of(each.own for each in alone),
            Times.sum_of(each.own for each in beside),
        ),
    ]


def headline(outcome: Outcome) -> str:
    """Return one line of figures of a run."""
    figures = outcome.figures
    loads = []
    for each in figures["load"]:
        taken = each["received_by_readers"]
        loads.append(
            f"{each['destination']} offered {each['offered']}, taken {each['receipts']},"
            f" received {taken} (least {each['received_least']})"
        )
    return (
        f"{outcome.scenario}, {outcome.stuck} stuck: broker CPU {figures['broker_cpu_s']:.1f} s,"
        f" generator {figures['generator_cpu_s']:.1f} s;"
        f" quiet p50 {outcome.side.percentile(0.5) * 1000:.1f} ms,"
        f" p99 {outcome.side.percentile(0.99) * 1000:.1f} ms;"
        f" loaded p99 {outcome.own.percentile(0.99) * 1000:.0f} ms; {'; '.join(loads)};"
        f" ended {figures['ends'] or 'nobody'}"
    )


def row(outcome: Outcome) -> tuple[object, ...]:
    """Return the row of a run in the table."""
    figures = outcome.figures
    ledgers = [[each[name] for each in figures["ledgers"]] for name in LEDGER]
    failed = sum(not verdict.holds for verdict in outcome.verdicts)
    return (
        outcome.scenario,
        outcome.stuck,
        f"{figures['peak_rss_bytes'] / MIB:.0f}",
        f"{outcome.side.percentile(0.99) * 1000:.1f}",
        f"{outcome.own.percentile(0.99) * 1000:.0f}",
        *map(sum, ledgers),
        figures["missing"],
        failed or "all hold",
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """Return a table of all runs in Markdown."""
    head = (
        "scenario",
        "stuck",
        "peak RSS MiB",
        "quiet p99 ms",
        "loaded p99 ms",
        *LEDGER,
        "missing",
        "promises broken",
    )
    return markdown(head, map(row, outcomes), ("scenario",))


def say(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="of each run, except attacks")
    parser.add_argument("--subscribers", type=int, default=100, help="including stuck ones")
    parser.add_argument("--stuck", type=int, default=1, help="subscribers that never read")
    parser.add_argument("--compare", action="store_true", help="also run without stuck ones")
    parser.add_argument("--rounds", type=int, default=1, help="number of alternating runs")
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS)
    parser.add_argument("--max-memory-bytes", type=int, default=128 * MIB)
    parser.add_argument("--outbox-bytes", type=int, default=OUTBOX_BYTES)
    parser.add_argument("--rate", type=float, default=RATE, help="messages a second of a reader")
    parser.add_argument("--body-bytes", type=int, default=BODY_BYTES)
    parser.add_argument("--side-rate", type=float, default=20.0, help="quiet messages a second")
    parser.add_argument("--broker", nargs=argparse.REMAINDER, default=[], help="its options")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    parser.add_argument("--tree", type=Path, default=ROOT, help="checkout of the attacked broker")
    args = parser.parse_args(argv)
    asked = args.scenario or (*LOADS, "attacks", "floods")
    groups = {"attacks": ATTACKS, "floods": FLOOD_NAMES}
    args.scenario = tuple(name for each in asked for name in groups.get(each, (each,)))
    if not 0 <= args.stuck < args.subscribers:
        parser.error("--stuck must be less than --subscribers")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run the requested scenarios, print the table, and return the exit code."""
    args = parse(argv)
    readers = args.subscribers - args.stuck
    options = ("--diag-stream-memory-bytes", str(DIAG_STREAM_BYTES), *args.broker)
    shape = Shape(args.minutes * 60, readers, args.side_rate, args.max_memory_bytes, options)
    outcomes: Result = []
    felts: list[Felt] = []
    verdicts: list[Verdict] = []
    try:
        with tempfile.TemporaryDirectory(prefix="overload-") as work:
            for scenario in scenarios(args):
                if scenario.name in args.scenario:
                    runs = prove(scenario, shape, args.rounds, Path(work), compares=args.compare)
                    outcomes += runs
                    verdicts += [
                        v._replace(promise=f"{scenario.name}: {v.promise}") for v in compare(runs)
                    ]
            felts = attack(args, Path(work))
    except ProofError as error:
        say(str(error))
        return 1
    if outcomes:
        print(table(outcomes))
    if felts:
        print(attack_run.table(felts))
    for verdict in verdicts:
        print(verdict.line())
    if args.json:
        args.json.write_text(json.dumps(report(args, outcomes, verdicts, felts), indent=2) + "\n")
    every = [*verdicts, *(v for each in outcomes for v in each.verdicts)]
    every += [v for each in felts for v in each.verdicts]
    return 0 if all(verdict.holds for verdict in every) else 1


def report(
    args: argparse.Namespace,
    outcomes: Sequence[Outcome],
    verdicts: Sequence[Verdict],
    felts: Sequence[Felt],
) -> dict[str, Any]:
    """Return all results for JSON."""
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "minutes": args.minutes,
        "subscribers": args.subscribers,
        "max_memory_bytes": args.max_memory_bytes,
        "outbox_bytes": args.outbox_bytes,
        "rate": args.rate,
        "body_bytes": args.body_bytes,
        "runs": [
            {
                "scenario": each.scenario,
                "stuck": each.stuck,
                "quiet_p99_ms": each.side.percentile(0.99) * 1000,
                "loaded_p99_ms": each.own.percentile(0.99) * 1000,
                "promises": [verdict._asdict() for verdict in each.verdicts],
                **each.figures,
            }
            for each in outcomes
        ],
        "attacks": [
            {
                "attack": each.name,
                "promises": [verdict._asdict() for verdict in each.verdicts],
                **each.figures,
            }
            for each in felts
        ],
        "promises": [verdict._asdict() for verdict in verdicts],
    }


if __name__ == "__main__":
    sys.exit(main())
