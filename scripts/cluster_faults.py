"""Kill nodes and servers of a cluster under load, and compare what clients saw with its promises.

    python scripts/cluster_faults.py --rounds 20
    python scripts/cluster_faults.py --rounds 2 --only owner,pause

Three servers of NATS and three nodes run on loopback. The clients of ``crash.py`` are spread over
the nodes. In each round each fault happens once:

    owner      the owner is killed
    standby    a standby is killed
    stop       the owner is stopped cleanly
    stall      nothing passes between the owner and the servers for longer than its lease
    cut        the connections between them are reset, and no new ones are possible
    aside      the same, between a standby and the servers
    pause      the owner is paused for longer than its lease, with messages on their way
    machine    the owner is killed with the server that leads the log
    leader     the server that leads the log is killed
    meta       the server that leads the servers' own group is killed
    drain      the owner is drained, and then stopped cleanly
    engine     all servers are killed at once
    replace    a server is replaced by a new one, which clients must not notice

After each fault, killed processes are restarted until all nodes are up to date, and at the end all
queues are drained. The promises are those of ``crash.py``, and redelivered messages have
``redelivered:true``. Silence is the longest time in which a client that sends to surviving nodes
received no RECEIPT. The exit code is 1 if a promise does not hold.
"""

import argparse
import json
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from _cluster.machines import Cluster, running_cluster
from _cluster.pulse import QUEUE, Pulse
from _cluster.wire import Wire
from _crash.cast import Cast
from _crash.clients import Client
from _crash.ledger import Ledger

from trio_stomp.cluster.routing import Placement

LAZY_S = 8.0
"""Records that no client waits for are stored within a second, and a takeover takes some."""
JOIN_S = 30.0
DRAIN_S = 30.0
"""Messages that do not arrive in this time are lost."""
QUIET_S = 1.0
LOAD_S = 1.0
PAUSE_S = 3.0
SETTLE_S = 0.5
SHOWN = 5
OF_ENGINE = "leader", "meta", "engine", "replace"
"""Faults after which all nodes serve clients."""


