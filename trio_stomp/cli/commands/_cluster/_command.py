"""``trio-stomp cluster``: show, compare, move and drain nodes, and fill a new cluster."""

import argparse
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from trio_stomp.base import OptionError, innermost
from trio_stomp.cli._command import JSON, Argument, Command, act
from trio_stomp.cli._tool import CANNOT, WELL, CannotDo, report, say, show_json, show_table
from trio_stomp.cli.commands._cluster._ask import (
    behind,
    drain,
    hand_over,
    look,
    look_at_all,
    move_in,
    open_unused,
    sums_of,
    vacate,
    verify,
)
from trio_stomp.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio_stomp.cluster import ClusterNames
    from trio_stomp.nats import JetStream

VARIABLE = "TRIO_STOMP__CLUSTER__CLUSTER"
"""The variable that sets the same option of a node."""
CONNECT_S = 5.0

EPILOG = """\
It asks the nodes through the servers of NATS, so it needs --cluster with the same addresses and
credentials as a node. move makes another node the owner, with less than half a second of downtime.
drain does so, too, and keeps the node from becoming the owner until it is started again; then stop
it with SIGTERM. verify compares the nodes' copies. vacate moves the streams from one server of
NATS to others, so that it can be stopped for good. import fills a new cluster, before its nodes
start, with the directory or database of a stopped single broker, or with those of all partitions
of a node.
docs/operate/cluster.md describes clusters.
"""

T = TypeVar("T")


def _run(given: argparse.Namespace) -> int:
    """Run ``cluster``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the servers of NATS cannot be reached, or there is no such cluster or node.
    """
    try:
        return act(given)
    except StoreError as error:
        raise CannotDo(str(error)) from error


def _status(given: argparse.Namespace) -> int:
    if given.partition is None:
        parts = _ask(given, look_at_all)
        if len(parts) > 1:
            return _status_of_all(given, sums_of(parts))
        (found,) = parts
    else:
        found = _ask(given, look)
    if given.json:
        show_json(found)
        return WELL if found["owner"] else CANNOT
    heads = "node", "role", "address", "behind", "clients relayed", "version"
    last = found["log"]["last"]
    cells = [
        (
            row["node"],
            row["role"],
            row["address"],
            behind(row, last),
            row["clients"],
            row["version"],
        )
        for row in found["nodes"]
    ]
    show_table(cells, *heads)
    log = found["log"]
    say(
        f"log: entries {log['first']} to {last}, {log['bytes']} bytes, led by {log['leader']}, "
        f"followed by {', '.join(log['followers']) or 'no server'}; "
        f"snapshots: {found['snapshots']['bytes']} bytes"
    )
    if found["partitions"] > 1:
        say(f"partition {given.partition} of {found['partitions']} partitions")
    _show_differences(found)
    if not found["owner"]:
        say("no node owns the cluster at the moment")
    return WELL if found["owner"] else CANNOT


def _status_of_all(given: argparse.Namespace, found: dict[str, Any]) -> int:
    """Show the sums over several partitions."""
    is_well = all(found["owners"])
    if given.json:
        show_json(found)
        return WELL if is_well else CANNOT
    cells = [
        (
            row["node"],
            ", ".join(map(str, row["owns"])) or "none",
            ", ".join(map(str, row["follows"])) or "none",
            row["behind"],
            row["reading"],
            row["clients"],
            row["version"],
        )
        for row in found["nodes"]
    ]
    heads = "node", "owns", "follows", "behind", "reading", "clients relayed", "version"
    show_table(cells, *heads)
    say(
        f"{found['partitions']} partitions: logs of {found['log']['bytes']} bytes, snapshots of "
        f"{found['snapshots']['bytes']} bytes; --partition shows one"
    )
    _show_differences(found)
    if not is_well:
        lacking = [str(number) for number, owner in enumerate(found["owners"]) if not owner]
        say(f"no node owns partition {', '.join(lacking)} at the moment")
    return WELL if is_well else CANNOT


def _show_differences(found: dict[str, Any]) -> None:
    for node, differs in found["differences"].items():
        say(f"{node} has other {', '.join(differs)} than the owner")
    for row in found["nodes"]:
        if row.get("problem"):
            say(f"{row['node']}: {row['problem']}")


def _move(given: argparse.Namespace) -> int:
    return _show_owner(given, _ask(given, hand_over))


def _drain(given: argparse.Namespace) -> int:
    return _show_owner(given, _ask(given, drain))


def _show_owner(given: argparse.Namespace, owner: str) -> int:
    return report(given, {"owner": owner}, f"{owner} owns the cluster now")


