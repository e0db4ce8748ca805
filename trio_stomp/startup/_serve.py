"""Composition of a broker: the only module that knows all floors."""

import gc
import logging
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial

import trio
from attrs import asdict, define, field, frozen

from trio_stomp._version import __version__
from trio_stomp.base import MemoryBudget, innermost, noop
from trio_stomp.broker import (
    SOON_S,
    Broker,
    Log,
    Recovery,
    Setup,
    WallTime,
    assemble,
    base36,
    check_none,
)
from trio_stomp.broker import dialect as find_dialect
from trio_stomp.broker.delivery import Turns
from trio_stomp.config import (
    Change,
    Settings,
    Source,
    adopt,
    options,
    own,
    policy_book,
    put,
    shown,
    toml,
)
from trio_stomp.diag import Reporter
from trio_stomp.protocol import Codecs
from trio_stomp.security import Authenticator
from trio_stomp.server import (
    Changes,
    Clock,
    Door,
    Entrance,
    EventFeed,
    FrameHandler,
    Server,
    ServerEvent,
    ServerHandle,
)
from trio_stomp.startup._entrances import Listeners, check_addresses, handle_of, open_entrances
from trio_stomp.startup._log_switch import TARGET, log_to, trace_logger
from trio_stomp.startup._security import Access, Security
from trio_stomp.startup._starting import Starting, answer_probes, check_cancelled, open_store
from trio_stomp.store import Page, Recovered, Store
from trio_stomp.web import Core, Site, add_interface, add_pages

logger = logging.getLogger("trio_stomp")

KEPT_SHARE = 0.8
"""The share of the memory for messages in queues and the stale queue."""
NAMED = 10
"""Changes that an event about them names."""
LOGGED = 50
"""Lines to log before other tasks may run."""
_SESSIONS_PER_BOOT = 1_000_000

Record = dict[str, object]
"""A setting or policy in force, with its source, for the management interface."""


@frozen(eq=False, repr=False)
class Embedding:
    """The parts of a broker that do not follow from its settings.

    Args:
      store: The store, not recovered; None = that of the settings.
      entrances: The entrances for clients; None = the settings' ports.
      on_assembled: Called with the server before it runs.
      make_core: Makes the core.
      route: Returns what frames of clients go to instead of the core.
      node: The handle of the node of a cluster that the broker is a part of; operators who have the
        broker read its files again, have the whole node do so. None = it is no part of a node.
      on_starting: Called with the share of the store that is read.
    """

    feed: EventFeed
    ssl_context: ssl.SSLContext | None
    new_session_id: Callable[[], str] | None
    store: Store | None = None
    entrances: Sequence[Entrance] | None = None
    on_assembled: Callable[[Server], None] = noop
    make_core: Callable[[Setup], Broker] = assemble
    route: Callable[[Broker], FrameHandler] | None = None
    node: ServerHandle | None = None
    on_starting: Callable[[float], None] = noop


async def serve_one(
    settings: Settings,
    listeners: Listeners | None,
    embedding: Embedding,
    task_status: trio.TaskStatus[ServerHandle],
) -> None:
    """Run a broker in this process. Arguments, errors and checkpoints as those of ``serve``."""
    async with AsyncExitStack() as unused:
        for listener in listeners or ():
            unused.push_async_callback(trio.aclose_forcefully, listener)
        for entrance in embedding.entrances or ():
            unused.push_async_callback(trio.aclose_forcefully, entrance.listener)
        security = Security(settings, embedding.ssl_context)
        await security.open()
        await check_addresses(settings, security, listeners)
        listening = _Listening(settings, security, listeners, unused, embedding.entrances)
        starting = Starting(settings.store.kind, embedding.on_starting)
        try:
            async with trio.open_nursery() as meanwhile:
                # Clients of listeners that are there wait in them, and nodes answer probes.
                if embedding.entrances is None and listeners is None:
                    door = Door(settings.server, security.proxies)
                    meanwhile.start_soon(answer_probes, starting, listening.open, security, door)
                server, handle = await _prepare(settings, security, listening, embedding, starting)
                meanwhile.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise innermost(group) from None
        handle.on_reload = partial(_reload, settings, security, server, TARGET.get())
        entrances = await listening.open()
        server.diagnostics.begin()
        server.broker.events.listener = embedding.feed.on_event
        unused.pop_all()
    try:
        await server.run(entrances, handle, lambda: task_status.started(handle))
    finally:
        if embedding.store is None:  # else a node goes on
            embedding.feed.put(ServerEvent("stop"))


