"""A node of a cluster with partitions: an owner or standby of each, and a router for its clients.

run_partitions
├─ a Node for each partition: its log, lease, local state and, in its times as the owner, broker
├─ the router: a server whose core sends what clients say to the owners
└─ the balance: a node that owns more partitions than others hands one over
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import chain
from typing import Any

import trio
from attrs import asdict, define, evolve, field, fields

from trio_stomp.base import ClusterFigures, OptionError, innermost, is_loopback, slices
from trio_stomp.broker import BrokerEvent, dialect
from trio_stomp.cluster import (
    ClusterNames,
    Dialer,
    Gate,
    Layout,
    Node,
    ask_nodes,
    check_alone,
    heir_of,
    open_engine,
    open_log,
)
from trio_stomp.cluster.routing import (
    MAX_PARTITIONS,
    Forwarder,
    Placement,
    Router,
    forwards_of,
    make_core,
)
from trio_stomp.config import Settings
from trio_stomp.diag import Figures, Reporter
from trio_stomp.nats import JetStream, Message, NatsClient, NatsError, open_client, parse_object
from trio_stomp.server import Changes, Entrance, EventFeed, Server, ServerEvent, ServerHandle
from trio_stomp.startup._alike import digests
from trio_stomp.startup._engine_access import nats_options
from trio_stomp.startup._entrances import Listeners, handle_of
from trio_stomp.startup._link_tls import open_link_tls
from trio_stomp.startup._node import (
    ENGINE_S,
    Host,
    check,
    log_fault,
    make_node,
    open_link,
    open_node,
)
from trio_stomp.startup._serve import Embedding, serve_one
from trio_stomp.startup.pages import Peers, answer_for_all
from trio_stomp.store._options import StoreOptions
from trio_stomp.web import Site, add_node_metrics

logger = logging.getLogger("trio_stomp")

BALANCE_S = 3.0
"""Interval at which a node compares the number of its partitions with others'."""
ANSWERS_S = 0.5
FLUSH_S = 2.0
"""Time limit for owners to read the frames of a stopping node's clients."""
MAX_EVENTS = 50
"""Maximum number of events in a message, so that it is never too large for NATS."""
OF_SESSIONS = frozenset({"connect", "disconnect"})
"""The owners report these of the sessions that clients have with them."""
_FIELDS = [each.name for each in fields(BrokerEvent)]


async def serve_partitions(
    settings: Settings,
    listeners: Listeners | None,
    embedding: Embedding,
    task_status: trio.TaskStatus[ServerHandle],
) -> None:
    """Run a node until it is stopped. Arguments, errors and checkpoints as those of ``serve_node``.

    Raises:
      OptionError: As ``serve_node``, or the settings do not allow partitions.
      StoreError: As ``serve_node``.
    """
    check(settings, listeners)
    layout = _layout(settings)
    try:
        async with AsyncExitStack() as stack:
            await _serve_layout(settings, layout, embedding, stack, task_status)
    except BaseExceptionGroup as group:
        raise innermost(group) from None


async def _serve_layout(
    settings: Settings,
    layout: Layout,
    embedding: Embedding,
    stack: AsyncExitStack,
    task_status: trio.TaskStatus[ServerHandle],
) -> None:
    options = settings.cluster
    entrances = await open_node(settings, embedding, stack)
    tls = await open_link_tls(settings)
    if tls is None:
        _warn(options.node_address)
    digested = await trio.to_thread.run_sync(digests, settings)
    placement = Placement(layout.partitions, layout.colocate)
    link, contact = await open_link(settings, layout.partitions, stack, tls)
    handle = handle_of(entrances, embedding.feed, contact.node)
    hosts = []
    for number in range(layout.partitions):
        names = ClusterNames(options.cluster_name, number)
        owner_link, owner_contact = await open_link(settings, number, stack, tls)
        ours = evolve(embedding, feed=EventFeed(), make_core=partial(make_core, placement, number))
        hosts.append(
            Host(
                settings,
                ours,
                names=names,
                entrances=[],
                link=owner_link,
                contact=owner_contact,
                handle=handle,
                digests=digested,
                tls=tls,
            )
        )
    first = hosts[0]
    first.router = str(contact)
    nats = nats_options(options, f"trio_stomp {first.contact.node}")
    async with open_client(nats, on_fault=log_fault) as client:
        jetstream = await open_engine(
            client, first.names, options.cluster_replicas, ENGINE_S, layout
        )
        await check_alone(jetstream, first.names, first.contact.node)
        logs = [
            open_log(jetstream, each.names.snapshots, each.names.snapshot_subject) for each in hosts
        ]
        nodes = [make_node(host, jetstream, log) for host, log in zip(hosts, logs, strict=True)]
        for number, host in enumerate(hosts):
            host.beside = partial(_forward, number, placement, [node.gate for node in nodes])
        entrances.append(Entrance(link, "off", contact.secret.encode(), tls))
        peers = Peers(contact, Dialer(tls).connect)
        ours = evolve(embedding, entrances=entrances, node=handle)
        events = NodeEvents(client, first.names.events, contact.node, lambda: first.server)
        front = Front(events, settings, ours, nodes, placement=placement, hosts=hosts, peers=peers)
        handle.on_reload = partial(_reload, front, hosts)
        try:
            await _run(front, jetstream, handle, task_status)
        finally:
            handle.feed.put(ServerEvent("stop"))
            for log in logs:
                log.close()


