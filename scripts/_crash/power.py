"""Brokers that are started on data directories as power cuts leave them, and checked.

A broker is started in this process (for some states, in its own process), and all its contents are
read: queues are browsed, streams read from offset 0 to their end. Messages with a RECEIPT must be
there, in order; a transaction must be there as a whole or not at all; nothing else may be there.
"""

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import takewhile, zip_longest
from pathlib import Path

import trio
from attrs import evolve

from _crash.broker import ROOT, Broker
from _crash.link import Gone, Link, Reply
from _crash.ports import free_port

sys.path.insert(0, str(ROOT))

from _oracle.power import QUEUES, STREAMS, State, broken_promises, states, write_state
from _oracle.power_sqlite import NAME, sqlite_states

from trio_stomp import Settings, serve
from trio_stomp.broker import DestinationPolicy

PROCESS_EVERY = 20
"""One state in this number is checked by a broker in its own process."""
PATIENCE_S = 30.0

Found = tuple[dict[str, list[bytes]], dict[str, list[bytes]]]


def all_states(seed: int, count: int) -> Iterator[tuple[str, State]]:
    """Yield states of each store in turn, with the store's name."""
    pairs = zip_longest(states(seed, count - count // 2), sqlite_states(seed, count // 2))
    for journal, sqlite in pairs:
        if journal is not None:
            yield "journal", journal
        if sqlite is not None:
            yield "sqlite", sqlite


def judge(store: str, state: State, *, in_process: bool = True) -> list[str]:
    """Start a broker on a state. Return the broken promises, one line each."""
    directory = tempfile.mkdtemp(prefix="power-")
    try:
        data = os.path.join(directory, "data")
        os.mkdir(data)
        write_state(data, state)
        options = {"data_dir": data}
        if store == "sqlite":
            options = {"store_url": f"sqlite:///{data}/{NAME}"}
        try:
            found = (_inside if in_process else _apart)(options, Path(directory))
        except Exception as error:  # whatever it is: a broker must start on any state
            return [f"the broker did not start, or not answer: {error!r}"]
        return broken_promises(state, *found)
    finally:
        shutil.rmtree(directory)


def _inside(options: dict[str, str], _directory: Path) -> Found:
    return trio.run(_served, options)


async def _served(options: dict[str, str]) -> Found:
    settings = evolve(
        Settings.of(port=0, diag_interval_s=0.0, **options),
        destinations=tuple((topic, DestinationPolicy(stream=True)) for topic in STREAMS),
    )
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            handle = await nursery.start(partial(serve, settings))
            port = handle.addresses[0].rpartition(":")[2]
            found = await trio.to_thread.run_sync(read_all, int(port))
            nursery.cancel_scope.cancel()
    return found


def _apart(options: dict[str, str], directory: Path) -> Found:
    policies = directory / "policies.toml"
    policies.write_text("".join(f'["{topic}"]\nstream = true\n' for topic in STREAMS))
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    words.append(f"--policies={policies}")
    broker = Broker(free_port(), words, directory / "log")
    try:
        broker.wait_ready()
        return read_all(broker.port)
    finally:
        broker.kill()


def read_all(port: int) -> Found:
    """Return all messages of the states' queues and streams that the broker at a port has."""
    link = Link(port)
    try:
        queues = {name: _browsed(link, name) for name in QUEUES}
        return queues, {topic: _streamed(link, topic) for topic in STREAMS}
    finally:
        link.close()


def _replies(link: Link, command: str) -> Iterator[Reply]:
    """Yield received frames, which must all have one command."""
    while True:
        for reply in link.receive():
            if reply.command != command:
                raise Gone(f"{reply}")
            yield reply


def _bodies(link: Link, last: tuple[str, str]) -> list[bytes]:
    """Return the bodies before the MESSAGE whose header marks it as the last."""
    name, text = last
    before = takewhile(lambda each: each.headers.get(name) != text, _replies(link, "MESSAGE"))
    return [reply.body.encode() for reply in before]


def _browsed(link: Link, name: str) -> list[bytes]:
    link.send(f"SUBSCRIBE\nid:{name}\ndestination:{name}\nbrowser:true\n\n\0")
    return _bodies(link, ("browser", "end"))


def _streamed(link: Link, topic: str) -> list[bytes]:
    """Return a topic's stream, up to the offset that a SEND reports. That message is left out."""
    link.send(f"SEND\ndestination:{topic}\npersistent:true\nreceipt:{topic}\n\nend\0")
    until = int(next(_replies(link, "RECEIPT")).headers["x-stream-offset"])
    text = f"id:{topic}\ndestination:/stream{topic}\nx-stream-offset:0\nx-stream-until:{until}"
    link.send(f"SUBSCRIBE\n{text}\n\n\0")
    return _bodies(link, ("x-stream-end", "true"))


def run(seed: int, count: int, *, progress: bool = False) -> dict[str, object]:
    """Check ``count`` states, and return the figures."""
    judged: Counter[str] = Counter()
    violations: list[str] = []
    for number, (store, state) in enumerate(all_states(seed, count), 1):
        in_process = bool(number % PROCESS_EVERY)
        judged[store] += 1
        judged["in_a_process_of_their_own"] += not in_process
        lines = judge(store, state, in_process=in_process)
        violations += [f"state {number} ({store}): {line}" for line in lines]
        if progress and not number % 20:
            print(f"{number} states, {len(violations)} violations", file=sys.stderr, flush=True)
    return {
        "seed": seed,
        "power_cuts": count,
        **judged,
        "violations": len(violations),
        "first_violations": violations[:100],
    }
