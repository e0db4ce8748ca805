"""States of data directories after power cuts, with the promises that hold for them.

    for state in states(seed=1, count=200):
        write_state(directory, state)
        ...  # start a broker there, and drain it
        assert broken_promises(state, queues, streams) == []

A store lives on a disk in memory: SENDs, acknowledgements, transactions, streams, segments that are
cleaned and compressed. The power fails at any moment; each sector of 512 bytes, each length and
each name that was not synced is on the disk or not, in whatever order it was written.

Names and header blocks have the broker's format, so a whole broker can be started on a state:
queues are ``QUEUES``; ``STREAMS`` are by topic, whose policy must have ``stream = true``.
"""

import os
import random
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count as numbers

from attrs import define, field, frozen

from _oracle.store_disk import EVERYTHING, Disk, filled, read_all
from trio_stomp.store import (
    Append,
    Atomic,
    Begin,
    Delivered,
    Done,
    JournalOptions,
    JournalStore,
    Put,
    Record,
    Recovered,
    Turn,
)

QUEUES = ("/queue/a", "/queue/b", "/queue/c")
STREAMS = {"/topic/s": "/stream/topic/s", "/topic/t": "/stream/topic/t"}
WRITTEN = (0.0, 0.2, 0.5, 0.8, 0.95, 1.0)
"""Probabilities that an unsynced sector is on the disk. Each state uses one."""
STATES_OF_A_LIFE = 60

Bodies = Mapping[str, Sequence[bytes]]
"""Bodies in order, by queue or topic."""


@frozen
class Unit:
    """A transaction or composite SEND in progress, which holds as a whole or not at all."""

    put: Bodies
    done: Bodies
    streamed: Bodies


@frozen
class State:
    """A data directory after a power cut. All bodies are different.

    Args:
      contents: The contents of files, by path within the data directory.
      queues: The messages that must be there, by queue, in this order.
      maybe: Messages that may also be there: their SEND or ACK was in progress.
      order: All of these messages, by queue, in the order of acceptance.
      streams: The messages that must be in each stream, by topic, from offset 0.
      maybe_streams: The messages that may follow them, in this order, without a gap.
      units: The transactions and composites in progress.
    """

    contents: Mapping[str, bytes]
    queues: Bodies
    maybe: Bodies
    order: Bodies
    streams: Bodies
    maybe_streams: Bodies
    units: Sequence[Unit]


def states(seed: int, count: int, *, segment_bytes: int = 4096) -> Iterator[State]:
    """Yield states of several lives. The same seed yields the same states.

    Args:
      segment_bytes: The size of the journal's segments, and twice that of a stream's files.
    """
    left = count
    for life in numbers():
        chance = random.Random(f"{seed} {life} {segment_bytes}")
        with tempfile.TemporaryDirectory() as directory:  # for the lock, which is the system's
            found = Life(directory, chance, segment_bytes).run()
        for state in chance.sample(found, min(STATES_OF_A_LIFE, left, len(found))):
            left -= 1
            yield state
        if not left:
            return


def write_state(directory: str, state: State) -> None:
    """Put a state into a directory of the real file system."""
    for path, data in state.contents.items():
        full = os.path.join(directory, path)
        os.makedirs(os.path.dirname(full), 0o700, exist_ok=True)
        with open(full, "wb") as file:
            file.write(data)


def disk_of(directory: str, state: State) -> Disk:
    """Return a disk in memory that holds a state, for a store in that directory."""
    return Disk({f"{directory}/{path}": filled(data) for path, data in state.contents.items()})


def found_in(
    store: JournalStore, recovered: Recovered
) -> tuple[dict[str, list[bytes]], dict[str, list[bytes]]]:
    """Return the messages of a store opened on a state: by queue, and by the topics of its
    streams."""
    messages = read_all(store, recovered)
    queues = {
        queue: [body for body, _ in messages.get((f"queue:{queue}", 4), {}).values()]
        for queue in QUEUES
    }
    streams = {}
    for topic, name in STREAMS.items():
        runs = store.read_stream(name, 0, EVERYTHING)
        streams[topic] = [body for run in runs for body in run.bodies]
        held = recovered.streams.get(name)
        assert (held.first, held.next) == (0, len(streams[topic])) if held else not runs
    return queues, streams


