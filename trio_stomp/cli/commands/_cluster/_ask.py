"""Questions and orders to the nodes of a cluster, over the servers of NATS."""

import argparse
import json
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import trio
from attrs import evolve

from trio_stomp.cli._tool import CannotDo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.cluster import ClusterNames
    from trio_stomp.nats import JetStream
    from trio_stomp.store.tools import View

ANSWERS_S = 0.5
"""Time limit for the answers of all nodes, which are asked at once."""
MOVE_S = 10.0
COPY_S = 120.0
"""The same, if the new owner has to copy the state first."""
WATCHING = "watching"
"""The role of nodes without a copy of the state."""
ENGINE_S = 10.0
LOOK_S = 0.05
FOLLOWERS = "standby", "reading"
"""The roles of nodes that copy the state."""
NEVER_OWNERS = "reading", "draining"
"""Roles of nodes that take no lease."""
AHEAD = (1.0, 0.0, 2.0, 0.0)
"""Seconds that the entry to compare is ahead, for each attempt. If the log stands still, it is the
last one."""
RATE_S = 0.2

Row = dict[str, Any]


async def look(_: argparse.Namespace, names: "ClusterNames", jetstream: "JetStream") -> Row:
    """Return the nodes, and the state of the streams.

    Raises:
      NatsError: There is no such cluster, or no answer.
    """
    from trio_stomp.cluster import Layout, figures_of

    log, snapshots = await jetstream.stream(names.log), await jetstream.stream(names.snapshots)
    nodes = await _nodes(names, jetstream)
    owner = _owner_of(nodes)
    settings: Row = next((row["settings"] for row in nodes if row["node"] == owner), {})
    rows = (figures_of(row, log.last, settings) for row in nodes)
    return {
        "owner": owner,
        "partitions": Layout.of(log).partitions,
        "nodes": nodes,
        "differences": {each.node: each.differs for each in rows if each.differs},
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
        "snapshots": {"bytes": snapshots.size},
    }


async def look_at_all(
    given: argparse.Namespace, names: "ClusterNames", jetstream: "JetStream"
) -> list[Row]:
    """Return what ``look`` returns, for each partition.

    Raises:
      NatsError: There is no such cluster, or no answer.
    """
    from trio_stomp.cluster import Layout

    count = Layout.of(await jetstream.stream(names.log)).partitions
    found: dict[int, Row] = {}

    async def look_at(partition: int) -> None:
        found[partition] = await look(given, evolve(names, partition=partition), jetstream)

    async with trio.open_nursery() as tasks:
        for partition in range(count):
            tasks.start_soon(look_at, partition)
    return [found[partition] for partition in range(count)]


def sums_of(parts: list[Row]) -> Row:
    """Return the sums over all partitions, and what each node has of them."""
    nodes: dict[str, Row] = {}
    for number, part in enumerate(parts):
        for row in part["nodes"]:
            fresh = {"node": row["node"], "owns": [], "follows": [], "behind": 0, "clients": 0}
            node = nodes.setdefault(row["node"], fresh | {"reading": 0})
            node["owns"] += [number] if row["role"] == "owner" else []
            node["follows"] += [number] if row["role"] in FOLLOWERS else []
            node["behind"] += behind(row, part["log"]["last"])
            node["clients"] += row["clients"]
            node["reading"] += row["role"] in NEVER_OWNERS
            node["version"] = row["version"]
            node["problem"] = row.get("problem") or node.get("problem", "")
    return {
        "partitions": len(parts),
        "owners": [part["owner"] for part in parts],
        "nodes": [nodes[name] for name in sorted(nodes)],
        "log": {"bytes": sum(part["log"]["bytes"] for part in parts)},
        "snapshots": {"bytes": sum(part["snapshots"]["bytes"] for part in parts)},
        "differences": {key: each for part in parts for key, each in part["differences"].items()},
    }


def behind(row: Row, last: int) -> int:
    """Return how many entries of the log a node's copy lacks, if it has one."""
    return 0 if row["role"] == WATCHING else max(0, last - row["position"])