@define(eq=False)
class _Listening:
    """Opens the entrances, once."""

    settings: Settings
    security: Security
    listeners: Listeners | None
    unused: AsyncExitStack
    entrances: Sequence[Entrance] | None
    _lock: trio.Lock = field(factory=trio.Lock)

    async def open(self) -> Sequence[Entrance]:
        """Return the entrances. Errors as those of ``open_entrances``."""
        async with self._lock:
            if self.entrances is None:
                self.entrances = await open_entrances(
                    self.settings, self.security, self.listeners, self.unused
                )
            return self.entrances


async def _prepare(
    settings: Settings,
    security: Security,
    listening: _Listening,
    embedding: Embedding,
    starting: Starting,
) -> tuple[Server, ServerHandle]:
    """Read the store, and assemble the broker. Errors as those of ``serve``."""
    opened = await open_store(settings, embedding.store, starting)
    if opened is not None:
        if embedding.make_core is assemble:  # which has all destinations
            check_none(opened[1].places)
        listening.unused.push_async_callback(_close, opened[0])
    handle = handle_of(await listening.open(), embedding.feed)
    server = _assemble(settings, security, handle, opened, embedding)
    server.new_session_id = embedding.new_session_id
    embedding.on_assembled(server)
    if opened is not None:
        await _restore(server, *opened, starting)
    return server, handle


async def _reload(
    settings: Settings,
    security: Security,
    server: Server,
    log: logging.Logger | None,
    reloaded: Settings | None,
) -> Changes:
    """Apply all live settings, or none if one is wrong. Return what has changed."""
    new = reloaded if reloaded is not None else own(settings)
    with log_to(log):  # the caller is not a task of the broker
        return await _use(settings, security, server, new, await security.read(new))


async def _use(
    settings: Settings, security: Security, server: Server, new: Settings, access: Access
) -> Changes:
    # With thousands of policies each step takes long, so a thread runs the pure part.
    copy = own(settings)
    changes = await trio.to_thread.run_sync(adopt, copy, new)  # raises if it cannot be applied
    book = await trio.to_thread.run_sync(policy_book, new)
    changes += await trio.to_thread.run_sync(security.changes, access)
    for number, change in enumerate(changes):
        level = logging.INFO if change.is_live else logging.WARNING
        logger.log(level, "%s%s", change, "" if change.is_live else " (takes a restart)")
        if number % LOGGED == LOGGED - 1:
            await trio.lowlevel.checkpoint()

    def apply() -> None:
        put(settings, new)
        security.use(access)
        server.memory.limit_bytes = settings.server.max_memory_bytes
        server.broker.use_policies(book)
        server.broker.events.record("config", detail=_named(changes))

    await server.reconfigure(access.accounts, access.rules, apply, access.revoked)
    return [asdict(each) for each in changes]


def _named(changes: Sequence[Change]) -> str:
    """Return the names of the first changes, for an event."""
    named = [f"[{each.group}] {each.name}".rstrip() for each in changes[:NAMED]]
    return ", ".join([*named, *([f"{len(changes) - NAMED} more"] if len(changes) > NAMED else ())])


async def _close(store: Store) -> None:
    with trio.CancelScope(shield=True):
        await trio.to_thread.run_sync(store.close)


def _assemble(
    settings: Settings,
    security: Security,
    handle: ServerHandle,
    opened: tuple[Store, Recovered] | None = None,
    embedding: Embedding | None = None,
) -> Server:
    embedding = embedding or Embedding(handle.feed, None, None)
    started = time.time()
    # In milliseconds, so that no two starts of a broker share it, or any ids.
    boot = int(started * 1000)
    dialect = find_dialect(settings.broker.dialect)
    memory = MemoryBudget(settings.server.max_memory_bytes, KEPT_SHARE)
    clock = Clock(WallTime(started - trio.current_time()))
    address = handle.addresses[0] if handle.addresses else "this address"
    is_shown = not settings.protocol.hide_server
    identity = (__version__, address) if is_shown else ("", "this address")
    site = Site(*identity, lambda: server.why_unready())
    server = Server(
        settings.server,
        codecs=Codecs(
            settings.frames,
            settings.protocol,
            memory,
            is_lenient=dialect.is_lenient,
            survives_errors=dialect.keeps_socket_after_error,
            reopens=dialect.keeps_socket_after_disconnect,
            receipts_at_commit=dialect.receipts_at_commit,
            judges_early=security.rules is not None,
        ),
        memory=memory,
        boot_number=boot * _SESSIONS_PER_BOOT,
        pages=site,
        authenticator=_authenticator(settings, security, clock.wall_s),
        tls=security.tls,
        proxies=security.proxies,
        clock=clock,
    )
    broker = embedding.make_core(_setup(settings, security, server, boot, opened))
    reporter = Reporter(settings.diag, server)
    route = None if embedding.route is None else embedding.route(broker)
    server.assemble(broker, reporter, opened[0] if opened is not None else None, route)
    add_pages(site, server, reporter.figures, settings.web, settings.store.data_dir)
    add_interface(site, server, _core(broker, settings, embedding.node or handle), reporter.figures)
    return server


