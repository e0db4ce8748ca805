"""A broker as a node of a cluster: the owner serves clients, the others relay them to it."""

import logging
import secrets
import shutil
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import trio
from attrs import asdict, define, evolve, field, frozen

from trio_stomp._version import __version__
from trio_stomp.base import ClusterFigures, OptionError, innermost
from trio_stomp.cluster import (
    ClusterNames,
    CommitLog,
    Contact,
    Dialer,
    Followers,
    Gate,
    LeaseOptions,
    LocalState,
    Newest,
    Node,
    ReplicatedStore,
    check_alone,
    lease_of,
    lease_time,
    newest,
    open_engine,
    open_log,
)
from trio_stomp.config import Settings, adopt, own, put
from trio_stomp.nats import JetStream, open_client
from trio_stomp.server import (
    Changes,
    Door,
    Entrance,
    InnerServer,
    Server,
    ServerEvent,
    ServerHandle,
    accept_from,
)
from trio_stomp.startup._alike import digests
from trio_stomp.startup._engine_access import nats_options
from trio_stomp.startup._entrances import Listeners, check_addresses, handle_of, open_entrances
from trio_stomp.startup._link_tls import open_link_tls
from trio_stomp.startup._security import Security
from trio_stomp.startup._serve import Embedding, serve_one
from trio_stomp.startup._starting import Starting
from trio_stomp.store import JournalStore, StoreError
from trio_stomp.store._options import JOURNAL
from trio_stomp.store.disk import OsFiles
from trio_stomp.store.tools import open_view
from trio_stomp.transport import LinkTls, ProxyNetworks

logger = logging.getLogger("trio_stomp")

ENGINE_S = 15.0
"""Maximum time for the NATS servers to answer at the start of a node."""
DOUBT_S = 2.0
"""Silence of the log after which the node reports itself as not ready to load balancers."""
PATIENCE_S = 5.0
"""Maximum time that a stopping node waits for the log to store its last records."""
GRACE_S = 0.2
"""Time for connections to end before another node takes over their clients."""
KEPT_ASIDE = 2
"""Local states that did not fit the log, and are kept for the operator."""
REFUSE = "refuse"
"""The value of ``on_engine_loss`` with which clients get an ERROR instead of waiting."""
RENEWALS = 4
"""The same, in times of the lease."""


async def serve_node(
    settings: Settings,
    listeners: Listeners | None,
    embedding: Embedding,
    task_status: trio.TaskStatus[ServerHandle],
) -> None:
    """Run a node until it is stopped. Arguments and checkpoints as those of ``serve``.

    Raises:
      OptionError: The settings, the servers of NATS or their streams are not fit for a cluster.
      StoreError: The servers of NATS do not answer, or the local state cannot be used.
    """
    check(settings, listeners)
    try:
        async with AsyncExitStack() as stack:
            host = await _open_host(settings, embedding, stack)
            await _run(host, task_status)
    except BaseExceptionGroup as group:
        raise innermost(group) from None


def check(settings: Settings, listeners: Listeners | None) -> None:
    if listeners is not None:
        raise OptionError("a node of a cluster listens at its own port: give no listeners")
    if settings.store.kind != JOURNAL:
        raise OptionError(
            "a node of a cluster keeps its local state in a directory: give --data-dir DIRECTORY"
        )
    if (Path(settings.store.data_dir) / "journal").exists():
        raise OptionError(
            f"{settings.store.data_dir} has the messages of a broker that was alone, which a "
            "cluster does not read: give the node another --data-dir. To bring them into a new "
            "cluster: trio-stomp cluster import"
        )