def broken_promises(state: State, queues: Bodies, streams: Bodies) -> list[str]:
    """Return the broken promises, one line each."""
    lines: list[str] = []
    for queue in QUEUES:
        found = list(queues.get(queue, ()))
        lines += [
            f"{queue}: lost {body[:20]!r}" for body in state.queues[queue] if body not in found
        ]
        expected = [body for body in state.order[queue] if body in set(found)]
        if found != expected:
            lines.append(f"{queue}: {_heads(found)}, not {_heads(expected)}")
    for topic in STREAMS:
        found, must = list(streams.get(topic, ())), list(state.streams[topic])
        if found[: len(must)] != must:
            lines.append(f"{topic}: lost some of {len(must)}: {_heads(found)}")
        elif found != [*must, *state.maybe_streams[topic]][: len(found)]:
            lines.append(f"{topic}: {_heads(found[len(must) :])} at the end")
    everything = {body for found in (*queues.values(), *streams.values()) for body in found}
    return lines + [f"torn: {unit}" for unit in state.units if _is_torn(unit, everything)]


def _is_torn(unit: Unit, found: set[bytes]) -> bool:
    come = {body in found for bodies in (unit.put, unit.streamed) for body in _flat(bodies)}
    gone = {body not in found for body in _flat(unit.done)}
    return len(come | gone) > 1


def _flat(bodies: Bodies) -> list[bytes]:
    return [body for each in bodies.values() for body in each]


def _heads(bodies: Sequence[bytes]) -> list[bytes]:
    return [body[:12] for body in bodies]


