"""The core against a naive model of dicts and lists, over random lives of clients.

Every copy of an accepted message is in exactly one place: delivered, parked, waiting behind a
revival, expired, or dropped. The model says which, and its outboxes say in which order.
"""

from collections import defaultdict
from typing import TypeVar

from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.core import Core, Peer, head_bytes
from trio_stomp.base import CloseReason
from trio_stomp.broker import BrokerPolicies

MESSAGE_OVERHEAD_BYTES, CHANNEL_OVERHEAD_BYTES, DESTINATION_OVERHEAD_BYTES = 64, 2048, 1024
"""What the stale queue charges: repeated here, as a model is made of no part of the broker."""

TTL = 10.0
CAPACITY = 5
MAX_PARKED = 8
NAMES = ["a", "a.b", "a.c", "#a", "#a.b"]
PATTERNS = [*NAMES, "a.*", "a.>", "*", "#*", "a*"]
TOLD = ["DISCONNECT", "ERROR"]

T = TypeVar("T")


def reaches(pattern: str, name: str) -> bool:
    """The few patterns of this model, spelled out."""
    match pattern:
        case "*":
            return True
        case "a.*":
            return name in ("a.b", "a.c")
        case "a.>":
            return name in ("a", "a.b", "a.c")
        case "#*" | "a*":
            return name[0] == pattern[0]
        case _:
            return name == pattern


@define(eq=False)
class Run:
    """Messages that were sent together."""

    number: int
    name: str
    expires: float
    bodies: list[str]

    @property
    def cost(self) -> int:
        """Return the cost of parking it, with its one header."""
        head = head_bytes((("destination", self.name),))
        return head + sum(MESSAGE_OVERHEAD_BYTES + len(body) for body in self.bodies)


@define(eq=False)
class Parked:
    """One destination's parked runs."""

    runs: list[Run]
    claimed: bool = False
    has_channel: bool = False

    @property
    def cost(self) -> int:
        """Return its charge."""
        channel = CHANNEL_OVERHEAD_BYTES if self.has_channel else 0
        return DESTINATION_OVERHEAD_BYTES + channel + sum(run.cost for run in self.runs)


@define(eq=False)
class Reader:
    """A client: the messages in its outbox, and the written ones."""

    peer: Peer
    room: int
    waiting: list[tuple["Member", Run]] = field(factory=list)
    members: "list[Member]" = field(factory=list)
    is_closed: bool = False

    @property
    def has_room(self) -> bool:
        """As the outbox says."""
        return not self.is_closed and self.depth < self.room

    @property
    def depth(self) -> int:
        """MESSAGEs that wait."""
        return sum(len(run.bodies) for _, run in self.waiting)


@define(eq=False)
class Member:
    """A subscription."""

    id: str
    pattern: str
    reader: Reader
    written: list[str] = field(factory=list)
    claims: list[Parked] | None = None
    """Messages still to deliver; None = it has caught up."""
    backlog: list[Run] = field(factory=list)


