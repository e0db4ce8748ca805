"""The command line of ``scripts/bench.py``."""

import argparse
import math
from collections.abc import Sequence

from _bench.distance import floor_scenarios
from _bench.pauses import CONNECTIONS
from _bench.peer_brokers import Running
from _bench.scenarios import peer_scenarios, scenarios

LATENCY_CONNECTIONS = 5000

OWN_LOADS = ("secure", "latency", "pauses", "cluster")
"""Modes with loads of their own."""
OWN_BROKERS = ("secure", "compare", "latency", "floor", "profile", "pauses", "peers", "cluster")


def add_modes(parser: argparse.ArgumentParser) -> None:
    """Add the modes that replace scenarios one by one."""
    modes = parser.add_mutually_exclusive_group()
    for name, what in (
        ("beside", "what a durable load costs a fan-out beside it"),
        ("secure", "what logins, rules and TLS cost a fan-out"),
        ("latency", "latency, beside that of a bare loop in C, idle and slow connections"),
        ("floor", "the scenarios that a bare loop in C can do, through it and the broker in turn"),
        ("profile", "where the processor time goes: the kernel, Trio, each floor of the broker"),
        ("pauses", "garbage collection while connections are opened, held and closed"),
        ("peers", "the broker beside RabbitMQ and ActiveMQ, as far as they are installed, in turn"),
    ):
        modes.add_argument(f"--{name}", action="store_true", help=f"instead of all this: {what}")
    modes.add_argument(
        "--compare",
        nargs=2,
        metavar=("OLD", "NEW"),
        help="instead of all this: two revisions of the broker, or checkouts, in turn",
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="instead of all this: a cluster of three nodes; with --peers beside RabbitMQ's",
    )
    parser.add_argument(
        "--peer",
        type=Running.parse,
        action="append",
        default=[],
        metavar="NAME=[LOGIN:PASSCODE@]127.0.0.1:PORT[/PID]",
        help="of --peers: a broker that runs already, too; may be said several times",
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=10,
        metavar="N",
        help="of --secure, --compare, --latency, --floor, --peers, --cluster: runs of each",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        metavar="S",
        help="of --secure, --latency, --pauses, --peers, --cluster: how long each run is; of "
        "--profile: processor time",
    )
    parser.add_argument(
        "--connections",
        type=int,
        metavar="N",
        help="of --latency, --peers, --pauses: idle connections "
        f"(default {LATENCY_CONNECTIONS}; of --pauses {CONNECTIONS}, or as many as may be open)",
    )


def parse(argv: Sequence[str] | None, description: str | None) -> argparse.Namespace:
    """Read the command line."""
    names = list(dict.fromkeys(each.name for each in (*scenarios(), *peer_scenarios())))
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scenario", nargs="+", choices=names, metavar="NAME", help=f"some of: {', '.join(names)}"
    )
    add_modes(parser)
    parser.add_argument("--quick", action="store_true", help="small and once: a check, no figures")
    parser.add_argument(
        "--repeat", type=int, default=5, metavar="N", help="runs of each; the median counts"
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    parser.add_argument("--port", type=int, help="of a broker that runs already, on 127.0.0.1")
    parser.add_argument("--pid", type=int, help="its process")
    parser.add_argument(
        "--broker",
        nargs=argparse.REMAINDER,
        default=[],
        metavar="OPTION",
        help="everything behind this goes to the broker that is started",
    )
    arguments = parser.parse_args(argv)
    _check(parser, arguments)
    if arguments.connections is None:
        arguments.connections = CONNECTIONS if arguments.pauses else LATENCY_CONNECTIONS
    return arguments


def _check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """End the program where options do not go together."""
    if (arguments.port is None) != (arguments.pid is None):
        parser.error("--port and --pid belong together")
    if arguments.repeat < 1 or arguments.pairs < 1:
        parser.error("--repeat and --pairs must be 1 or more")
    if not 0 < arguments.seconds < math.inf or (
        arguments.connections is not None and arguments.connections < 1
    ):
        parser.error("--seconds and --connections must be more than 0")
    wanted = set(arguments.scenario or ())
    for mode in OWN_LOADS:
        if getattr(arguments, mode) and wanted:
            parser.error(f"--{mode} goes with no other choice of loads")
    for mode in OWN_BROKERS:
        if getattr(arguments, mode) and arguments.port:
            parser.error(f"--{mode} starts brokers of its own, and takes no --port")
    idle = {each.name for each in scenarios() if each.shape is None}
    for mode in ("compare", "profile"):
        if getattr(arguments, mode) and wanted & idle:
            parser.error(f"--{mode} is for loads, not for idle connections")
    if arguments.floor:
        possible = [each.name for each in floor_scenarios()]
        if wanted.difference(possible):
            parser.error(f"--floor is for topics and queues over TCP: {', '.join(possible)}")
    _check_peers(parser, arguments)


def _check_peers(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """End the program where options of ``--peers`` do not go together."""
    wanted = set(arguments.scenario or ())
    possible = [each.name for each in (peer_scenarios() if arguments.peers else scenarios())]
    if foreign := sorted(wanted.difference(possible)):
        mode = "--peers" if arguments.peers else "--scenario without --peers"
        parser.error(f"{mode} does not know {', '.join(foreign)}; it knows {', '.join(possible)}")
    names = [each.name for each in arguments.peer]
    if names and not arguments.peers:
        parser.error("--peer is of --peers")
    if len(set(names)) < len(names):
        parser.error(f"--peer names {', '.join(names)}; each name is to be another")
