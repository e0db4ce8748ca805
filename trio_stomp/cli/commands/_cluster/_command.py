"""``trio-stomp cluster``: show, compare, move and drain nodes, and fill a new cluster."""

import argparse
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from trio_stomp.base import OptionError, innermost
from trio_stomp.cli._tool import (
    CANNOT,
    WELL,
    CannotDo,
    Parser,
    add_commands,
    add_json,
    make_tool_parser,
    say,
    show_json,
    show_table,
)
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
    from trio_stomp.cluster import ClusterNames
    from trio_stomp.nats import JetStream

NAME = "cluster"
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


def main(argv: Sequence[str]) -> int:
    """Run ``cluster``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the servers of NATS cannot be reached, or there is no such cluster or node.
    """
    given = make_parser().parse_args(list(argv))
    try:
        return COMMANDS[given.command](given)
    except StoreError as error:
        raise CannotDo(str(error)) from error


def make_parser() -> Parser:
    """Return the parser of the arguments after ``cluster``."""
    parser = make_tool_parser(NAME, "Show the nodes of a cluster, and move it.", EPILOG)
    texts = {
        "status": "show nodes, log and servers",
        "move": "make another node the owner",
        "drain": "keep a node from being the owner, before work on its machine",
        "verify": "compare the states of all nodes",
        "vacate": "move all streams away from a server of NATS, to remove it",
        "import": "fill a new cluster from a store",
    }
    for name, command in add_commands(parser, texts).items():
        add = command.add_argument
        if name == "move":
            add("node", nargs="?", default="", help="the new owner; none = any")
        elif name == "drain":
            add("node", help="the node")
        elif name == "verify":
            add("--timeout", type=float, default=60.0, metavar="S", help="time limit for a digest")
        elif name == "vacate":
            add("server", help="its server_name")
            add("--timeout", type=float, default=60.0, metavar="S", help="time limit for a stream")
        elif name == "import":
            add(
                "sources",
                nargs="+",
                metavar="DIR|URL",
                help="its --data-dir or --store-url; or DIR/cluster-NAME.00 and so on of a node",
            )
            add("--cluster-replicas", type=int, default=3, metavar="N", help="as for the nodes")
            add("--cluster-partitions", type=int, default=1, metavar="N", help="as for the nodes")
            add("--cluster-colocate", default="", metavar="GROUPS", help="as for the nodes")
            add("--dialect", default="native", help="of the names in scheduled messages")
        if name == "status":
            add("--partition", type=int, metavar="N", help="one partition, from 0; else all")
        elif name in ("move", "verify"):
            add("--partition", type=int, default=0, metavar="N", help="the partition, from 0")
        servers = os.environ.get(VARIABLE, "")
        add("--cluster", default=servers, metavar="URL,…", help=f"servers of NATS; else {VARIABLE}")
        add("--cluster-name", default="stomp", metavar="NAME", help="name of the cluster")
        add(
            "--cluster-credentials", default="", metavar="FILE", help="login and passcode, or token"
        )
        add("--cluster-ca", default="", metavar="FILE", help="authorities of the servers")
        add("--cluster-cert", default="", metavar="FILE", help="certificate and key for them")
        add_json(command)
    return parser


def _status(given: argparse.Namespace) -> int:
    if given.partition is None:
        parts = _run(given, look_at_all)
        if len(parts) > 1:
            return _status_of_all(given, sums_of(parts))
        (found,) = parts
    else:
        found = _run(given, look)
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
    return _show_owner(given, _run(given, hand_over))


def _drain(given: argparse.Namespace) -> int:
    return _show_owner(given, _run(given, drain))


def _show_owner(given: argparse.Namespace, owner: str) -> int:
    if given.json:
        show_json({"owner": owner})
    else:
        say(f"{owner} owns the cluster now")
    return WELL


def _verify(given: argparse.Namespace) -> int:
    found = _run(given, verify)
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
    found = _run(given, vacate)
    if given.json:
        show_json(found)
        return WELL
    show_table([(stream, ", ".join(servers)) for stream, servers in found.items()], "stream", "on")
    say(f"{given.server} has nothing of the cluster: stop it, then have the servers forget it")
    return WELL


def _import(given: argparse.Namespace) -> int:
    with ExitStack() as stack:
        given.views = {each: open_unused(each, stack) for each in given.sources}
        found = _run(given, move_in)
    if given.json:
        show_json(found)
    else:
        counts = ", ".join(f"{name}: {count}" for name, count in found.items())
        say(f"cluster {given.cluster_name} is filled: {counts}; start its nodes")
    return WELL


def _run(
    given: argparse.Namespace,
    act: "Callable[[argparse.Namespace, ClusterNames, JetStream], Awaitable[T]]",
) -> T:
    # Imported late: other commands do without.
    from trio_stomp.cluster import ClusterNames
    from trio_stomp.config import ClusterOptions
    from trio_stomp.nats import JetStream, NatsError, NoResponders, open_client
    from trio_stomp.startup import nats_options

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
                return await act(given, part, JetStream(client))
            except NoResponders as error:
                raise CannotDo("JetStream is off at these servers") from error
            except NatsError as error:
                raise CannotDo(f"{error} (cluster {options.cluster_name})") from error

    try:
        return trio.run(run)
    except BaseExceptionGroup as group:
        raise innermost(group) from None


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "status": _status,
    "move": _move,
    "drain": _drain,
    "verify": _verify,
    "vacate": _vacate,
    "import": _import,
}