def _setup(
    settings: Settings,
    security: Security,
    server: Server,
    boot: int,
    opened: tuple[Store, Recovered] | None,
) -> Setup:
    """Return what the core of a server is made of."""
    own_name = "" if settings.protocol.hide_server else f"trio_stomp/{__version__}"
    turns = Turns(trio.current_time, collect_young)
    return Setup(
        policies=settings.broker,
        memory=server.memory,
        server=server,
        boot=base36(boot),
        server_name=settings.protocol.server_name or own_name,
        book=policy_book(settings),
        dialect=find_dialect(settings.broker.dialect),
        wall=server.clock.wall,
        log=_log(settings, opened, turns),
        rules=security.rules,
        turns=turns,
        exists=server.authenticator.exists,
        is_known=server.authenticator.knows,
        warn=logger.warning,
        trace=trace_logger().info,
    )


def _core(broker: Broker, settings: Settings, handle: ServerHandle) -> Core:
    """Return the parts of the core that the management interface uses."""
    return Core(
        broker.manager,
        broker.explainer.explain,
        settings=partial(described_settings, settings),
        policies=lambda: list(described_policies(settings)),
        as_toml=toml,
        node=handle.node,
        reload=lambda: handle.reread() if handle.reread is not None else handle.reload(),
    )


def _authenticator(
    settings: Settings, security: Security, wall_s: Callable[[], float]
) -> Authenticator:
    return Authenticator(
        settings.security, security.accounts, wall_s, demands_tls=security.demands_tls
    )


async def _restore(server: Server, store: Store, recovered: Recovered, starting: Starting) -> None:
    """Restore the stored state. Checkpoint: always. Cancel: at the next page."""

    def read(place: str, level: int, after: int, size: int) -> Page:
        check_cancelled()
        starting.go_on()
        return store.read(place, level, after, size)

    recovery = Recovery(server.broker, recovered, read)
    await trio.to_thread.run_sync(recovery.run)
    for line in recovery.failures:
        logger.error("%s", line)


def _log(settings: Settings, opened: tuple[Store, Recovered] | None, turns: Turns) -> Log | None:
    if opened is None:
        return None
    store, recovered = opened
    return Log.of(store.name, recovered, turns, settings.store.checkpoint_s or SOON_S)


def described_settings(settings: Settings) -> list[Record]:
    """Return a record of each option, in the order of the settings file."""
    return [
        {
            "group": spec.group,
            "name": spec.name,
            "value": shown(getattr(getattr(settings, spec.group), spec.name)),
            "default": shown(spec.default),
            **_source(settings, spec.name),
            "live": spec.live,
            "help": spec.help,
        }
        for spec in options()
    ]


def described_policies(settings: Settings) -> Iterator[Record]:
    """Yield a record of each policy in its order, and of the defaults, whose pattern is ""."""
    for pattern, policy in settings.destinations:
        yield {"pattern": pattern, **_source(settings, pattern), "policy": asdict(policy)}
    yield {"pattern": "", **_source(settings, ""), "policy": asdict(policy_book(settings).default)}


def _source(settings: Settings, name: str) -> Record:
    """Return where a value comes from; a program may have given it without a source."""
    source = settings.sources.get(name, Source())
    return {"source": f"{source}", "kind": source.kind}


def young_generation() -> int | None:
    """Return the generation to collect up to, or None if this Python has no generations."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    if sys.implementation.name != "cpython" or (is_enabled is not None and not is_enabled()):
        return None  # each collection visits all objects
    return 1 if sys.version_info < (3, 14) else 0


def collect_young() -> None:
    """Collect young objects while they are few, unless the program collects no garbage.

    A young collection visits each container created since the one before last with all its items: a
    dict filled with 60,000 queues takes 4 to 9 ms. Survivors are old, and young collections skip
    them however large they grow. So code that is about to fill a container first calls this.
    """
    generation = young_generation()
    if generation is not None and gc.isenabled():
        gc.collect(generation)
