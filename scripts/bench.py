"""Measure a broker over the loopback interface, and print a table.

    python scripts/bench.py                          all scenarios, each in a fresh broker
    python scripts/bench.py --scenario headline-ws --json result.json
    python scripts/bench.py --port 61613 --pid 1234  a running broker
    python scripts/bench.py --beside                 a fan-out, alone and with a durable load
    python scripts/bench.py --secure                 a fan-out with logins, rules and TLS
    python scripts/bench.py --compare v1.0 HEAD      two revisions, or checkouts
    python scripts/bench.py --floor                  the broker and a bare loop in C
    python scripts/bench.py --latency                the same for latency
    python scripts/bench.py --profile                the broker's processor time by part
    python scripts/bench.py --pauses                 garbage collection with 19,000 connections
    python scripts/bench.py --peers                  the broker, RabbitMQ and ActiveMQ
    python scripts/bench.py --peers --peer stompd=127.0.0.1:61700/4711
                                                     and a running broker
    python scripts/bench.py --cluster --peers        three nodes, and three of RabbitMQ

Compared brokers are measured in turn. The load generator is a process of its own and far cheaper
than a broker: it sends many frames in one write, and counts messages without parsing frames. It
checks that every message arrives once and in order. Durable loads have a broker with a fresh data
directory, below the directory for temporary files (``TMPDIR``), which should be on a disk.

The main figure is processor time of the broker for a million deliveries, which depends little on
other programs. Deliveries per second and latency do depend on them. Needs Linux.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from _bench.arguments import parse
from _bench.beside import run_pairs
from _bench.cluster import SIDES, cluster_rows, cluster_table, measure_cluster
from _bench.compare import COMPARED, checkout, compare, compare_rows, compare_table
from _bench.distance import distance_rows, distance_table, floor_scenarios, measure_distance
from _bench.floor import built_floor
from _bench.idle import open_idle
from _bench.latency import QUICK_CONNECTIONS, QUICK_S, Plan, measure_latency
from _bench.latency_table import latency_rows, latency_table, promise_rows
from _bench.pauses import measure_pauses, pauses_rows, pauses_table
from _bench.peer_brokers import OURS, peers_of
from _bench.peers import Plan as PeersPlan
from _bench.peers import measure_peers
from _bench.peers_table import peers_figures, peers_table
from _bench.process import ROOT, BenchError, Broker, running_broker
from _bench.replay import write_policy
from _bench.scenarios import (
    BESIDE,
    IDLE_AT_ONCE,
    QUICK_BESIDE,
    Scenario,
    open_load,
    peer_scenarios,
    scenarios,
)
from _bench.secure import Costs, measure_costs
from _bench.secure_table import login_row, secure_rows, secure_table
from _bench.shares import PROFILED, measure_shares, shares_rows, shares_table
from _bench.spread import Row
from _bench.stamped import steady
from _bench.tables import beside_table, idle_row, load_row, table

RUN_LIMIT_S = 120.0

# All costly features are enabled. Other options have their defaults.
BROKER_OPTIONS = ("--ttl", "60000")

Measured = tuple[str, object, str]
"""A key in the file of figures, its value, and a table."""


def measure(scenario: Scenario, arguments: argparse.Namespace) -> Row:
    """Run one scenario ``--repeat`` times."""
    repeat = 1 if arguments.quick else arguments.repeat
    if scenario.shape is None:
        count = scenario.quick_idle if arguments.quick else scenario.idle
        idle = []
        for _ in range(repeat):
            # Memory left over from one run would make the next look cheaper.
            with broker_of(arguments, scenario) as broker:
                run = open_idle(
                    broker, count, IDLE_AT_ONCE, RUN_LIMIT_S, websocket=scenario.websocket
                )
                say(
                    f"  {run.rss_bytes / 1024 / count:.1f} KiB, {count / run.wall_s:.0f} connects/s"
                )
                idle.append(run)
        return idle_row(scenario, idle)
    runs = []
    with broker_of(arguments, scenario) as broker:
        load = open_load(broker, scenario, quick=arguments.quick)
        try:
            for _ in range(repeat):
                each = load.run(RUN_LIMIT_S)
                million = each.broker.exact * 1e6 / each.deliveries
                say(f"  {million:.3f} CPU s/M, {each.deliveries / each.wall_s:,.0f} deliveries/s")
                runs.append(each)
        finally:
            load.close()
    return load_row(scenario, runs)


@contextmanager
def broker_of(
    arguments: argparse.Namespace, scenario: Scenario | None = None, tree: Path = ROOT
) -> Iterator[Broker]:
    """Start a broker, or use the running one.

    Args:
      scenario: The scenario of the broker; None = it has a data directory.
      tree: The checkout to start.
    """
    if arguments.port is not None:
        yield Broker(arguments.port, arguments.pid)
    elif scenario is not None and not scenario.durable:
        with running_broker((*BROKER_OPTIONS, *arguments.broker), tree=tree) as broker:
            yield broker
    else:
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            durable = ("--data-dir", f"{directory}/data", "--policies", write_policy(directory))
            options = (*BROKER_OPTIONS, *durable, *arguments.broker)
            with running_broker(options, tree=tree) as broker:
                yield broker


def measure_beside(arguments: argparse.Namespace) -> Measured:
    """Run the fan-out alone and with a durable load, ``--repeat`` times."""
    fanout, durable = QUICK_BESIDE if arguments.quick else BESIDE
    say("a fan-out alone, a durable load alone, and both")
    with broker_of(arguments) as broker:
        pairs = run_pairs(
            broker, fanout, durable, 1 if arguments.quick else arguments.repeat, RUN_LIMIT_S
        )
    for pair in pairs:
        say(f"  {pair.fanout:.2f}, {pair.durable:.2f}, {pair.both:.2f} CPU s: {pair.more:+.1%}")
    rows = [pair._asdict() | {"more": pair.more} for pair in pairs]
    return "beside", rows, beside_table(pairs)


def measure_secure(arguments: argparse.Namespace) -> Measured:
    """Run the fan-out bare and guarded, ``--pairs`` times in turn."""
    say("a fan-out bare, with logins and rules, and over TLS")
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        costs = measure_costs(
            Path(directory),
            (*BROKER_OPTIONS, *arguments.broker),
            pairs_of(arguments),
            0.0 if arguments.quick else arguments.seconds,
            say,
            quick=arguments.quick,
        )
    return "secure", secure_json(costs), secure_table(costs)


def measure_compared(arguments: argparse.Namespace) -> Measured:
    """Run two revisions in turn, ``--pairs`` times."""
    wanted = arguments.scenario or COMPARED
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        old, new = (
            checkout(revision, Path(directory) / side)
            for revision, side in zip(arguments.compare, ("old", "new"), strict=True)
        )
        compared = list(
            compare(
                (old, new),
                [each for each in scenarios() if each.name in wanted],
                pairs_of(arguments),
                lambda tree, scenario: broker_of(arguments, scenario, tree),
                say,
                quick=arguments.quick,
            )
        )
    figures = {"revisions": arguments.compare, "rows": compare_rows(compared)}
    return "compare", figures, compare_table(compared)


def measure_latencies(arguments: argparse.Namespace) -> Measured:
    """Run paced loads through the floor and the broker, ``--pairs`` times in turn."""
    say("latency: a bare loop in C, the broker, idle connections, slow consumers")
    connections = QUICK_CONNECTIONS if arguments.quick else arguments.connections
    with built_floor() as program:
        plan = Plan(
            program,
            (*BROKER_OPTIONS, *arguments.broker),
            pairs_of(arguments),
            QUICK_S if arguments.quick else arguments.seconds,
            connections,
            arguments.quick,
        )
        runs = list(measure_latency(plan, say))
    figures = {
        "idle_connections": connections,
        "rows": latency_rows(runs),
        "promises": promise_rows(runs),
        "runs": [run._asdict() for run in runs],
    }
    return "latency", figures, latency_table(runs, connections)


def measure_floor(arguments: argparse.Namespace) -> Measured:
    """Run the floor's scenarios on it and the broker in turn, ``--pairs`` times."""
    chosen = [
        each for each in floor_scenarios() if each.name in (arguments.scenario or [each.name])
    ]
    with built_floor() as program:
        distances = list(
            measure_distance(
                program,
                chosen,
                pairs_of(arguments),
                lambda scenario: broker_of(arguments, scenario),
                say,
                quick=arguments.quick,
            )
        )
    return "floor", distance_rows(distances), distance_table(distances)