def _layout(settings: Settings) -> Layout:
    """Return the layout that settings name.

    Raises:
      OptionError: They cannot be used with partitions.
    """
    options, chosen = settings.cluster, dialect(settings.broker.dialect)
    if options.cluster_partitions > MAX_PARTITIONS:
        raise OptionError(
            f"cluster_partitions is {options.cluster_partitions}, but must be {MAX_PARTITIONS} at"
            " most"
        )
    if chosen.keeps_socket_after_error or chosen.keeps_socket_after_disconnect:
        raise OptionError(
            f"the dialect {chosen.word} keeps connections after an ERROR, which a cluster with"
            " partitions cannot do: choose another dialect, or cluster_partitions = 1"
        )
    return Layout(options.cluster_partitions, " ".join(options.cluster_colocate.split()))


async def _forward(
    partition: int, placement: Placement, gates: Sequence[Gate], server: Server
) -> None:
    """Send on what the broker of a partition stores for others, until it is cancelled."""
    forwards, call_soon = forwards_of(server.broker), server.dispatcher.call_soon
    assert forwards is not None
    await Forwarder(partition, placement, gates, forwards, call_soon).run()


def _warn(address: str) -> None:
    """Warn if others can read the messages that nodes relay."""
    host = address.rpartition(":")[0].strip("[]")
    if not is_loopback(host):
        logger.warning(
            "clients' frames pass from %s to other nodes in the clear: keep the network between "
            "nodes private, or give all nodes certificates (tls_cert) and their authority "
            "(node_ca)",
            host,
        )


@define(eq=False, repr=False)
class NodeEvents:
    """Sends the events of this node to the owner of the first partition, and receives others'.

    They are those that only the nodes see, such as failed logins. A node's router has no
    subscribers: theirs are at the owners of partitions. So it sends its events to the owner of the
    first partition, which publishes and stores them with its own.

    Args:
      client: A running client of the cluster's servers.
      subject: The subject of the cluster's events.
      node: The id of this node.
      owner: Returns the server of the first partition if this node owns it.
    """

    client: NatsClient
    subject: bytes
    node: str
    owner: Callable[[], Server | None]

    def tell(self, events: Sequence[BrokerEvent]) -> None:
        """Send events. Without a server of NATS they are lost, except in this node's log."""
        ours = [self._named(each) for each in events if each.name not in OF_SESSIONS]
        for part in slices(ours, MAX_EVENTS):
            try:
                self.client.publish(self.subject, json.dumps({"events": part}).encode())
            except NatsError:
                return

    def _named(self, event: BrokerEvent) -> dict[str, Any]:
        detail = f"{event.detail}; node {self.node}" if event.detail else f"node {self.node}"
        return asdict(evolve(event, detail=detail))

    async def receive(self) -> None:
        """Receive events of all nodes until cancelled."""
        subscription = self.client.subscribe(self.subject, self._take)
        try:
            await trio.sleep_forever()
        finally:
            self.client.unsubscribe(subscription)

    def _take(self, messages: list[Message]) -> None:
        server = self.owner()
        if server is not None:
            events = [event for each in messages for event in parse_events(each.payload)]
            server.dispatcher.call_soon(partial(_add, server, events))


def parse_events(payload: bytes) -> list[BrokerEvent]:
    """Return the events in a message of a node of any version, or none if it is not valid."""
    try:
        found = parse_object(payload).get("events")
    except NatsError:
        return []
    each = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return [BrokerEvent(*[str(one.get(name, "")) for name in _FIELDS]) for one in each]


def _add(server: Server, events: Sequence[BrokerEvent], _now: float) -> None:
    for each in events:
        server.broker.events.add(each)