@define(eq=False, repr=False)
class Host:
    """The process of a node: its ports, and the broker while the node is the owner.

    Args:
      entrances: Open for the life of the process. The code that serves them gets copies.
      link: The entrance to which other nodes relay clients.
      contact: Its address, for other nodes. The node has the secret of each term.
      handle: The handle of the node.
      digests: The digests of the configuration that all nodes share.
      beside: What runs beside the broker; None = nothing.
      router: The address and secret of the node's router, for other nodes, or "".
      tls: The TLS between nodes; None = they use none.
      server: The broker, while it serves.
    """

    settings: Settings
    embedding: Embedding
    names: ClusterNames
    entrances: list[Entrance]
    link: trio.SocketListener
    contact: Contact
    handle: ServerHandle
    digests: Mapping[str, str]
    beside: Callable[[Server], Awaitable[None]] | None = None
    router: str = ""
    tls: LinkTls | None = None
    server: Server | None = None
    door: Door = field(init=False)
    _serving: ServerHandle | None = None
    _must_stop: bool = False

    def __attrs_post_init__(self) -> None:
        proxies = ProxyNetworks.parse(self.settings.transport.proxy_addresses)
        self.door = Door(self.settings.server, proxies)

    async def accept(self, gate: Gate, clients: trio.Nursery) -> None:
        """Pass clients to the gate of a standby, until cancelled."""
        async with trio.open_nursery() as tasks:
            for each in self.entrances:
                serve = partial(self.door.let_in, gate.serve, each.tls, b"", None)
                tasks.start_soon(accept_from, _copy(each.listener), serve, clients)

    async def serve(self, node: Node, store: ReplicatedStore) -> None:
        """Run the broker of the cluster. Errors and checkpoints as those of ``serve``."""

        def guard(server: Server) -> None:
            self.server = server
            server.broker.queues.may_hand_out = lambda: node.is_owner
            owned = server.cluster = _Owned(node, store)
            if self.settings.cluster.on_engine_loss == REFUSE and server.committer is not None:
                server.committer.is_silent = lambda: bool(owned.doubts())

        entrances = [Entrance(_copy(each.listener), each.tls) for each in self.entrances]
        secret = node.contact.secret.encode()  # of this term
        entrances.append(Entrance(_copy(self.link), "off", secret, self.tls))
        embedding = evolve(
            self.embedding, store=store, entrances=entrances, on_assembled=guard, node=self.handle
        )
        inside: InnerServer | None = None
        try:
            async with trio.open_nursery() as others:
                async with trio.open_nursery() as tasks:
                    self._serving = await tasks.start(serve_one, self.settings, None, embedding)
                    if self._must_stop:
                        self._serving.stop(GRACE_S)
                    elif self.server is not None:
                        inside = InnerServer(self.server)
                        node.gate.settle(inside)
                        if self.beside is not None:
                            others.start_soon(self.beside, self.server)
                others.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise innermost(group) from None
        finally:
            node.gate.settle(None)
            if inside is not None:
                inside.ended.set()
            self._serving = self.server = None
            self._must_stop = False

    def stop_serving(self) -> None:
        """Stop the broker in order, as soon as it runs, because other nodes wait to take over."""
        self._must_stop = True
        if self._serving is not None:
            self._serving.stop(GRACE_S)

    def wake(self) -> None:
        """Make the broker hand out messages again, if it waited for the lease."""
        if self.server is not None:
            self.server.inbox.wake()

    async def reload(self, settings: Settings | None) -> Changes:
        """Implement ``ServerHandle.reload``."""
        changes: Changes = ()
        if self._serving is not None:
            changes = await self._serving.reload(settings)
        else:
            new = settings if settings is not None else own(self.settings)
            await Security(new, self.embedding.ssl_context).open()
            # Raises if it cannot be applied.
            changes = [asdict(each) for each in adopt(own(self.settings), new)]
            put(self.settings, new)
        if self.tls is not None:
            await trio.to_thread.run_sync(self.tls.reload)
        self.digests = await trio.to_thread.run_sync(digests, self.settings)
        return changes


def _copy(listener: trio.abc.Listener[trio.abc.Stream]) -> trio.SocketListener:
    assert isinstance(listener, trio.SocketListener)
    return trio.SocketListener(listener.socket.dup())


@frozen
class _Owned:
    """Implements ``Cluster`` for the broker that owns it."""

    node: Node
    store: ReplicatedStore

    def doubts(self) -> str:
        if time.monotonic() < self.store.doubtful_since + DOUBT_S:
            return self.node.gate.why_silent()  # an idle owner has nothing to store
        return "the log of the cluster does not answer, so nothing can be stored"

    def figures(self) -> ClusterFigures:
        return self.node.figures()


async def _open_host(settings: Settings, embedding: Embedding, stack: AsyncExitStack) -> Host:
    """Open the ports of a node."""
    names = ClusterNames(settings.cluster.cluster_name)
    entrances = await open_node(settings, embedding, stack)
    tls = await open_link_tls(settings)
    link, contact = await open_link(settings, 0, stack, tls)
    handle = handle_of(entrances, embedding.feed, contact.node)
    return Host(
        settings,
        embedding,
        names=names,
        entrances=entrances,
        link=link,
        contact=contact,
        handle=handle,
        digests=await trio.to_thread.run_sync(digests, settings),
        tls=tls,
    )


async def open_node(
    settings: Settings, embedding: Embedding, stack: AsyncExitStack
) -> list[Entrance]:
    """Check the settings of a node, and open its ports for clients.

    Raises:
      OptionError: a security file is wrong, or listening there is not safe.
      OSError: listening on the address failed.
    """
    security = Security(settings, embedding.ssl_context)
    await security.open()
    await check_addresses(settings, security, None)
    return await open_entrances(settings, security, None, stack)


async def open_link(
    settings: Settings, offset: int, stack: AsyncExitStack, tls: LinkTls | None
) -> tuple[trio.SocketListener, Contact]:
    """Open a port for other nodes: that of the settings for the first partition, and so on.

    Raises:
      OptionError: the name of the node is not valid.
      OSError: listening on the address failed.
    """
    node = settings.cluster.node or socket.gethostname().partition(".")[0]
    ClusterNames(settings.cluster.cluster_name).node(node)  # raises if it is not a valid name
    host, _, port = settings.cluster.node_address.rpartition(":")
    host, number = host.strip("[]"), int(port) + offset if int(port) else 0
    link, *others = await trio.open_tcp_listeners(number, host=host)
    for each in (link, *others):
        stack.push_async_callback(trio.aclose_forcefully, each)
    port = link.socket.getsockname()[1]
    secret = secrets.token_hex(16)
    return link, Contact(node, host, port, secret, is_encrypted=tls is not None)


