"""Kill a broker repeatedly under load, and compare what its clients saw with its promises.

    python scripts/crash.py --kills 100 --seed 1
    python scripts/crash.py --kills 1000 --store sqlite --json result.json
    python scripts/crash.py --power-cuts 400

Producers (in lock step, with many unconfirmed messages, in transactions) and consumers (which
acknowledge with a RECEIPT or not at all, have a durable subscription, or move messages) record what
they send and receive. The broker is killed (SIGKILL) at moments chosen by the seed, sometimes
during its start, and restarted with the same data. At the end all queues are drained. Then:

- no message with a RECEIPT is lost, except with ``ack:auto`` those in delivery at a kill;
- none is delivered again after the RECEIPT of its ACK, and none twice without a kill in between;
- the messages of one producer reach each consumer in order;
- a transaction is delivered as a whole or not at all, also if it sends to queues, to a durable
  subscription and to a stream; and a message moved in one is moved once;
- after the drain nothing is left;
- after some kills, an export contains all messages that are consumed only in the drain.

With ``--power-cuts`` nothing is killed: brokers are started on the state after a power cut, of a
journal with streams and of SQLite. Each sector of 512 bytes that was not synced is lost or not.

The seed determines the choices, not the timing of the operating system, so the same seed does not
kill at the same byte. The exit code is 1 if a promise does not hold.
"""

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from _crash.broker import Broker, NotReady, bad_lines, exported
from _crash.cast import DEEP, LOGGED, Cast
from _crash.clients import Client
from _crash.ledger import Ledger
from _crash.ports import free_port

LAZY_S = 2.5
"""Records that no client waits for are stored within a second. The rest is for busy machines."""
JOIN_S = 30.0
DRAIN_S = 300.0
QUIET_S = 1.0
MAX_QUIET = 10
"""The number of quiet periods in a row after which missing messages are lost."""
STARTUP_KILLS = 0.08
LOOKS = 0.2
"""Share of the kills after which the store is checked, besides the last kill. The drain does not
show faults that exist only until segments are cleaned."""
SEGMENT_BYTES = (65_536, 1_048_576, 67_108_864)
MEMORY_BYTES = (33_554_432, 536_870_912)