async def _nodes(names: "ClusterNames", jetstream: "JetStream") -> list[Row]:
    """Return the report of each node, by name."""
    from trio_stomp.cluster import ask_nodes

    rows = await ask_nodes(jetstream.client, names, {}, ANSWERS_S)
    for row in rows:
        row.pop("router", None)  # it has a secret of the nodes
    return rows


def _owner_of(nodes: list[Row]) -> str:
    """Return the node that owns the cluster, or ""."""
    return next((str(row["node"]) for row in nodes if row["role"] == "owner"), "")


async def hand_over(
    given: argparse.Namespace, names: "ClusterNames", jetstream: "JetStream"
) -> str:
    """Have the owner hand the cluster over, to ``given.node`` or any, and return the new owner.

    Raises:
      CannotDo: There is no such node, or none becomes the owner.
      NatsError: There is no answer.
    """
    owner, nodes = await _settled(names, jetstream, given.node)
    if given.node == owner:
        return owner
    if nodes.get(given.node, {}).get("role") in NEVER_OWNERS:
        role = nodes[given.node]["role"]
        raise CannotDo(f"node {given.node} is {role}, and takes no lease; see: cluster status")
    order = json.dumps({"do": "move", "to": given.node}).encode()
    await jetstream.client.request(names.node(owner), order)
    copies = nodes.get(given.node, {}).get("role") == WATCHING
    return await _next_owner(names, jetstream, owner, COPY_S if copies else MOVE_S)


async def drain(given: argparse.Namespace, names: "ClusterNames", jetstream: "JetStream") -> str:
    """Have a node hand all partitions over and never own any again. Return their owners.

    Raises:
      CannotDo: There is no such node, or no other that can be the owner.
      NatsError: There is no answer.
    """
    from trio_stomp.cluster import Layout

    layout = Layout.of(await jetstream.stream(names.log))
    parts = [evolve(names, partition=number) for number in range(layout.partitions)]
    owners = [await _drain(given, part, jetstream) for part in parts]
    return ", ".join(dict.fromkeys(owners))


async def _drain(given: argparse.Namespace, names: "ClusterNames", jetstream: "JetStream") -> str:
    """Have a node hand a partition over and never own it again. Return the owner.

    Raises:
      CannotDo: There is no such node, or no other that can be the owner.
      NatsError: There is no answer.
    """
    owner, nodes = await _settled(names, jetstream, given.node)
    others = [row["role"] for name, row in nodes.items() if name != given.node]
    if not any(role not in NEVER_OWNERS for role in others):
        raise CannotDo(
            f"no other node can own the cluster if {given.node} drains; see: cluster status"
        )
    await jetstream.client.request(names.node(given.node), b'{"do": "drain"}')
    return owner if owner != given.node else await _next_owner(names, jetstream, owner)


async def _owned(
    names: "ClusterNames", jetstream: "JetStream", node: str
) -> tuple[str, dict[str, Row]]:
    """Return the owner, and all nodes by name. ``node`` must be one of them, or ""."""
    nodes = {str(row["node"]): row for row in await _nodes(names, jetstream)}
    owner, answering = _owner_of(list(nodes.values())), ", ".join(nodes) or "none"
    if node and node not in nodes:
        raise CannotDo(f"there is no node {node[:80]!r}; those that answer: {answering}")
    if not owner:
        raise CannotDo(f"no node owns the cluster; those that answer: {answering}")
    return owner, nodes


async def _settled(
    names: "ClusterNames", jetstream: "JetStream", node: str
) -> tuple[str, dict[str, Row]]:
    """Wait until all nodes have read their state, or for a limited time. Return as ``_owned``."""
    owner, nodes = await _owned(names, jetstream, node)
    with trio.move_on_after(MOVE_S):
        while any(row["role"] == "reading" for row in nodes.values()):
            owner, nodes = await _owned(names, jetstream, node)
    return owner, nodes


async def _next_owner(
    names: "ClusterNames", jetstream: "JetStream", owner: str, patience_s: float = MOVE_S
) -> str:
    with trio.move_on_after(patience_s):
        while True:
            heir = _owner_of(await _nodes(names, jetstream))
            if heir not in ("", owner):
                return heir
            await trio.sleep(LOOK_S)
    raise CannotDo(f"no other node became the owner within {patience_s:g} s; see: cluster status")