class Faults:
    """A run: faults, one after another, and the record of the clients."""

    def __init__(self, cluster: Cluster, seed: int, is_hasty: bool) -> None:
        self.cluster = cluster
        self.is_hasty = is_hasty
        self.random = random.Random(seed)
        self.ledger = Ledger(LAZY_S, "storage", must_mark=True)
        self.silences: dict[str, list[float]] = {}
        self._cast = Cast(cluster.ports[0], self.ledger)
        self.kinds: dict[str, Callable[[int], None]] = {
            "owner": lambda owner: cluster.nodes[owner].kill(),
            "standby": lambda owner: cluster.nodes[(owner + 1) % 3].kill(),
            "stop": lambda owner: cluster.nodes[owner].send(signal.SIGTERM),
            "stall": lambda owner: self._disturb(cluster.wires[owner], Wire.stall),
            "cut": lambda owner: self._disturb(cluster.wires[owner], Wire.cut),
            "aside": lambda owner: self._disturb(cluster.wires[(owner + 1) % 3], Wire.cut),
            "pause": self._pause,
            "machine": self._machine,
            "leader": lambda _: cluster.leader().kill(),
            "meta": lambda _: cluster.meta_leader().kill(),
            "drain": self._drain,
            "engine": lambda _: self._engine(),
            "replace": lambda _: cluster.replace(self.random.randrange(3)),
        }

    def prepare(self) -> None:
        """Create the objects that must exist before messages are promised."""
        self._cast.prepare()

    def round(self, kind: str) -> None:
        """Cause one fault under load, and restart everything."""
        cluster = self.cluster
        owner = cluster.owner(QUEUE)
        self.ledger.life += 1
        stop = threading.Event()
        clients = self._clients(stop)
        lost = {"standby": (owner + 1) % 3}.get(kind, None if kind in OF_ENGINE else owner)
        spared = [port for number, port in enumerate(cluster.ports) if number != lost]
        pulse = Pulse(spared)
        for each in (*clients, pulse):
            each.start()
        time.sleep(self.random.uniform(LOAD_S / 2, LOAD_S))
        # From now on messages may come again, marked as redelivered.
        self.ledger.killed_at[self.ledger.life] = time.monotonic() + PAUSE_S
        self.kinds[kind](owner)
        time.sleep(SETTLE_S)
        self._wait_for(pulse)
        stop.set()
        for client in clients:
            client.join(JOIN_S)
            if client.is_alive():
                self.ledger.wrong(f"{type(client).__name__} did not notice: {kind}")
        self.silences.setdefault(kind, []).append(pulse.stop())
        cluster.start()
        if not self.is_hasty:
            cluster.wait_until_current()

    def _wait_for(self, pulse: Pulse) -> None:
        """Wait until there were RECEIPTs for a while."""
        seen, until = len(pulse.silences), time.monotonic() + JOIN_S
        while len(pulse.silences) < seen + 50 and time.monotonic() < until:
            time.sleep(0.05)

    def _clients(self, stop: threading.Event) -> list[Client]:
        """Return the clients of one life, spread over the nodes."""
        seed = self.random.randrange(1 << 30)
        clients = [*self._cast.consumers(seed, stop), *self._cast.producers(seed + 100, stop)]
        for client in clients:
            client._port = self.random.choice(self.cluster.ports)
        return clients

    @staticmethod
    def _disturb(wires: Sequence[Wire], how: Callable[[Wire], None]) -> None:
        """Disturb the connections between a node and all servers for longer than its lease."""
        for wire in wires:
            how(wire)
        time.sleep(PAUSE_S)
        for wire in wires:
            wire.go_on()

    def _pause(self, owner: int) -> None:
        node = self.cluster.nodes[owner]
        node.send(signal.SIGSTOP)
        time.sleep(PAUSE_S)
        node.send(signal.SIGCONT)

    def _drain(self, owner: int) -> None:
        self.cluster.drain(owner)
        time.sleep(SETTLE_S)
        self.cluster.nodes[owner].send(signal.SIGTERM)

    def _machine(self, owner: int) -> None:
        leader = self.cluster.leader()
        self.cluster.nodes[owner].kill()
        leader.kill()

    def _engine(self) -> None:
        for each in self.cluster.servers:
            each.kill()
        time.sleep(1)
        for each in self.cluster.servers:
            each.start()

    def drain(self) -> None:
        """Drain all queues until no more messages arrive.

        A node that was just started gets partitions from others, which ends the sessions of their
        clients. Each client lasts as long as its connection, so others take the place of those that
        have ended.
        """
        self.ledger.life += 1
        # What was on its way comes again after such a change, marked.
        self.ledger.killed_at[self.ledger.life] = time.monotonic()
        stop = threading.Event()
        clients: list[Client] = []
        quiet_since, before = time.monotonic(), -1
        while not self.ledger.is_drained() and time.monotonic() < quiet_since + DRAIN_S:
            self._man(clients, stop)
            if self.ledger.deliveries != before:
                quiet_since, before = time.monotonic(), self.ledger.deliveries
            time.sleep(QUIET_S)
        time.sleep(QUIET_S)  # all duplicates
        stop.set()
        for client in clients:
            client.join(JOIN_S)
        self.ledger.judge()

    def _man(self, clients: list[Client], stop: threading.Event) -> None:
        """Start the clients that drain everything, or those whose connections have ended again."""
        new = list(self._cast.drainers(self.random.randrange(1 << 30), stop))
        for index, client in enumerate(new):
            if index < len(clients) and clients[index].is_alive():
                continue
            client._port = self.random.choice(self.cluster.ports)
            client.start()
            clients[index : index + 1] = [client]

    def summary(self) -> dict[str, object]:
        """Return the figures."""
        silence = {
            kind: {
                "times": len(each),
                "median_s": round(statistics.median(each), 2),
                "longest_s": round(max(each), 2),
            }
            for kind, each in self.silences.items()
        }
        return {"silence": silence, **self.ledger.summary()}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", help="faults, separated by commas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--hasty",
        action="store_true",
        help="do not wait until nodes have read their state: more downtime, no lost messages",
    )
    parser.add_argument(
        "--partitions",
        type=int,
        default=1,
        help="partitions; the first faults hit the pulse's owner",
    )
    parser.add_argument("--json", type=Path, help="also write the summary to this file")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the summary as JSON, and return the exit code."""
    args = parse(argv)
    folder = Path(tempfile.mkdtemp(prefix="cluster-"))
    began = time.monotonic()
    placement = Placement(args.partitions)
    with running_cluster(folder, placement=placement) as cluster:
        faults = Faults(cluster, args.seed, args.hasty)
        faults.prepare()
        kinds = args.only.split(",") if args.only else list(faults.kinds)
        for _ in range(args.rounds):
            for kind in kinds:
                faults.round(kind)
                line = f"{kind}: silent for {faults.silences[kind][-1]:.2f} s"
                print(f"{line}, {faults.ledger.found} violations", file=sys.stderr, flush=True)
                for text in faults.ledger.violations[:SHOWN]:
                    print(text, file=sys.stderr, flush=True)
        faults.drain()
    summary = {"seed": args.seed, **faults.summary(), "s": round(time.monotonic() - began)}
    text = json.dumps(summary, indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")
    if faults.ledger.found:
        print(f"data and logs: {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
