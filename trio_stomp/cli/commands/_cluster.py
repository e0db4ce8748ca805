"""``trio-stomp cluster``: show the nodes of a cluster, and move it from one to another."""

import argparse
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from trio_stomp.base import OptionError
from trio_stomp.cli._tool import (
    CANNOT,
    WELL,
    CannotDo,
    Parser,
    add_commands,
    add_json,
    make_tool_parser,
    show_json,
    show_table,
)

if TYPE_CHECKING:
    from trio_stomp.cluster import ClusterNames
    from trio_stomp.nats import JetStream, Message

NAME = "cluster"
VARIABLE = "TRIO_STOMP__CLUSTER__CLUSTER"
"""The variable that sets the same option of a node."""
CONNECT_S = 5.0
ANSWERS_S = 0.5
"""How long nodes may take to answer; all of them are asked at once."""
MOVE_S = 10.0
LOOK_S = 0.05

EPILOG = """\
It asks the nodes through the servers of NATS, so it needs --cluster with the same addresses and
credentials as a node. move makes another node the owner, with less than half a second of silence;
stop a node with SIGTERM to make it leave. docs/operate/cluster.md describes clusters.
"""

Row = dict[str, Any]
T = TypeVar("T")


def main(argv: Sequence[str]) -> int:
    """Run ``cluster``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the servers of NATS cannot be reached, or there is no such cluster or node.
    """
    given = make_parser().parse_args(list(argv))
    return COMMANDS[given.command](given)


def make_parser() -> Parser:
    """Return the parser of the arguments after ``cluster``."""
    parser = make_tool_parser(NAME, "Show the nodes of a cluster, and move it.", EPILOG)
    texts = {"status": "show nodes, log and servers", "move": "make another node the owner"}
    for name, command in add_commands(parser, texts).items():
        if name == "move":
            command.add_argument("node", nargs="?", default="", help="the new owner; none = any")
        add = command.add_argument
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
    found = _run(given, _look)
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
            max(0, last - row["position"]),
            row["clients"],
            row["version"],
        )
        for row in found["nodes"]
    ]
    show_table(cells, *heads)
    log = found["log"]
    print(
        f"log: entries {log['first']} to {last}, {log['bytes']} bytes, led by {log['leader']}, "
        f"followed by {', '.join(log['followers']) or 'no server'}; "
        f"snapshots: {found['snapshots']['bytes']} bytes"
    )
    if not found["owner"]:
        print("no node owns the cluster at the moment")
    return WELL if found["owner"] else CANNOT


def _move(given: argparse.Namespace) -> int:
    owner = _run(given, _hand_over)
    if given.json:
        show_json({"owner": owner})
    else:
        print(f"{owner} owns the cluster now")
    return WELL


def _run(
    given: argparse.Namespace,
    act: "Callable[[argparse.Namespace, ClusterNames, JetStream], Awaitable[T]]",
) -> T:
    # Imported late: other commands do without, and the extra may be missing.
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
                return await act(given, ClusterNames(options.cluster_name), JetStream(client))
            except NoResponders as error:
                raise CannotDo("JetStream is off at these servers") from error
            except NatsError as error:
                raise CannotDo(f"{error} (cluster {options.cluster_name})") from error

    try:
        return trio.run(run)
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def _look(_: argparse.Namespace, names: "ClusterNames", jetstream: "JetStream") -> Row:
    log, kept = await jetstream.stream(names.log), await jetstream.stream(names.snapshots)
    nodes = await _nodes(names, jetstream)
    return {
        "owner": next((row["node"] for row in nodes if row["role"] == "owner"), ""),
        "nodes": nodes,
        "log": {
            "first": log.first,
            "last": log.last,
            "bytes": log.size,
            "leader": log.leader or "the only server",
            "followers": [
                name if is_current else f"{name} (behind)"
                for name, is_current in log.followers.items()
            ],
        },
        "snapshots": {"bytes": kept.size},
    }


async def _nodes(names: "ClusterNames", jetstream: "JetStream") -> list[Row]:
    """Return what each node says of itself, by name."""
    found: dict[str, Row] = {}

    def take(messages: "list[Message]") -> None:
        for message in messages:
            if message.payload:
                row = json.loads(message.payload)
                found[row["node"]] = row

    inbox = f"_INBOX.{id(found)}".encode()
    subscription = jetstream.client.subscribe(inbox, take)
    jetstream.client.publish(names.nodes, b"{}", reply=inbox)
    await trio.sleep(ANSWERS_S)
    jetstream.client.unsubscribe(subscription)
    return [found[name] for name in sorted(found)]


async def _hand_over(
    given: argparse.Namespace, names: "ClusterNames", jetstream: "JetStream"
) -> str:
    nodes = await _nodes(names, jetstream)
    owner = next((row["node"] for row in nodes if row["role"] == "owner"), "")
    known = ", ".join(row["node"] for row in nodes) or "none"
    if given.node and given.node not in {row["node"] for row in nodes}:
        raise CannotDo(f"there is no node {given.node[:80]!r}; those that answer: {known}")
    if not owner:
        raise CannotDo(f"no node owns the cluster; those that answer: {known}")
    if given.node == owner:
        return owner
    order = json.dumps({"do": "move", "to": given.node}).encode()
    await jetstream.client.request(names.node(owner), order)
    with trio.move_on_after(MOVE_S):
        while True:
            nodes = await _nodes(names, jetstream)
            for row in nodes:
                if row["role"] == "owner" and row["node"] != owner:
                    return str(row["node"])
            await trio.sleep(LOOK_S)
    raise CannotDo(f"no other node became the owner within {MOVE_S:g} s; see: cluster status")


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {"status": _status, "move": _move}