def measure_profile(arguments: argparse.Namespace) -> Measured:
    """Run loads in a broker that is sampled."""
    wanted = arguments.scenario or PROFILED
    chosen = [each for each in scenarios() if each.name in wanted]
    options = (*BROKER_OPTIONS, *arguments.broker)
    cpu_s = 0.0 if arguments.quick else arguments.seconds
    results = list(measure_shares(chosen, options, cpu_s, say, quick=arguments.quick))
    return "profile", shares_rows(results), shares_table(results)


def measure_pauses_of(arguments: argparse.Namespace) -> Measured:
    """Open, hold and close idle connections, and ask the broker for its pauses."""
    say("garbage collection while connections are opened, held and closed")
    phases = list(
        measure_pauses(
            (*BROKER_OPTIONS, *arguments.broker),
            QUICK_CONNECTIONS if arguments.quick else arguments.connections,
            QUICK_S if arguments.quick else arguments.seconds,
            say,
        )
    )
    return "pauses", pauses_rows(phases), pauses_table(phases)


def measure_beside_peers(arguments: argparse.Namespace) -> Measured:
    """Run the same loads through this broker and others, ``--pairs`` times in turn."""
    say("this broker beside others")
    load = os.getloadavg()[0]
    wanted = arguments.scenario or [each.name for each in peer_scenarios()]
    chosen = [each for each in peer_scenarios() if each.name in wanted]
    plan = PeersPlan(
        peers_of((*BROKER_OPTIONS, *arguments.broker), arguments.peer),
        chosen,
        pairs_of(arguments),
        arguments.seconds,
        arguments.connections,
        arguments.quick,
    )
    steady()
    report = measure_peers(plan, say)
    machine = (
        f"{plan.rounds} round(s), runs of some {plan.seconds:g} s, {os.cpu_count()} cores, "
        f"{platform.system()}, CPython {platform.python_version()}; "
        f"load average before {load:.1f}, at the end {os.getloadavg()[0]:.1f}."
    )
    names = [each.name for each in plan.peers]
    text = peers_table(report, chosen, names, machine)
    if ours := [f"{name}: {why}" for (peer, name), why in report.failures.items() if peer == OURS]:
        print(text)
        raise BenchError("; ".join(ours))
    return "peers", peers_figures(report, chosen) | {"machine": machine}, text


