"""Churn a broker for half an hour, and check that its figures return to where they were.

    python scripts/soak.py --json result.json
    python scripts/soak.py --minutes 3 --seed 7 --keep DIR

Clients come and go at a steady moderate rate, over TCP and WebSocket, by DISCONNECT, by RST, in the
middle of a frame, or silently; they leave acknowledgements, transactions and durable subscriptions
open, send frames that are too big, too many or wrong, use ever new names, and may not read. The
broker has a data directory, and small bounds that are all reached during the warm-up (2,000
destinations, 1 MiB of DIAG history, segments of 1 MiB), so that later growth is a leak.

After the warm-up, then every minute, and at the end, all clients leave and persistent state is
removed. After the broker's own time limits these figures must be exactly those of the base line:
open descriptors, Trio tasks, connections, sessions, subscriptions, waiting messages, and live
messages in the store. RSS may be 10 % + 8 MiB higher: see ``_proof/judge.py``.

The exit code is 1 if a figure has not returned. Needs Linux.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import trio
from _bench.process import rss_bytes
from _proof.churn import POLICIES, Churn, tidy
from _proof.diag import Diag
from _proof.judge import MIB, Verdict, judge_exact, slope_bytes, soak_rss_bound
from _proof.watched import ProofError, Watched, watched_broker

MINUTE_S = 60.0
WORKERS = 24
ACT_LIMIT_S = 12.0
QUIESCE_LIMIT_S = 40.0
THREAD_LIFE_S = 11.0
"""Trio keeps an idle thread for 10 s. A thread has no descriptor, but a stack."""
DRAIN_S = 3.0
MAX_DESTINATIONS = 2000
OPTIONS = (
    *("--max-memory-bytes", str(64 * MIB), "--max-outbox-bytes", str(1 * MIB)),
    *("--max-body-bytes", str(4 * MIB), "--max-destinations", str(MAX_DESTINATIONS)),
    *("--connect-timeout-s", "2", "--write-stall-s", "3", "--linger-s", "1", "--ttl-ms", "2000"),
    *("--segment-bytes", str(1 * MIB), "--diag-interval-s", "1", "--diag-full-s", "5"),
    *("--diag-stream-memory-bytes", str(1 * MIB), "--diag-stream-max-bytes", str(4 * MIB)),
)


AT_MOST = ("store_live_messages",)
"""An act that the first look cut short may have left something that a later one takes away."""


class Moment(NamedTuple):
    """The broker at rest.

    Args:
      counts: Figures that must equal those of the base line.
      reported: Figures that are only reported.
    """

    minute: float
    rss_bytes: int
    counts: dict[str, int]
    reported: dict[str, int]


def counts_of(diag: Diag, files: dict[str, int]) -> dict[str, int]:
    """Return the figures that must return to the base line exactly."""
    names = {
        "DIAG/session": ("clients", "websockets", "stomp_connected", "subscriptions"),
        "DIAG/stale": ("input_queue_size", "output_queue_size", "stale_queue_size", "stale_bytes"),
        "DIAG/process": ("trio_tasks", "store_live_messages"),
    }
    counts = {name: diag.figure(topic, name) for topic, each in names.items() for name in each}
    counts["connections"] = len(diag.items.get("DIAG/connections", {}))
    counts["waiting"] = diag.sums("DIAG/destinations", "depth")
    counts["unacked"] = diag.sums("DIAG/destinations", "unacked")
    counts |= {f"open {kind}": count for kind, count in files.items()}
    counts["fds"] = sum(files.values())
    return counts


def is_at_rest(counts: dict[str, int], own_clients: int) -> bool:
    """Return whether only the listener is left, and no messages wait."""
    quiet = ("waiting", "unacked", "input_queue_size", "output_queue_size", "stale_queue_size")
    return counts["clients"] <= own_clients and not any(counts[name] for name in quiet)


class Soak:
    """One soak.

    Args:
      broker: The broker to churn.
      seed: The seed of all choices.
      rate: Actions per second.
    """

    def __init__(self, broker: Watched, seed: int, rate: float) -> None:
        self.broker = broker
        self.rate = rate
        self.diag = Diag(broker.port)
        self.churn = Churn(broker.port, random.Random(seed))
        self.began = time.monotonic()
        self.moments: list[Moment] = []

    async def run(self, minutes: float, warm_up_minutes: float, every_s: float) -> None:
        """Warm up, then churn and measure in turn."""
        await self._churn(warm_up_minutes * MINUTE_S)
        await self._look()
        until = time.monotonic() + minutes * MINUTE_S
        while (left := until - time.monotonic()) > 0:
            await self._churn(min(every_s, max(left, 1.0)))
            await self._look()

    async def _churn(self, seconds: float) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(WORKERS):
                nursery.start_soon(self._work, trio.current_time() + seconds)

    async def _work(self, until: float) -> None:
        pause = WORKERS / self.rate
        while trio.current_time() < until:
            began = trio.current_time()
            with trio.move_on_after(ACT_LIMIT_S):
                await self.churn.act()
            spent = trio.current_time() - began
            await trio.sleep(max(0.0, self.churn.dice.uniform(0.5, 1.5) * pause - spent))

    async def _look(self) -> None:
        """Wait until the broker is at rest, and record its figures."""
        await trio.sleep(5.0)
        limit = trio.current_time() + QUIESCE_LIMIT_S
        while True:
            with trio.move_on_after(QUIESCE_LIMIT_S):
                await tidy(self.broker.port, DRAIN_S)
            # Thread idle times, schedules, time limits; then a full list of destinations.
            await trio.sleep(THREAD_LIFE_S)
            moment = self._moment()
            if self._is_back(moment) or trio.current_time() > limit:
                break
        self.moments.append(moment)
        say(self._line(moment))

    def _moment(self) -> Moment:
        diag = self.diag
        expected_values = {
            "destinations": len(diag.items.get("DIAG/destinations", {})),
            "threads": diag.figure("DIAG/process", "threads"),
            "store_bytes": diag.figure("DIAG/process", "store_bytes"),
            "acts": sum(self.churn.done.values()),
        }
        minute = (time.monotonic() - self.began) / MINUTE_S
        counts = counts_of(diag, self.broker.files())
        return Moment(minute, rss_bytes(self.broker.pid), counts, expected_values)

    def _is_back(self, moment: Moment) -> bool:
        if not self.moments:
            return is_at_rest(moment.counts, 1)
        return not judge_exact(self.moments[0].counts, moment.counts, AT_MOST)

    def _line(self, moment: Moment) -> str:
        differs = judge_exact(self.moments[0].counts, moment.counts, AT_MOST)
        rest = "; ".join(differs) or "all as at the base line"
        text = ", ".join(f"{name} {count}" for name, count in moment.reported.items())
        return f"minute {moment.minute:.1f}: RSS {moment.rss_bytes / MIB:.1f} MiB; {rest}; {text}"

    def verdicts(self) -> list[Verdict]:
        """Return the verdicts."""
        error = self.diag.error
        result = Verdict("DIAG is heard to the end", not error, error or "yes")
        return [*judge(self.moments), result]


def judge(moments: Sequence[Moment]) -> list[Verdict]:
    """Return the verdicts on moments at rest. The first one is the base line."""
    base, *later = moments
    bound = soak_rss_bound(base.rss_bytes)
    most = max((each.rss_bytes for each in later), default=0)
    slope = slope_bytes([(each.minute, each.rss_bytes) for each in moments])
    last = judge_exact(base.counts, later[-1].counts, AT_MOST) if later else ["there was no minute"]
    ever = Counter(
        line.partition(" ")[0]
        for each in later
        for line in judge_exact(base.counts, each.counts, AT_MOST)
    )
    names = max((each.reported.get("destinations", 0) for each in moments), default=0)
    return [
        Verdict(
            "RSS returns to the base line + 10 % + 8 MiB",
            most <= bound,
            f"base line {base.rss_bytes / MIB:.1f} MiB, most {most / MIB:.1f} MiB, bound"
            f" {bound / MIB:.1f} MiB, slope {slope / 1024:+.0f} KiB a minute",
        ),
        Verdict(
            "descriptors, tasks and counts return exactly",
            not last,
            "; ".join(last)
            or f"{base.counts['fds']} descriptors, {base.counts['trio_tasks']} tasks"
            + (f" (between: {dict(ever)})" if ever else ""),
        ),
        Verdict(
            "destinations stay within their bound",
            names <= MAX_DESTINATIONS,
            f"{names} of {MAX_DESTINATIONS}",
        ),
    ]


def say(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="after the warm-up")
    parser.add_argument("--warm-up", type=float, default=3.0, help="minutes before the base line")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between measurements")
    parser.add_argument("--rate", type=float, default=30.0, help="acts per second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broker", nargs=argparse.REMAINDER, default=[], help="its options")
    parser.add_argument("--keep", type=Path, help="directory in which to keep data and log")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Soak, print the verdicts, and return the exit code."""
    args = parse(argv)
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        work = args.keep or Path(directory)
        work.mkdir(parents=True, exist_ok=True)
        try:
            verdicts, soak = run(args, work)
        except ProofError as error:
            say(str(error))
            return 1
    for verdict in verdicts:
        print(verdict.line())
    if args.json:
        args.json.write_text(json.dumps(report(args, verdicts, soak), indent=2) + "\n")
    return 0 if all(verdict.holds for verdict in verdicts) else 1


