"""Questions and orders that nodes answer over the servers of NATS."""

import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio
from attrs import asdict, define, field, frozen

from trio_stomp.base import NodeFigures, OptionError
from trio_stomp.cluster._engine import ClusterNames
from trio_stomp.nats import (
    Disconnected,
    JetStream,
    Message,
    NatsClient,
    NatsError,
    NoAnswer,
    NoResponders,
    parse_object,
)

logger = logging.getLogger("trio_stomp")

ANSWERS_S = 0.5
"""How long nodes may take to answer; all of them are asked at once."""
RETRY_S = 0.2
READING, STANDBY, OWNER, DRAINING = "reading", "standby", "owner", "draining"
WATCHING = "watching"


@frozen
class Report:
    """A node's report on itself.

    Args:
      role: ``owner``; ``standby`` (it follows the log); ``watching`` (it does not, and takes the
        lease only if no follower is alive); ``reading`` (a standby that is not up to date and takes
        no lease); or ``draining`` (one that takes no lease until it is started again).
      position: The sequence of the last entry of the log that it has applied.
      clients: The number of clients that it relays.
      settings: Digests of the files and options that must be the same on all nodes.
      router: The address and secret of its router, for other nodes, or "" without partitions.
      problem: Why it cannot reach the owner, or "".
    """

    node: str
    role: str
    address: str
    position: int
    clients: int
    version: str
    settings: Mapping[str, str] = field(factory=dict)
    router: str = field(default="", repr=False)
    problem: str = ""


@frozen
class Digest:
    """A digest of a node's state.

    Args:
      position: The sequence of the entry of the log after which the digest was made.
      digest: Equal for equal states; "" = the node has applied later entries already.
      records: The number of settings, messages and streams in the state.
      failure: The reason why the state cannot be read, or "".
    """

    node: str
    position: int
    digest: str = ""
    records: int = 0
    failure: str = ""


@define(eq=False, repr=False)
class Orders:
    """Answers questions on a node, and passes orders on to it.

    Args:
      report: Returns the node's report.
      move: Hands the cluster over to a node, or with "" to any, if this node is the owner.
      drain: Hands it over, and keeps the node from becoming the owner again.
      take_digest: Returns the digest of the state at an entry, after waiting for the entry.
    """

    client: NatsClient
    report: Callable[[], Report]
    move: Callable[[str], None]
    drain: Callable[[], None]
    take_digest: Callable[[int], Awaitable[Digest]]
    _tasks: trio.Nursery = field(init=False)
    _is_verifying: bool = False
    """A digest is being made. There is one at a time; further orders get no answer."""

    async def answer(self, subjects: Sequence[bytes]) -> None:
        """Answer the messages on subjects until cancelled."""
        async with trio.open_nursery() as self._tasks:
            subscriptions = [self.client.subscribe(each, self._take) for each in subjects]
            try:
                await trio.sleep_forever()
            finally:
                for each in subscriptions:
                    self.client.unsubscribe(each)

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            order = _fields(message.payload)
            do = order.get("do")
            if do == "verify":
                if not self._is_verifying:
                    self._is_verifying = True
                    self._tasks.start_soon(self._verify, message.reply, order.get("position"))
                continue
            if do == "move":
                self.move(str(order.get("to", "")))
            elif do == "drain":
                self.drain()
            self._reply(message.reply, self.report())

    async def _verify(self, reply: bytes, position: object) -> None:
        if isinstance(position, int):
            self._reply(reply, await self.take_digest(position))
        self._is_verifying = False

    def _reply(self, reply: bytes, answer: Report | Digest) -> None:
        if reply:
            try:
                self.client.publish(reply, json.dumps(asdict(answer)).encode())
            except NatsError as error:
                logger.warning("a question could not be answered: %s", error)


async def ask_nodes(
    client: NatsClient,
    names: ClusterNames,
    order: Mapping[str, object],
    patience_s: float,
    count: int = 0,
) -> list[dict[str, object]]:
    """Ask all nodes of a cluster, and return their answers, ordered by their ids.

    Args:
      client: A running client of the cluster's servers.
      names: The names of the cluster.
      order: ``{}``, or an order with its name in the field ``do``.
      patience_s: Maximum time to wait for answers.
      count: The number of answers after which to stop waiting; 0 = wait for all that come.

    Raises:
      NatsError: There is no connection.
    """
    found: dict[str, dict[str, object]] = {}
    is_complete = trio.Event()

    def take(messages: list[Message]) -> None:
        for message in messages:
            fields = _fields(message.payload)
            if fields:
                found[str(fields.get("node"))] = dict(fields)
        if len(found) == count:
            is_complete.set()

    inbox = b"_INBOX." + secrets.token_hex(11).encode()
    subscription = client.subscribe(inbox, take)
    try:
        client.publish(names.nodes, json.dumps(order).encode(), reply=inbox)
        with trio.move_on_after(patience_s):
            await is_complete.wait()
    finally:
        client.unsubscribe(subscription)
    return [found[name] for name in sorted(found)]


def figures_of(report: Mapping[str, object], last: int, settings: Mapping[str, str]) -> NodeFigures:
    """Return a node's figures from its answer.

    Args:
      report: The answer of a node of any version.
      last: The sequence of the last entry of the log.
      settings: The digests of the owner's settings.
    """
    position, clients, theirs = (report.get(name) for name in ("position", "clients", "settings"))
    has_copy = report.get("role") != WATCHING
    its = theirs if isinstance(theirs, dict) else {}
    return NodeFigures(
        str(report.get("node")),
        role=str(report.get("role")),
        address=str(report.get("address")),
        version=str(report.get("version")),
        behind=max(0, last - position) if isinstance(position, int) and has_copy else 0,
        clients=clients if isinstance(clients, int) else 0,
        differs=[name for name, digest in settings.items() if its.get(name, digest) != digest],
    )


def heir_of(node: str, owners: Sequence[str], reports: Sequence[Mapping[str, object]]) -> str:
    """Return the node to which another should hand a partition over, or "".

    Args:
      node: The node that owns the partition.
      owners: The owner of each partition.
      reports: The reports of all nodes on this partition.
    """
    fit = [each for role in (STANDBY, WATCHING) for each in reports if each.get("role") == role]
    heir = min((str(each.get("node")) for each in fit), key=owners.count, default=node)
    return heir if owners.count(heir) + 1 < owners.count(node) else ""


async def check_alone(jetstream: JetStream, names: ClusterNames, node: str) -> None:
    """Check that no other process uses the id of a node.

    Raises:
      OptionError: Another process answers to the id.
    """
    while True:
        await jetstream.client.wait_until_connected()
        try:
            answer = await jetstream.client.request(names.node(node), b"{}")
        except (NoResponders, NoAnswer):
            return
        except Disconnected:
            await trio.sleep(RETRY_S)
        else:
            break
    other = _fields(answer.payload)
    raise OptionError(
        f"node {node!r} runs already, for clients of {other.get('address')}: each node of a "
        "cluster needs an id of its own (option node)"
    )


def _fields(payload: bytes) -> Mapping[str, object]:
    try:
        return parse_object(payload)
    except NatsError:
        return {}