class BrokerModel(RuleBasedStateMachine):
    """Random clients, and the model of their deliveries."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[Reader] = []
        self.members: list[Member] = []  # in order of subscription
        self.parked: dict[str, Parked] = {}
        self.rotation: defaultdict[str, int] = defaultdict(int)
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.by_name: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.copies = 0
        self.number = 0

    @initialize(
        slow=st.sampled_from(["disconnect", "drop-newest"]),
        overflow=st.sampled_from(["drop-newest", "drop-oldest"]),
    )
    def start(self, slow: str, overflow: str) -> None:
        self.slow, self.overflow = slow, overflow
        self.core = Core(
            BrokerPolicies(
                ttl_ms=int(TTL * 1000),
                slow_consumer=slow,
                stale_overflow=overflow,
                max_stale_queue_size=MAX_PARKED,
            )
        )
        for version in ("1.1", "1.2"):
            self.connect(version, 1)

    # Actions of clients.

    @precondition(lambda self: len(self.readers) < 5)
    @rule(version=st.sampled_from(["1.1", "1.2"]), room=st.integers(0, CAPACITY))
    def connect(self, version: str, room: int) -> None:
        peer = self.core.peer(version, capacity=CAPACITY, room=room)
        self.readers.append(Reader(peer, room))

    @rule(data=st.data(), pattern=st.sampled_from(PATTERNS))
    def subscribe(self, data: st.DataObject, pattern: str) -> None:
        reader = self.pick(data, self.readers)
        member = Member(f"{self.count()}", pattern, reader)
        reader.peer.subscribes(pattern, member.id)
        if reader.is_closed:
            return
        self.members.append(member)
        reader.members.append(member)
        claims = [
            parked
            for name, parked in self.parked.items()
            if reaches(pattern, name) and not parked.claimed
        ]
        if claims:
            member.claims = claims
            for parked in claims:
                parked.claimed = True
            self.revive(member)
        self.settle()

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        member = self.pick(data, self.members)
        member.reader.peer.unsubscribes(member.id)
        self.end(member)

    @rule(
        data=st.data(),
        name=st.sampled_from(NAMES),
        size=st.integers(1, 4),
        is_late=st.sampled_from([False] * 9 + [True]),
    )
    def send(self, data: st.DataObject, name: str, size: int, is_late: bool) -> None:
        reader = self.pick(data, self.readers)
        core = self.core
        received_at = core.now - TTL if is_late else core.now
        run = Run(self.count(), name, received_at + TTL, [f"{self.count()}" for _ in range(size)])
        reader.peer.sends(name, *run.bodies, received_at=received_at)
        if reader.is_closed:
            return
        self.counts["received"] += size
        self.by_name["enqueued", name] += size
        members = [member for member in self.members if reaches(member.pattern, name)]
        if is_late:
            self.lose("expired", run)
        elif not members:
            self.park(run)
        elif name[0] == "#":
            self.deal(members, run)
        else:
            for member in members:
                self.give(member, run)
        self.copies += size * (len(members) if members and name[0] != "#" and not is_late else 1)
        self.settle()

    @rule(data=st.data(), how=st.sampled_from(["lost", "leave", "error"]))
    def disconnect(self, data: st.DataObject, how: str) -> None:
        reader = self.pick(data, self.readers)
        if how == "leave":
            reader.peer.leaves()
        elif how == "error":
            reader.peer.sends("no*")
        reader.peer.is_gone()
        self.close(reader)
        self.check_outbox(reader)
        self.readers.remove(reader)
        if not self.readers:
            self.connect("1.2", CAPACITY)

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0, 9.0]), sweeps=st.booleans())
    def time_passes(self, seconds: float, sweeps: bool) -> None:
        self.core.now += seconds
        if sweeps:
            self.core.broker.tick(self.core.now)
            self.sweep()

    @rule(data=st.data(), room=st.integers(0, CAPACITY))
    def room_changes(self, data: st.DataObject, room: int) -> None:
        reader = self.pick(data, self.readers)
        reader.room = reader.peer.outbox.room = room
        self.go_on(reader)

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        reader = self.pick(data, self.readers)
        reader.peer.outbox.write(self.core.now)
        for member, run in reader.waiting:
            if run.expires > self.core.now:
                member.written += run.bodies
        reader.waiting.clear()
        self.go_on(reader)

    # Expected behaviour of the broker.

    def give(self, member: Member, run: Run) -> None:
        if member.claims is not None:
            member.backlog.append(run)
        else:
            self.stage(member, run)

    def deal(self, members: list[Member], run: Run) -> None:
        shares: dict[int, list[str]] = {}
        for body in run.bodies:
            shares.setdefault(self.rotation[run.name] % len(members), []).append(body)
            self.rotation[run.name] += 1
        for place, bodies in shares.items():
            self.give(members[place], Run(run.number, run.name, run.expires, bodies))

    def stage(self, member: Member, run: Run) -> None:
        reader = member.reader
        if reader.is_closed:
            self.took("swallowed", run)
        elif reader.waiting and reader.depth + len(run.bodies) > CAPACITY:
            self.lose("slow_consumer", run)
            if self.slow == "disconnect":
                reader.is_closed = True
                for _, thrown_away in reader.waiting:
                    self.lose("discarded", thrown_away)
                reader.waiting.clear()
        else:
            reader.waiting.append((member, run))
            self.took("delivered", run)

    def revive(self, member: Member) -> None:
        reader = member.reader
        while reader.has_room:
            assert member.claims is not None
            for parked in member.claims:
                self.drop_expired(parked)
            self.forget_empty()
            held = [parked for parked in member.claims if parked.runs]
            if held:
                parked = min(held, key=lambda each: each.runs[0].number)
                run = parked.runs.pop(0)
                self.forget_empty()
                self.counts["revived"] += len(run.bodies)
                self.stage(member, run)
            elif not member.backlog:
                member.claims = None
                return
            else:
                run = member.backlog.pop(0)
                if run.expires <= self.core.now:
                    self.lose("expired", run)
                else:
                    self.stage(member, run)

    def go_on(self, reader: Reader) -> None:
        self.core.broker.writable(reader.peer.client, self.core.now)
        self.core.broker.end_turn(self.core.now)
        for member in reader.members:
            if member.claims is not None:
                self.revive(member)
        self.settle()

    def park(self, run: Run) -> None:
        if self.depth + len(run.bodies) > MAX_PARKED:
            self.sweep()
            while self.overflow == "drop-oldest" and self.depth + len(run.bodies) > MAX_PARKED:
                name = min(self.parked, key=lambda name: (self.parked[name].runs[0].expires, name))
                self.lose("stale_dropped", self.parked[name].runs.pop(0))
                self.forget_empty()
        room = MAX_PARKED - self.depth
        kept, rest = run.bodies[:room], run.bodies[room:]
        if rest:
            self.lose("stale_dropped", Run(run.number, run.name, run.expires, rest))
        if kept:
            self.counts["parked"] += len(kept)
            run = Run(run.number, run.name, run.expires, kept)
            if run.name in self.parked:
                self.parked[run.name].runs.append(run)
                self.parked[run.name].has_channel = True
            else:
                self.parked[run.name] = Parked([run])

    def sweep(self) -> None:
        for parked in self.parked.values():
            self.drop_expired(parked)
        self.forget_empty()

    def drop_expired(self, parked: Parked) -> None:
        while parked.runs and parked.runs[0].expires <= self.core.now:
            self.lose("stale_expired", parked.runs.pop(0))

    def forget_empty(self) -> None:
        self.parked = {name: parked for name, parked in self.parked.items() if parked.runs}

    def settle(self) -> None:
        """End the clients that were too slow."""
        for reader in list(self.readers):
            if reader.is_closed:
                self.close(reader)
                self.check_outbox(reader)
                reader.peer.is_gone(CloseReason.SLOW_CONSUMER)
                self.readers.remove(reader)
                self.connect("1.2", CAPACITY)

    def close(self, reader: Reader) -> None:
        reader.is_closed = True
        for member in list(reader.members):
            self.end(member)

    def end(self, member: Member) -> None:
        self.members.remove(member)
        member.reader.members.remove(member)
        for parked in member.claims or ():
            parked.claimed = False
        for run in member.backlog:
            self.lose("backlog_abandoned", run)
        self.forget_empty()

    # Book-keeping.

    def pick(self, data: st.DataObject, things: list[T]) -> T:
        return things[data.draw(st.integers(0, len(things) - 1))]

    def count(self) -> int:
        self.number += 1
        return self.number

    def took(self, how: str, run: Run) -> None:
        self.counts[how] += len(run.bodies)
        self.by_name["delivered", run.name] += len(run.bodies)

    def lose(self, why: str, run: Run) -> None:
        self.counts[why] += len(run.bodies)
        kind = "expired" if why.endswith("expired") else "dropped"
        self.by_name[kind, run.name] += len(run.bodies)

    @property
    def depth(self) -> int:
        """Messages parked."""
        return sum(len(run.bodies) for parked in self.parked.values() for run in parked.runs)

    def check_outbox(self, reader: Reader) -> None:
        for member in reader.members:
            waiting = [
                body for each, run in reader.waiting if each is member for body in run.bodies
            ]
            assert reader.peer.bodies(member.id) == member.written + waiting

    @invariant()
    def every_subscription_has_what_the_model_says(self) -> None:
        for reader in self.readers:
            self.check_outbox(reader)
            assert len(reader.peer.client.subscriptions) == len(reader.members)
            assert reader.peer.client.catching_up == sum(
                member.claims is not None for member in reader.members
            )

    @invariant()
    def parked_messages_are_where_the_model_has_them(self) -> None:
        stale = self.core.broker.stale
        assert {
            parked.destination.name: (parked.size, parked.bytes, parked.claim is not None)
            for parked in stale.candidates()
        } == {
            name: (sum(len(run.bodies) for run in parked.runs), parked.cost, parked.claimed)
            for name, parked in self.parked.items()
        }

    @invariant()
    def the_budget_is_what_is_parked_and_what_waits(self) -> None:
        used = self.core.memory.used_bytes
        parked = sum(parked.cost for parked in self.parked.values())
        assert self.core.broker.stale.bytes == parked
        backlog = [run for member in self.members for run in member.backlog]
        if not backlog:
            assert used == parked
        else:
            # A waiting message has its body, and never as much as 200 bytes beside it.
            bodies = [body for run in backlog for body in run.bodies]
            least = sum(map(len, bodies))
            assert parked + least < used < parked + least + 200 * len(bodies)

    @invariant()
    def the_counters_are_the_models(self) -> None:
        broker, counts = self.core.broker, self.counts
        drops, stale = broker.fan_out.drops, broker.stale.statistics
        assert broker.publisher.received == counts["received"]
        assert broker.fan_out.delivered == counts["delivered"] + counts["swallowed"]
        # Those that were thrown away had been delivered to the outbox before.
        assert drops.slow_consumer == counts["slow_consumer"] + counts["discarded"]
        assert drops.backlog_abandoned == counts["backlog_abandoned"]
        assert drops.expired == counts["expired"]
        assert drops.no_subscriber == 0
        assert stale.parked == counts["parked"]
        assert stale.revived == counts["revived"]
        assert stale.expired == counts["stale_expired"]
        assert stale.dropped == counts["stale_dropped"]
        for destination in broker.destinations:
            for what in ("enqueued", "delivered", "dropped", "expired"):
                assert getattr(destination, what) == self.by_name[what, destination.name], (
                    destination.name,
                    what,
                )
        assert broker.fan_out.slow == []

    @invariant()
    def every_copy_is_in_one_place(self) -> None:
        lost = ("expired", "stale_expired", "stale_dropped", "slow_consumer", "backlog_abandoned")
        places = ("delivered", "swallowed", *lost)
        waiting = sum(len(run.bodies) for member in self.members for run in member.backlog)
        total = sum(self.counts[place] for place in places)
        assert self.copies == total + self.depth + waiting

    def teardown(self) -> None:
        if self.readers:
            self.core.ends()


BrokerModel.TestCase.settings = settings(max_examples=150, stateful_step_count=50)
test_the_core_does_what_the_model_does = BrokerModel.TestCase