def run(args: argparse.Namespace, work: Path) -> tuple[list[Verdict], Soak]:
    """Start a broker, soak it, stop it.

    Raises:
      ProofError: it did not start, or did not stop in order.
    """
    policies = work / "policies.toml"
    policies.write_text(POLICIES)
    options = (*OPTIONS, "--data-dir", str(work / "data"), "--policies", str(policies))
    with watched_broker((*options, *args.broker), work / "broker.log") as broker:
        soak = Soak(broker, args.seed, args.rate)
        trio.run(soak.run, args.minutes, args.warm_up, args.every)
        verdicts = soak.verdicts()
        soak.diag.close()
    bad = broker.bad_lines()
    verdicts.append(Verdict("no bug in the log", not bad, bad[0] if bad else "nothing"))
    return verdicts, soak


def report(args: argparse.Namespace, verdicts: Sequence[Verdict], soak: Soak) -> dict[str, Any]:
    """Return all results for JSON."""
    return {
        "minutes": args.minutes,
        "seed": args.seed,
        "rate": args.rate,
        "moments": [each._asdict() for each in soak.moments],
        "acts": soak.churn.done,
        "ended_early": soak.churn.refused,
        "ends": dict(soak.diag.ends),
        "promises": [verdict._asdict() for verdict in verdicts],
    }


if __name__ == "__main__":
    sys.exit(main())