def measure_clusters(arguments: argparse.Namespace) -> Measured:
    """Run loads through a cluster of three nodes, and with ``--peers`` through RabbitMQ's."""
    say("a cluster of three nodes and three servers of NATS")
    found = measure_cluster(
        list(SIDES)[: 2 if arguments.peers else 1],
        pairs_of(arguments),
        arguments.seconds,
        say,
        quick=arguments.quick,
    )
    return "cluster", cluster_rows(found), cluster_table(found)


def pairs_of(arguments: argparse.Namespace) -> int:
    """Return the number of runs of each."""
    return 1 if arguments.quick else int(arguments.pairs)


def say(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def mode_of(arguments: argparse.Namespace) -> Callable[[argparse.Namespace], Measured] | None:
    """Return the function of the requested mode, or None for scenarios one by one."""
    modes: dict[str, Callable[[argparse.Namespace], Measured]] = {
        "cluster": measure_clusters,
        "beside": measure_beside,
        "secure": measure_secure,
        "compare": measure_compared,
        "latency": measure_latencies,
        "floor": measure_floor,
        "profile": measure_profile,
        "pauses": measure_pauses_of,
        "peers": measure_beside_peers,
    }
    return next((run for name, run in modes.items() if getattr(arguments, name)), None)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the requested scenarios. Return 0, or 1 if one of them failed."""
    arguments = parse(argv, __doc__)
    result: dict[str, object] = {
        "python": platform.python_version(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "quick": arguments.quick,
        "broker_options": [*BROKER_OPTIONS, *arguments.broker],
    }
    failed = False
    run = mode_of(arguments)
    try:
        if run is not None:
            name, result[name], text = run(arguments)
            print(text)
        else:
            rows, failed = run_scenarios(arguments)
            result["scenarios"] = rows
            print(table(rows))
    except (BenchError, OSError) as error:
        say(f"  FAILED: {error}")
        return 1
    if arguments.json is not None:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
            file.write("\n")
    return 1 if failed else 0


def secure_json(costs: Costs) -> dict[str, object]:
    """Return the figures of ``--secure``, with all runs."""
    return {
        "fanout": secure_rows(costs),
        "logins": [login_row(each) for each in costs.logins],
        "runs": [run._asdict() for run in costs.runs],
    }


def run_scenarios(arguments: argparse.Namespace) -> tuple[list[Row], bool]:
    """Run the requested scenarios. Return their rows, and whether any of them failed."""
    wanted = arguments.scenario or [scenario.name for scenario in scenarios()]
    rows: list[Row] = []
    failed = False
    for scenario in scenarios():
        if scenario.name not in wanted:
            continue
        say(f"{scenario.name}: {scenario.what}")
        try:
            rows.append(measure(scenario, arguments))
        except (BenchError, OSError) as error:
            say(f"  FAILED: {error}")
            failed = True
    return rows, failed


if __name__ == "__main__":
    sys.exit(main())