@define(eq=False, slots=False)
class Life:
    """A store's life on a disk in memory, and its promises."""

    directory: str
    chance: random.Random
    segment_bytes: int
    turns: int = 90
    disk: Disk = field(factory=Disk)
    waiting: dict[int, tuple[str, bytes]] = field(factory=dict)
    """Committed messages whose end has not been requested."""
    coming: dict[int, tuple[str, bytes]] = field(factory=dict)
    """Messages whose SEND is in progress."""
    going: dict[int, tuple[str, bytes]] = field(factory=dict)
    """Messages whose ACK is in progress."""
    streamed: dict[str, list[bytes]] = field(factory=lambda: {topic: [] for topic in STREAMS})
    streaming: dict[str, list[bytes]] = field(factory=lambda: {topic: [] for topic in STREAMS})
    units: list[Unit] = field(factory=list)
    found: list[State] = field(factory=list)
    next_id: int = 1
    begun: set[str] = field(factory=set)

    def run(self) -> list[State]:
        """Return all states, a few for each moment."""
        store = JournalStore(self.directory, self.disk, JournalOptions(self.segment_bytes))
        store._streams._segment_bytes = self.segment_bytes // 2
        # Files are compressed here and not in a thread, so that the seed determines the time.
        store._streams._unpacked_bytes = -1 << 60
        commit = store.recover(lambda _done, _size: None).commit
        self.disk.watcher = lambda: self.cut()
        for number in range(self.turns):
            made = [self.turn(number) for _ in range(self.chance.choice((1, 1, 1, 2, 3)))]
            commit = store.append(made, commit)
            self.promise(is_all=any(turn.is_urgent for turn in made))
            if self.chance.random() < 0.1:
                for topic in STREAMS:
                    if (log := store._streams.get(STREAMS[topic])) is not None:
                        log.compress_one()
        store.close()
        self.cut()
        return self.found

    def promise(self, is_all: bool) -> None:
        """Commit the streams and, if ``is_all``, everything else in progress."""
        for topic, bodies in self.streaming.items():
            self.streamed[topic] += bodies
            bodies.clear()
        if not is_all:
            return
        self.waiting.update(self.coming)
        self.coming.clear()
        self.going.clear()
        self.units.clear()

    def turn(self, _number: int) -> Turn:
        """Return the next turn."""
        kind = self.chance.choice("ppppdddddtttcs")
        if kind == "p":
            return Turn([self.put(), *([self.done()] if self.chance.random() < 0.5 else ())])
        if kind == "d":
            # Some acknowledgements, and all counts of deliveries, are written without waiting.
            some = [id for id in self.waiting if self.chance.random() < 0.2]
            return Turn([Delivered(some), self.done()], self.chance.random() < 0.6)
        if kind == "s":
            records: list[Record] = [*self.begin(), self.stream(self.chance.choice([*STREAMS]))]
            return Turn(records, self.chance.random() < 0.6)
        puts = [self.put() for _ in range(self.chance.choice((1, 1, 2)))]
        done = [self.done()] if kind == "t" else []
        topics = self.chance.sample([*STREAMS], self.chance.choice((0, 1, 1, 2)))
        begun = self.begin() if topics else []
        appended = [self.stream(topic) for topic in topics]
        ids = [id for each in done for id in each.ids]
        self.units.append(
            Unit(
                _by_queue([self.coming[id] for put in puts for id in _ids(put)]),
                _by_queue([self.going[id] for id in ids]),
                {topic: each.bodies for topic, each in zip(topics, appended, strict=True)},
            )
        )
        return Turn([*begun, Atomic([*puts, *done, *appended])])

    def put(self) -> Put:
        queue = self.chance.choice(QUEUES)
        first, size = self.next_id, self.chance.choice((1, 1, 1, 2, 5))
        bodies = [self.body(id) for id in range(first, first + size)]
        self.next_id += size
        self.coming |= {id: (queue, body) for id, body in enumerate(bodies, first)}
        head = f"destination:{queue}\npersistent:true\n".encode()
        return Put(f"queue:{queue}", first, head, bodies, received_ms=1_700_000_000_000)

    def body(self, id: int) -> bytes:
        return b"%d " % id + b"." * self.chance.choice((0, 40, 200, 400, 1200))

    def done(self) -> Done:
        """Return the end of most old messages, so that segments become dead and some are copied."""
        some = [id for id in self.waiting if id % 5 and self.chance.random() < 0.6]
        some += [id for id in self.waiting if not id % 5 and self.chance.random() < 0.04]
        for id in some:
            self.going[id] = self.waiting.pop(id)
        return Done(sorted(some))

    def begin(self) -> list[Begin]:
        new = [stream for stream in STREAMS.values() if stream not in self.begun]
        self.begun.update(new)
        return [Begin(stream, "e1") for stream in new]

    def stream(self, topic: str) -> Append:
        at = len(self.streamed[topic]) + len(self.streaming[topic])
        bodies = [
            b"%s %d " % (topic.encode(), at + more) + b"." * self.chance.choice((0, 100, 700))
            for more in range(self.chance.choice((1, 1, 3)))
        ]
        self.streaming[topic] += bodies
        head = f"destination:{topic}\npersistent:true\n".encode()
        return Append(STREAMS[topic], at, head, bodies, 1_700_000_000_000 + at)

    def cut(self) -> None:
        """Record states for a power cut at this moment."""
        for written in self.chance.sample(WRITTEN, 2):
            if self.chance.random() < 0.5:
                self.found.append(self.state(self.disk.cut_power(self.chance, written)))

    def state(self, after: Disk) -> State:
        start = len(self.directory) + 1
        everything = dict(sorted({**self.waiting, **self.coming, **self.going}.items()))
        maybe = dict(sorted({**self.coming, **self.going}.items()))
        return State(
            {path[start:]: bytes(file.data) for path, file in after.files.items()},
            _by_queue([self.waiting[id] for id in sorted(self.waiting)]),
            _by_queue(maybe.values()),
            _by_queue(everything.values()),
            {topic: list(bodies) for topic, bodies in self.streamed.items()},
            {topic: list(bodies) for topic, bodies in self.streaming.items()},
            list(self.units),
        )


def _ids(put: Put) -> range:
    return range(put.first, put.first + len(put.bodies))


def _by_queue(found: Iterable[tuple[str, bytes]]) -> dict[str, list[bytes]]:
    pairs = list(found)
    return {queue: [body for name, body in pairs if name == queue] for queue in QUEUES}
