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
        ("beside", "the cost of a durable load for a fan-out"),
        ("secure", "the cost of logins, rules and TLS for a fan-out"),
        ("latency", "latency, compared with a bare loop in C, and with idle and slow connections"),
        ("floor", "the scenarios that a bare loop in C supports, compared with that loop"),
        ("profile", "processor time of the kernel, Trio and each floor of the broker"),
        ("pauses", "garbage collection while connections are opened, held and closed"),
        ("peers", "the broker compared with RabbitMQ and ActiveMQ, if they are installed"),
    ):
        modes.add_argument(f"--{name}", action="store_true", help=f"measure only {what}")
    modes.add_argument(
        "--compare",
        nargs=2,
        metavar=("OLD", "NEW"),
        help="compare two revisions of the broker, or checkouts",
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="measure only a cluster of three nodes; with --peers compared with RabbitMQ's",
    )
    parser.add_argument(
        "--peer",
        type=Running.parse,
        action="append",
        default=[],
        metavar="NAME=[LOGIN:PASSCODE@]127.0.0.1:PORT[/PID]",
        help="for --peers: a running broker to include; repeatable",
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=10,
        metavar="N",
        help="for --secure, --compare, --latency, --floor, --peers, --cluster: runs of each",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        metavar="S",
        help="for --secure, --latency, --pauses, --peers, --cluster: duration of a run; for "
        "--profile: processor time",
    )
    parser.add_argument(
        "--connections",
        type=int,
        metavar="N",
        help="for --latency, --peers, --pauses: idle connections "
        f"(default {LATENCY_CONNECTIONS}; for --pauses {CONNECTIONS}, or as many as may be open)",
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
    parser.add_argument("--quick", action="store_true", help="one small run of each, as a check")
    parser.add_argument(
        "--repeat", type=int, default=5, metavar="N", help="runs of each, to take the median"
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures to this file")
    parser.add_argument("--port", type=int, help="port of a running broker on 127.0.0.1")
    parser.add_argument("--pid", type=int, help="process id of that broker")
    parser.add_argument(
        "--broker",
        nargs=argparse.REMAINDER,
        default=[],
        metavar="OPTION",
        help="all further arguments are options of the broker to start",
    )
    arguments = parser.parse_args(argv)
    _check(parser, arguments)
    if arguments.connections is None:
        arguments.connections = CONNECTIONS if arguments.pauses else LATENCY_CONNECTIONS
    return arguments


def _check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """End the program if options conflict."""
    if (arguments.port is None) != (arguments.pid is None):
        parser.error("--port and --pid must be given together")
    if arguments.repeat < 1 or arguments.pairs < 1:
        parser.error("--repeat and --pairs must be 1 or more")
    if not 0 < arguments.seconds < math.inf or (
        arguments.connections is not None and arguments.connections < 1
    ):
        parser.error("--seconds and --connections must be more than 0")
    wanted = set(arguments.scenario or ())
    for mode in OWN_LOADS:
        if getattr(arguments, mode) and wanted:
            parser.error(f"--{mode} and --scenario exclude each other")
    for mode in OWN_BROKERS:
        if getattr(arguments, mode) and arguments.port:
            parser.error(f"--{mode} starts its own brokers, so --port cannot be given")
    idle = {each.name for each in scenarios() if each.shape is None}
    for mode in ("compare", "profile"):
        if getattr(arguments, mode) and wanted & idle:
            parser.error(f"--{mode} does not measure idle connections")
    if arguments.floor:
        possible = [each.name for each in floor_scenarios()]
        if wanted.difference(possible):
            parser.error(f"--floor supports only {', '.join(possible)}")
    _check_peers(parser, arguments)


def _check_peers(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """End the program if options of ``--peers`` conflict."""
    wanted = set(arguments.scenario or ())
    possible = [each.name for each in (peer_scenarios() if arguments.peers else scenarios())]
    if foreign := sorted(wanted.difference(possible)):
        mode = "--peers" if arguments.peers else "--scenario without --peers"
        parser.error(f"{mode} does not know {', '.join(foreign)}; it knows {', '.join(possible)}")
    names = [each.name for each in arguments.peer]
    if names and not arguments.peers:
        parser.error("--peer requires --peers")
    if len(set(names)) < len(names):
        parser.error(f"--peer names {', '.join(names)}; the names must differ")