async def verify(
    given: argparse.Namespace, names: "ClusterNames", jetstream: "JetStream"
) -> list[Row]:
    """Return the digest of each node's state, all after the same entry of the log.

    Raises:
      CannotDo: The nodes do not reach one entry at the same time, or do not answer.
      NatsError: There is no answer.
    """
    from trio_stomp.cluster import ask_nodes

    rows = await _nodes(names, jetstream)
    nodes = {str(row["node"]) for row in rows if row["role"] != WATCHING}
    if not nodes:
        raise CannotDo("no node of the cluster answers")
    for ahead in AHEAD:
        position = await _soon(names, jetstream, ahead)
        order = {"do": "verify", "position": position}
        found = await ask_nodes(jetstream.client, names, order, given.timeout, len(rows))
        found = [row for row in found if row["node"] in nodes]
        missing = nodes - {str(row["node"]) for row in found}
        if missing:
            raise CannotDo(
                f"no digest from {', '.join(sorted(missing))} within {given.timeout:g} s; "
                "reading a large state takes longer: --timeout"
            )
        if all(row.get("digest") or row.get("failure") for row in found):
            return found
    raise CannotDo("the nodes did not reach the same entry of the log; try again")


async def _soon(names: "ClusterNames", jetstream: "JetStream", ahead_s: float) -> int:
    """Return the number of an entry of the log that is written soon, or of the last one."""
    before = (await jetstream.stream(names.log)).last
    await trio.sleep(RATE_S)
    last = (await jetstream.stream(names.log)).last
    return last + round((last - before) * ahead_s / RATE_S)


def open_unused(target: str, stack: ExitStack) -> "View":
    """Return a view of a store that no broker uses, until the stack is closed.

    Raises:
      StoreError: There is no such store, or a broker uses it.
    """
    from trio_stomp.store.disk import DirectoryLock
    from trio_stomp.store.tools import open_view

    view = open_view(target)
    stack.callback(view.close)
    if "://" not in target:
        stack.callback(DirectoryLock(f"{target}/lock").release)
    return view


async def vacate(
    given: argparse.Namespace, names: "ClusterNames", jetstream: "JetStream"
) -> dict[str, list[str]]:
    """Move the cluster's streams away from a server of NATS. Return the servers of each.

    Raises:
      CannotDo: The cluster has no streams.
      OptionError: There is no other server that can take them.
      StoreError: Replicas are not current in time.
      NatsError: There is no answer.
    """
    from trio_stomp.cluster import vacate

    found = await vacate(jetstream, names, given.server, given.timeout)
    if not found:
        raise CannotDo(f"there is no cluster {names.cluster}")
    return {stream: list(servers) for stream, servers in found.items()}


async def move_in(given: argparse.Namespace, names: "ClusterNames", jetstream: "JetStream") -> Row:
    """Fill a new cluster from ``given.views``, and return what its partitions have together.

    Raises:
      OptionError: The cluster was used, or the servers or stores do not fit.
      StoreError: The store cannot be read, or the servers cannot store the records.
      NatsError: There is no answer.
    """
    from trio_stomp.broker import dialect
    from trio_stomp.cluster import Layout, check_unused, move_in, open_engine
    from trio_stomp.cluster.routing import Parting, Placement, parts_of

    count, colocate = given.cluster_partitions, " ".join(given.cluster_colocate.split())
    placement = Placement(count, colocate)
    views: Sequence[View] = list(given.views.values())
    if count > 1 or len(views) > 1:
        wholes = {
            name: await trio.to_thread.run_sync(Parting, view, placement, dialect(given.dialect))
            for name, view in given.views.items()
        }
        (first, *others) = wholes.values()
        views = parts_of(wholes, placement) if others else list(map(first.part, placement.all))
    layout = Layout(count, colocate) if count > 1 else Layout()
    await open_engine(jetstream.client, names, given.cluster_replicas, ENGINE_S, layout)
    parts = [evolve(names, partition=number) for number in range(count)]
    for part in parts:
        await check_unused(jetstream, part)
    found: Counter[str] = Counter()
    for part, view in zip(parts, views, strict=True):
        found.update(await move_in(jetstream, part, view, is_only=count == 1))
    return dict(found)