class Harness:
    """One run."""

    def __init__(self, args: argparse.Namespace, work: Path) -> None:
        self.args = args
        self.random = random.Random(args.seed)
        self.log = work / "broker.log"
        self.data = work / "data"
        self.data.mkdir(exist_ok=True)
        self.ledger = Ledger(LAZY_S)
        self.port = args.port or free_port()
        self.cast = Cast(self.port, self.ledger, has_log=True)
        self.config = work / "broker.toml"
        self.config.write_text(f'[destinations."{LOGGED}"]\nstream = true\n')
        self.starts: list[float] = []
        self.kills = 0
        self.startup_kills = 0
        self.looks = 0

    def run(self) -> None:
        """Kill the broker repeatedly, then drain it, then check that nothing is left."""
        began = time.monotonic()
        while self.kills < self.args.kills:
            if self.args.minutes and time.monotonic() - began > 60 * self.args.minutes:
                break
            self._life()
            if self.args.progress and self.kills % 10 == 0:
                sent = sum(len(track.seen) for track in self.ledger.tracks.values())
                line = f"{self.kills} kills, {sent} sent, {self.ledger.found} violations"
                print(line, file=sys.stderr, flush=True)
        self._drain()
        self.ledger.judge()
        self._look_once_more()
        for line in bad_lines(self.log)[:10]:
            self.ledger.wrong(f"log: {line}")

    @property
    def _target(self) -> str:
        is_sql = self.args.store == "sqlite"
        return f"sqlite:///{self.data}/broker.db" if is_sql else str(self.data)

    def _start(self) -> Broker:
        self.ledger.life += 1
        options = [
            "--segment-bytes",
            str(self.random.choice(SEGMENT_BYTES)),
            "--max-memory-bytes",
            str(self.random.choice(MEMORY_BYTES)),
            "--log-level",
            "warning",
            "--config",
            str(self.config),
        ]
        if self.args.store == "sqlite":
            options += ["--store-url", self._target]
        else:
            options += ["--data-dir", self._target]
        return Broker(self.port, options, self.log)

    def _life(self) -> None:
        """Start the broker, load it, and kill it."""
        broker = self._start()
        stop = threading.Event()
        clients: list[Client] = []
        try:
            if self.random.random() < STARTUP_KILLS:
                self.startup_kills += 1
                time.sleep(self.random.uniform(0, statistics.median(self.starts or [0.5])))
            else:
                self.starts.append(broker.wait_ready())
                if len(self.starts) == 1:
                    self.cast.prepare()
                seed = self.random.randrange(1 << 30)
                clients += self.cast.consumers(seed, stop)
                clients += self.cast.producers(seed + 100, stop)
                start_all(clients)
                time.sleep(self.random.uniform(0.02, self.args.life))
        finally:
            self.ledger.killed_at[self.ledger.life] = time.monotonic()
            broker.kill()
            stop.set()
        self.kills += 1
        self._join(clients)
        is_last = self.kills == self.args.kills
        if self.starts and (is_last or self.random.random() < LOOKS):
            self.looks += 1
            bodies = exported(self._target, DEEP)
            self.ledger.look("deep", [int(body.split(" ", 2)[1]) for body in bodies])

    def _drain(self) -> None:
        """Run a last life without producers until all messages have arrived and no more follow."""
        broker = self._start()
        self.starts.append(broker.wait_ready())
        stop = threading.Event()
        clients = list(self.cast.drainers(self.random.randrange(1 << 30), stop))
        clients.append(self.cast.reader(stop))
        start_all(clients)
        deadline = time.monotonic() + DRAIN_S
        quiet = 0
        while time.monotonic() < deadline:
            before = self.ledger.deliveries
            time.sleep(QUIET_S)
            quiet = quiet + 1 if self.ledger.deliveries == before else 0
            # A busy disk may well be silent for a second.
            if quiet and (quiet >= MAX_QUIET or self.ledger.is_drained()):
                break
        for client in clients:
            if not client.is_alive():
                self.ledger.wrong(f"{type(client).__name__} was disconnected by a running broker")
        stop.set()
        self._join(clients)
        if (code := broker.stop()) != 0:
            self.ledger.wrong(f"the broker stopped with exit code {code}")

    def _look_once_more(self) -> None:
        """Check that nothing is left after the drain: all was acknowledged."""
        before = self.ledger.deliveries
        broker = self._start()
        broker.wait_ready()
        stop = threading.Event()
        clients = list(self.cast.drainers(0, stop))
        start_all(clients)
        time.sleep(QUIET_S)
        stop.set()
        self._join(clients)
        broker.stop()
        if self.ledger.deliveries != before:
            self.ledger.wrong(f"{self.ledger.deliveries - before} messages after the drain")

    def _join(self, clients: Iterable[Client]) -> None:
        for client in clients:
            client.join(JOIN_S)
            if client.is_alive():
                self.ledger.wrong(f"{type(client).__name__} did not notice the kill")

    def summary(self) -> dict[str, object]:
        """The figures."""
        starts = sorted(self.starts) or [0.0]
        return {
            "store": self.args.store,
            "seed": self.args.seed,
            "kills": self.kills,
            "kills_while_starting": self.startup_kills,
            "looks": self.looks,
            **self.ledger.summary(),
            "ready_s_median": round(statistics.median(starts), 3),
            "ready_s_max": round(starts[-1], 3),
            "data_bytes": sum(p.stat().st_size for p in self.data.rglob("*") if p.is_file()),
        }


def start_all(clients: Iterable[Client]) -> None:
    """Start clients."""
    for client in clients:
        client.start()


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=0, help="time limit; 0 = none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=("journal", "sqlite"), default="journal")
    parser.add_argument("--life", type=float, default=1.2, help="longest life under load, seconds")
    parser.add_argument("--port", type=int, default=0, help="port of all lives; 0 = any")
    parser.add_argument("--json", type=Path, help="also write the summary to this file")
    parser.add_argument("--keep", type=Path, help="directory in which to keep data and log")
    parser.add_argument("--power-cuts", type=int, default=0, help="only check this many states")
    parser.add_argument(
        "--progress", action="store_true", help="print a line for ten kills, or twenty states"
    )
    return parser.parse_args(argv)


def cut_power(args: argparse.Namespace) -> int:
    """Start brokers on states after power cuts. Return the exit code."""
    from _crash import power

    began = time.monotonic()
    summary = power.run(args.seed, args.power_cuts, progress=args.progress)
    summary["seconds"] = round(time.monotonic() - began, 1)
    text = json.dumps(summary, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")
    return 1 if summary["violations"] else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the summary as JSON, and return the exit code."""
    args = parse(argv)
    if args.power_cuts:
        return cut_power(args)
    work = args.keep or Path(tempfile.mkdtemp(prefix="crash-"))
    work.mkdir(parents=True, exist_ok=True)
    harness = Harness(args, work)
    began = time.monotonic()
    try:
        harness.run()
    except NotReady as error:
        harness.ledger.wrong(str(error))
    summary = harness.summary()
    summary["seconds"] = round(time.monotonic() - began, 1)
    text = json.dumps(summary, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")
    if harness.ledger.found:
        print(f"data and log: {work}", file=sys.stderr)
        return 1
    if not args.keep:
        shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
