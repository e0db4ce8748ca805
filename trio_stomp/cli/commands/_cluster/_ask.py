"""Questions and orders to the nodes of a cluster, over the servers of NATS."""

import argparse
import json
import secrets
from typing import TYPE_CHECKING, Any

import trio

from trio_stomp.cli._tool import CannotDo

if TYPE_CHECKING:
    from trio_stomp.cluster import ClusterNames
    from trio_stomp.nats import JetStream, Message

ANSWERS_S = 0.5
"""How long nodes may take to answer; all of them are asked at once."""
MOVE_S = 10.0
LOOK_S = 0.05

Row = dict[str, Any]


async def look(_: argparse.Namespace, names: "ClusterNames", jetstream: "JetStream") -> Row:
    """Return the nodes, and the state of the streams.

    Raises:
      NatsError: There is no such cluster, or no answer.
    """
    log, kept = await jetstream.stream(names.log), await jetstream.stream(names.snapshots)
    nodes = await _nodes(names, jetstream)
    return {
        "owner": _owner_of(nodes),
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

    inbox = b"_INBOX." + secrets.token_hex(11).encode()
    subscription = jetstream.client.subscribe(inbox, take)
    jetstream.client.publish(names.nodes, b"{}", reply=inbox)
    await trio.sleep(ANSWERS_S)
    jetstream.client.unsubscribe(subscription)
    return [found[name] for name in sorted(found)]


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
    nodes = await _nodes(names, jetstream)
    owner = _owner_of(nodes)
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
            heir = _owner_of(await _nodes(names, jetstream))
            if heir not in ("", owner):
                return heir
            await trio.sleep(LOOK_S)
    raise CannotDo(f"no other node became the owner within {MOVE_S:g} s; see: cluster status")