def _verify(given: argparse.Namespace) -> int:
    found = _ask(given, verify)
    digests = {row["digest"] for row in found}
    are_equal = len(digests) == 1 and not any(row["failure"] for row in found)
    if given.json:
        show_json({"equal": are_equal, "nodes": found})
        return WELL if are_equal else CANNOT
    rows = [(row["node"], row["records"], row["digest"] or row["failure"]) for row in found]
    show_table(rows, "node", "records", "digest")
    at = f"after entry {found[0]['position']} of the log"
    if are_equal:
        say(f"all nodes have the same state {at}")
    else:
        say(
            f"the nodes differ {at}: stop a node that is wrong, delete its directory, and start it;"
            " it is rebuilt from the log"
        )
    return WELL if are_equal else CANNOT


def _vacate(given: argparse.Namespace) -> int:
    found = _ask(given, vacate)
    if given.json:
        show_json(found)
        return WELL
    show_table([(stream, ", ".join(servers)) for stream, servers in found.items()], "stream", "on")
    say(f"{given.server} has nothing of the cluster: stop it, then have the servers forget it")
    return WELL


def _import(given: argparse.Namespace) -> int:
    with ExitStack() as stack:
        given.views = {each: open_unused(each, stack) for each in given.sources}
        found = _ask(given, move_in)
    counts = ", ".join(f"{name}: {count}" for name, count in found.items())
    return report(
        given, found, f"cluster {given.cluster_name} is filled: {counts}; start its nodes"
    )


def _ask(
    given: argparse.Namespace,
    order: "Callable[[argparse.Namespace, ClusterNames, JetStream], Awaitable[T]]",
) -> T:
    # Imported late: other commands do without.
    from trio_stomp.cluster import ClusterNames
    from trio_stomp.config import ClusterOptions
    from trio_stomp.nats import JetStream, NatsError, NoResponders, open_client
    from trio_stomp.startup import nats_options

    given.cluster = given.cluster or os.environ.get(VARIABLE, "")
    if not given.cluster:
        raise OptionError(
            f"cluster {given.command}: name the servers of NATS: --cluster nats://HOST:4222"
        )
    names = ("cluster", "cluster_name", "cluster_credentials", "cluster_ca", "cluster_cert")
    options = ClusterOptions(**{name: getattr(given, name) for name in names})

    async def run() -> T:
        async with open_client(nats_options(options, "trio-stomp cluster")) as client:
            with trio.move_on_after(CONNECT_S):
                await client.wait_until_connected()
            try:
                part = ClusterNames(options.cluster_name, getattr(given, "partition", 0) or 0)
                return await order(given, part, JetStream(client))
            except NoResponders as error:
                raise CannotDo("JetStream is off at these servers") from error
            except NatsError as error:
                raise CannotDo(f"{error} (cluster {options.cluster_name})") from error

    try:
        return trio.run(run)
    except BaseExceptionGroup as group:
        raise innermost(group) from None


SERVERS = (
    Argument("--cluster URL,…", f"servers of NATS; else {VARIABLE}", default=""),
    Argument("--cluster-name NAME", "name of the cluster", default="stomp"),
    Argument("--cluster-credentials FILE", "login and passcode, or token", default=""),
    Argument("--cluster-ca FILE", "authorities of the servers", default=""),
    Argument("--cluster-cert FILE", "certificate and key for them", default=""),
    JSON,
)
PARTITION = Argument("--partition N", "the partition, from 0", int, default=0)
COMMAND = Command(
    _run,
    epilog=EPILOG,
    text="Show the nodes of a cluster, and move it.",
    commands={
        "status": Command(
            _status,
            (Argument("--partition N", "one partition, from 0; else all", int), *SERVERS),
            "show nodes, log and servers",
        ),
        "move": Command(
            _move,
            (Argument("[node]", "the new owner; none = any", default=""), PARTITION, *SERVERS),
            "make another node the owner",
        ),
        "drain": Command(
            _drain,
            (Argument("node", "the node"), *SERVERS),
            "keep a node from being the owner, before work on its machine",
        ),
        "verify": Command(
            _verify,
            (
                Argument("--timeout S", "time limit for a digest", float, default=60.0),
                PARTITION,
                *SERVERS,
            ),
            "compare the states of all nodes",
        ),
        "vacate": Command(
            _vacate,
            (
                Argument("server", "its server_name"),
                Argument("--timeout S", "time limit for a stream", float, default=60.0),
                *SERVERS,
            ),
            "move all streams away from a server of NATS, to remove it",
        ),
        "import": Command(
            _import,
            (
                Argument(
                    "DIR|URL...",
                    "its --data-dir or --store-url; or DIR/cluster-NAME.00 and so on of a node",
                    dest="sources",
                ),
                Argument("--cluster-replicas N", "as for the nodes", int, default=3),
                Argument("--cluster-partitions N", "as for the nodes", int, default=1),
                Argument("--cluster-colocate GROUPS", "as for the nodes", default=""),
                Argument(
                    "--dialect DIALECT", "of the names in scheduled messages", default="native"
                ),
                *SERVERS,
            ),
            "fill a new cluster from a store",
        ),
    },
)
