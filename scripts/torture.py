"""Torture a broker with clients that pause, cut, read slowly and leave, and check their results.

    python scripts/torture.py --minutes 10 --seed 1
    python scripts/torture.py --minutes 10 --clients 200 --transports tls wss --tree DIRECTORY

50 to 200 clients on blocking sockets, over TCP, TLS, WebSocket and WebSocket over TLS, send random
valid frames: SEND to queues and topics, small ones and 250 KB, ACK and NACK, transactions,
SUBSCRIBE, UNSUBSCRIBE immediately after ACKs, and browse. They pause for up to 4 s, so that
connections become idle and active again. They split their output anywhere, in STOMP frames,
WebSocket frames and TLS records. They read slowly, or not at all for a while. They leave by
DISCONNECT, Close, half close, RST in the middle of a frame, or a protocol violation. A fifth of
them come and go all the time. Half of the messages are durable, and some consumers have a selector.
Some queues become deep, and some messages in them belong to groups. There is a journal, and so
little memory that deep queues leave messages in it; with ``--restart-s`` the broker is ended now
and then, by SIGTERM or SIGKILL. ``--plain`` is without all this. Then all queues are drained. For
each connection (``_torture/session.py``):

- RECEIPTs and MESSAGEs arrive in the order of the frames, a SUBSCRIBE's RECEIPT before its first
  MESSAGE, an UNSUBSCRIBE's after its last;
- accepted messages arrive once, or again as ``redelivered``; aborted ones do not;
- ERRORs arrive only for violations: no ``unknown-ack`` for ACKs before an UNSUBSCRIBE;
- each RECEIPT, and the answer to each kind of leaving, arrives within ``--patience`` seconds;
- TLS does not break;
- the log has no unexpected line: the first one ends the run.

What is not durable may be lost by a restart, which also excuses how connections end.

The seed determines the choices, not the timing of the operating system. The exit code is 1 if
a promise does not hold. The first violations are printed with the frames before them.
"""

import argparse
import json
import resource
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from _bench.guarded import write_certificate
from _bench.process import ROOT, BenchError
from _proof.watched import ProofError
from _torture.acts import MIXED, PLAIN
from _torture.client import Client, Stage
from _torture.crowd import Janitor, Visitor
from _torture.host import Host
from _torture.link import TRANSPORTS
from _torture.model import KINDS, World

FIRST_VIOLATIONS = 2
"""Maximum number of violations of each kind that are printed in full."""
VISITORS = 5
"""One client in this number comes and goes all the time."""
STEP_S = 0.5
OPTIONS = (
    *("--max-redeliveries", "1000000"),
    *("--diag-interval-s", "0.25", "--linger-s", "6"),
)
"""No message becomes a dead letter; the broker's timers put many events into its inbox; and it
waits longer for a client to read its last frames than our slowest client needs."""
CLIENT_BYTES = 320 << 10
"""The broker's memory for each client, with the journal: so little that long queues leave durable
messages in the store, and enough for one of the largest frames of each, so that nobody waits long.
"""
REFUSALS = ("queue-full", "transaction-too-large", "memory-limit", "slow-consumer")
SMALL_STACK_BYTES = 512 * 1024


@contextmanager
def broker(
    args: argparse.Namespace, work: Path, world: World
) -> Iterator[tuple[int, ssl.SSLContext, Host | None]]:
    """Run the broker to torture. Yield its port, the authority that its clients trust, and itself.

    There is none of ours to yield for ``--url``.
    """
    if args.url:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        yield urlsplit(args.url).port or 61613, context, None
        return
    certificate, context = write_certificate(work)
    memory = ("--max-memory-bytes", str(args.clients * CLIENT_BYTES))
    stored = () if args.plain else (*memory, "--data-dir", str(work / "data"))
    options = (*OPTIONS, *stored, "--tls-cert", certificate, *args.broker)
    host = Host(options, work, args.tree.resolve(), world)
    with host.running():
        yield host.port, context, host