async def _run(host: Host, task_status: trio.TaskStatus[ServerHandle]) -> None:
    """Run the node of a process until it is stopped."""
    options = host.settings.cluster
    nats = nats_options(options, f"trio_stomp {host.contact.node}")
    async with open_client(nats, on_fault=log_fault) as client:
        jetstream = await open_engine(client, host.names, options.cluster_replicas, ENGINE_S)
        await check_alone(jetstream, host.names, host.contact.node)
        names = host.names
        snapshots = open_log(jetstream, names.snapshots, names.snapshot_subject)
        node = make_node(host, jetstream, snapshots)
        host.handle.on_reload = host.reload
        async with trio.open_nursery() as tasks:
            tasks.start_soon(_stop, host.handle, node)
            task_status.started(host.handle)
            try:
                await node.run()
            finally:
                host.handle.feed.put(ServerEvent("stop"))
            tasks.cancel_scope.cancel()
        snapshots.close()


def make_node(host: Host, jetstream: JetStream, snapshots: CommitLog) -> Node:
    """Return the node of a host.

    Args:
      host: The host.
      jetstream: With the streams of the cluster.
      snapshots: The stream of snapshots, which the caller closes.
    """
    options, server = host.settings.cluster, host.settings.server
    lease_options = LeaseOptions(options.lease_s, options.lease_s / RENEWALS)
    names, path = host.names, _local_path(host.settings, host.names)
    lease = lease_of(host.contact.node, lease_options, names.partition)
    silent_s = options.lease_s + DOUBT_S
    log = open_log(jetstream, names.log, names.log_subject)
    local = local_state(host.settings, path, partial(newest, snapshots), log)
    node = Node(
        jetstream,
        names=names,
        contact=host.contact,
        local=local,
        take_view=lambda: open_view(str(path)),
        gate=Gate(
            server.connect_timeout_s,
            is_silent=lambda: lease.silence(lease_time()) > silent_s,
            is_reading=lambda: node.is_reading,
            contact=host.contact,
            dialer=Dialer(host.tls),
        ),
        accept=host.accept,
        serve=lambda store: host.serve(node, store),
        stop_serving=host.stop_serving,
        address=", ".join((*host.handle.addresses, *host.handle.tls_addresses)),
        version=__version__,
        progress=Starting(JOURNAL, host.embedding.on_starting).report,
        lease=lease,
        on_renewed=host.wake,
        stop_s=server.drain_s + GRACE_S + PATIENCE_S,
        settings=lambda: host.digests,
        router=host.router,
        followers=Followers(names.partition, options.cluster_followers),
    )
    return node


async def _stop(handle: ServerHandle, node: Node) -> None:
    await handle.wait_stopping()
    node.stop()


def log_fault(fault: str) -> None:
    logger.warning("NATS: %s", fault)


def _local_path(settings: Settings, names: ClusterNames) -> Path:
    several = settings.cluster.cluster_partitions > 1
    suffix = f".{names.partition:02}" if several else ""  # no name of a cluster has a dot
    return Path(settings.store.data_dir) / f"cluster-{names.cluster}{suffix}"


def local_state(settings: Settings, path: Path, newest: Newest, log: CommitLog) -> LocalState:
    """Return the local state in a directory. Arguments as those of ``LocalState``."""
    return LocalState(
        partial(_open_local, settings, path),
        newest,
        log,
        where=str(path),
        remove=partial(_remove_local, path),
        set_aside=partial(_set_aside, path),
    )


def _open_local(settings: Settings, path: Path, is_new: bool) -> JournalStore:
    if is_new:
        _remove_local(path)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return JournalStore(str(path), options=settings.journal, follows=True)


def _remove_local(path: Path) -> None:
    """Remove a local store, if there is one. Killed at any moment, this leaves all of it or none.

    Raises:
      StoreError: It cannot be removed.
    """
    gone = path.with_name(f"{path.name}.removed")
    try:
        with suppress(FileNotFoundError):
            shutil.rmtree(gone)  # what an earlier process left
        with suppress(FileNotFoundError):
            path.rename(gone)
            OsFiles().sync_directory(str(path.parent))  # before any file in it is gone
            shutil.rmtree(gone)
    except OSError as error:
        raise StoreError(f"{path} cannot be removed: {error}") from error


def _set_aside(path: Path) -> str:
    """Rename a local store, and return its new place. The last two that were renamed are kept.

    Raises:
      StoreError: It cannot be renamed.
    """
    prefix = "aside-"  # not a suffix, so that a pattern for the stores of all partitions skips it

    def number(path: Path) -> int:
        return int(path.name.removeprefix(prefix).partition(".")[0])

    try:
        former = sorted(path.parent.glob(f"{prefix}*.{path.name}"), key=number)
        aside = path.with_name(f"{prefix}{number(former[-1]) + 1 if former else 1}.{path.name}")
        path.rename(aside)
        OsFiles().sync_directory(str(path.parent))
        for each in former[: 1 - KEPT_ASIDE]:
            shutil.rmtree(each)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be renamed: {error}") from error
    return str(aside)