@define(eq=False, repr=False)
class Front:
    """The router of a node, and its server.

    Args:
      events: The events of all nodes.
      settings: The settings of the node.
      embedding: The router's server, with the entrances for clients.
      nodes: Those of the partitions, in order.
      placement: The partition of each destination.
      hosts: Their hosts.
      peers: The routers of all nodes.
    """

    events: NodeEvents
    settings: Settings
    embedding: Embedding
    nodes: list[Node]
    placement: Placement
    hosts: Sequence[Host]
    peers: Peers
    handle: ServerHandle = field(init=False)

    async def serve(self, tasks: trio.Nursery, started: trio.TaskStatus[ServerHandle]) -> None:
        """Serve clients until the handle is stopped.

        Args:
          tasks: Runs connections to owners.
          started: Gets the handle.
        """
        gates: list[Gate] = [node.gate for node in self.nodes]

        def join(server: Server) -> None:
            server.cluster = self
            assert isinstance(server.pages, Site)
            add_node_metrics(server.pages, server, _figures(server), self.settings.web, self._owned)
            answer_for_all(
                server.pages,
                self.placement,
                gates,
                self.peers,
                max_body_bytes=self.settings.frames.max_body_bytes,
                wildcards=server.broker.dialect.wildcards,
            )
            router = server.dispatcher.core
            assert isinstance(router, Router)
            router.owners.join(server.dispatcher, tasks.start_soon)

        embedding = evolve(
            self.embedding,
            on_assembled=join,
            route=lambda broker: Router(broker, self.placement, gates, self.events.tell),
        )
        await serve_one(front_settings(self.settings), None, embedding, started)

    def _owned(self) -> dict[int, tuple[Server, Figures]]:
        """Return the brokers of the partitions that this node owns."""
        servers = {number: host.server for number, host in enumerate(self.hosts)}
        return {
            number: (each, _figures(each)) for number, each in servers.items() if each is not None
        }

    def doubts(self) -> str:
        """Implement ``Cluster.doubts``."""
        if any(node.gate.is_draining for node in self.nodes):
            return "this node is being drained"
        for node in self.nodes:
            if problem := node.gate.why_silent():
                return problem
        lacking = [str(number) for number, node in enumerate(self.nodes) if node.gate.owner is None]
        if lacking:
            return f"partitions without an owner at the moment: {', '.join(lacking)}"
        return next(filter(None, (node.gate.why_unready() for node in self.nodes)), "")

    def figures(self) -> ClusterFigures:
        """Implement ``Cluster.figures``: the sums of what this node owns."""
        each = [node.figures() for node in self.nodes]
        return ClusterFigures(
            each[0].name,
            epoch=max(one.epoch for one in each),
            appends=sum(one.appends for one in each),
            records=sum(one.records for one in each),
            append_s=sum(one.append_s for one in each),
            nodes=next((one.nodes for one in each if one.nodes), ()),
        )


def _figures(server: Server) -> Figures:
    assert isinstance(server.diagnostics, Reporter)
    return server.diagnostics.figures


def front_settings(settings: Settings) -> Settings:
    """Return the settings of the router, which has neither a store nor statistics."""
    return evolve(
        settings,
        store=StoreOptions(),
        diag=evolve(settings.diag, diag_interval_s=0.0),
        broker=evolve(settings.broker, monitor_interval_s=0.0),
    )


async def _reload(front: Front, hosts: list[Host], settings: Settings | None) -> Changes:
    """Implement ``ServerHandle.reload`` for the router and all partitions."""
    found = [await front.handle.reload(None if settings is None else front_settings(settings))]
    found += [await host.reload(settings) for host in hosts]
    changes: list[Mapping[str, object]] = []
    for each in chain.from_iterable(found):
        if each not in changes:  # several have changed the same
            changes.append(each)
    return changes


async def _run(
    front: Front,
    jetstream: JetStream,
    handle: ServerHandle,
    task_status: trio.TaskStatus[ServerHandle],
) -> None:
    """Run all parts until the node is stopped: first the router ends, then the partitions."""
    balancing = trio.CancelScope()
    async with trio.open_nursery() as partitions:
        for node in front.nodes:
            partitions.start_soon(node.run)
        async with trio.open_nursery() as tasks:
            async with trio.open_nursery() as serving:
                front.handle = await serving.start(_serve, front, tasks)
                handle.on_connect = lambda stream: front.handle.on_connect(stream)
                tasks.start_soon(_beside, front, jetstream, balancing)
                task_status.started(handle)
                await handle.wait_stopping()
                front.handle.stop(handle.grace_s)
            # Owners still get what clients sent before.
            tasks.cancel_scope.deadline = trio.current_time() + FLUSH_S
            balancing.cancel()
        for node in front.nodes:
            node.stop()


async def _serve(
    front: Front,
    tasks: trio.Nursery,
    task_status: trio.TaskStatus[ServerHandle] = trio.TASK_STATUS_IGNORED,
) -> None:
    await front.serve(tasks, task_status)


async def _beside(front: Front, jetstream: JetStream, scope: trio.CancelScope) -> None:
    """Balance partitions, watch for other nodes and their events, until the scope is cancelled."""
    with scope:
        async with trio.open_nursery() as tasks:
            tasks.start_soon(_balance, front.nodes, jetstream)
            tasks.start_soon(front.peers.watch, jetstream, front.nodes[0].names)
            tasks.start_soon(front.events.receive)


async def _balance(nodes: list[Node], jetstream: JetStream) -> None:
    """Hand partitions over while another node owns fewer."""
    while True:
        await trio.sleep(BALANCE_S)
        owned = [node for node in nodes if node.is_owner]
        if owned and all(node.owner for node in nodes):
            await _hand_over(owned[-1], [node.owner for node in nodes], jetstream)


async def _hand_over(node: Node, owners: list[str], jetstream: JetStream) -> None:
    """Hand a partition over if another node owns fewer."""
    try:
        reports = await ask_nodes(jetstream.client, node.names, {}, ANSWERS_S)
    except NatsError:
        return
    heir = heir_of(node.contact.node, owners, reports)
    if heir not in ("", node.awaited_heir):
        logger.info("partition %d goes to %s, which owns fewer", node.names.partition, heir)
        node.move(heir)