def torture(
    args: argparse.Namespace, world: World, port: int, context: ssl.SSLContext, host: Host | None
) -> None:
    """Run the clients for the requested time, then drain and judge."""
    mix, restarts = PLAIN if args.plain else MIXED, args.restart_s > 0
    stage = Stage(world, port, context, args.patience, threading.Event(), mix, restarts)
    behind = Stage(world, port, context, args.patience, threading.Event(), mix, restarts)
    clients: list[Client] = []
    for n in range(args.clients):
        kind = Client if n % VISITORS else Visitor
        transport = args.transports[n % len(args.transports)]
        clients.append(kind(stage, f"c{n}", transport, f"{args.seed} {n}"))
    janitor = Janitor(behind, "janitor", args.transports[0], f"{args.seed}")
    for each in (*clients, janitor):
        each.start()
    watch(args, world, host)
    stage.stop.set()
    for each in clients:
        each.join(6 * args.patience)
        if each.is_alive():
            world.wrong("client", each.label, "does not end")
    behind.stop.set()
    janitor.join(60 * args.patience)
    if janitor.is_alive():
        world.wrong("client", janitor.label, "does not end")
    if not world.found:  # a broken session has not drained
        world.judge()


def watch(args: argparse.Namespace, world: World, host: Host | None) -> None:
    """Restart the broker now and then, until the time is up or its log has unexpected lines."""
    dice = Random(f"{args.seed} restarts")
    until = time.monotonic() + args.minutes * 60
    restart_at = _later(args, dice)
    wanted = set(args.until)
    while time.monotonic() < until and not (wanted and wanted <= set(world.found)):
        time.sleep(STEP_S)
        if args.progress:
            progress(world)
        if host is None:
            continue
        if not host.look():
            return
        if time.monotonic() > restart_at:
            host.end(is_kill=dice.random() < 0.5)
            host.start()
            world.add("restarts")
            restart_at = _later(args, dice)


def _later(args: argparse.Namespace, dice: Random) -> float:
    """Return the time of the next restart."""
    return time.monotonic() + args.restart_s * dice.uniform(0.5, 1.5) if args.restart_s else inf


def progress(world: World) -> None:
    """Print one line of progress, over the last one."""
    found = dict(world.found) or "no violations"
    frames = world.counts["frames"]
    print(f"\r{frames} frames, {found}", end="", file=sys.stderr, flush=True)


def summary(args: argparse.Namespace, world: World, seconds: float) -> dict[str, object]:
    """Return the figures."""
    return {
        "seed": args.seed,
        "clients": args.clients,
        "transports": args.transports,
        "seconds": round(seconds, 1),
        "clients_cpu_s": round(resource.getrusage(resource.RUSAGE_SELF).ru_utime, 1),
        **world.counts,
        "messages": sum(len(lane.state) for lane in world.lanes.values()),
        "violations": dict(world.found),
    }


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transports", nargs="+", choices=TRANSPORTS, default=list(TRANSPORTS))
    parser.add_argument(
        "--plain", action="store_true", help="no store, selectors or groups, and ample memory"
    )
    parser.add_argument(
        "--restart-s",
        type=float,
        default=0.0,
        help="mean seconds between restarts; 0 = none",
    )
    parser.add_argument("--patience", type=float, default=15.0, help="seconds for each answer")
    parser.add_argument(
        "--until",
        nargs="+",
        choices=KINDS,
        metavar="KIND",
        default=[],
        help=f"end once each of these violations was found: {' '.join(KINDS)}",
    )
    parser.add_argument("--url", default="", help="URL of a running broker on this machine")
    parser.add_argument("--tree", type=Path, default=ROOT, help="checkout of the broker")
    parser.add_argument("--broker", nargs=argparse.REMAINDER, default=[], help="its options")
    parser.add_argument("--json", type=Path, help="also write the summary to this file")
    parser.add_argument("--keep", type=Path, help="directory for the broker's log")
    parser.add_argument("--progress", action="store_true", help="print a line of progress")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the summary as JSON, and return the exit code."""
    args = parse(argv)
    threading.stack_size(SMALL_STACK_BYTES)
    world = World()
    world.refusals = () if args.plain else REFUSALS
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torture-") as directory:
        work = args.keep or Path(directory)
        work.mkdir(parents=True, exist_ok=True)
        try:
            with broker(args, work, world) as (port, context, host):
                torture(args, world, port, context, host)
        except (ProofError, BenchError) as error:
            world.wrong("log", "broker", str(error))
        except KeyboardInterrupt:
            print("interrupted: what was found until now", file=sys.stderr)
    for kind in world.found:
        of_kind = [each for each in world.violations if each.kind == kind]
        for each in of_kind[:FIRST_VIOLATIONS]:
            print(f"{each}\n", file=sys.stderr)
    text = json.dumps(summary(args, world, time.monotonic() - began), indent=2)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")
    if world.found:
        print(f"violations were found; seed {args.seed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
