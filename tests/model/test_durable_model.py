"""The messaging core with a store against a naive model: crashes, failures, slow answers.

The model knows for each message whether its storage was confirmed, and for each delivery whether it
was allowed. An unconfirmed action (a crash came before the RECEIPT) may have happened or not, but a
transaction as a whole.
"""

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import define, field
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.support.core import Actor, Pairs, Received, run_of
from tests.support.durable_fakes import PAGE_BYTES, DurableBench
from tests.support.small_queues import keep_few
from tests.support.stores import KINDS, make_place
from tests.support.stores import numbers as numbers
from tests.support.stores import postgres as postgres
from trio_stomp.base import CloseReason
from trio_stomp.broker import DestinationPolicy, MemoryBudget, StoreRead
from trio_stomp.protocol import Subscribed

if TYPE_CHECKING:
    from trio_stomp.store import Page

DURABLE = "/topic/t"
PLACES = ("/queue/a", "/queue/b", DURABLE)
DEAD_LETTERS = {name: f"/queue/DLQ.{name.removeprefix('/queue/').lstrip('/')}" for name in PLACES}
POLICY = DestinationPolicy(max_redeliveries=1000, backoff_s=())

SENT, PROMISED, WITHDRAWN, UNKNOWN, GONE = "sent", "promised", "withdrawn", "unknown", "gone"
UNTOUCHED, APPLIED, BOUND, SAFE, MAYBE = "untouched", "applied", "bound", "safe", "maybe"


@define(eq=False)
class Sent:
    """One message, from its SEND on."""

    body: str
    place: str
    producer: str
    number: int
    survives: bool
    state: str = SENT
    places: set[str] = field(factory=set)
    """The places where it may be."""
    ack: str = UNTOUCHED
    holder: "Member | None" = None
    lives: int = 0
    """Deliveries since the last start."""
    most: int = 0
    """Deliveries ever."""
    group: "list[Sent]" = field(factory=list)
    """All messages of its transaction, including itself."""
    was_seen: bool = False


@define(eq=False)
class Request:
    """A receipt that a client waits for."""

    id: str
    sent: list[Sent]
    acked: list[Sent]
    begins: bool = False
    """It is of a subscription that begins when the store has it."""


@define(eq=False)
class Member:
    """One client."""

    actor: Actor
    name: str
    asked: list[Request] = field(factory=list)
    mine: dict[str, tuple[Received, Sent]] = field(factory=dict)
    ids: set[str] = field(factory=set)
    newest: dict[tuple[str, str], int] = field(factory=dict)
    """The last message of each producer that a queue delivered for the first time."""

    def of(self, place: int) -> tuple[Received, Sent]:
        return list(self.mine.values())[place % len(self.mine)]


class DurableModel(RuleBasedStateMachine):
    """Random lives of clients, a store, and a broker."""

    kind: str
    request: pytest.FixtureRequest

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        keep_few(self.patch, 3)
        self.directory = Path(tempfile.mkdtemp())
        self.place = make_place(self.kind, self.directory, self.request)
        self.messages: dict[str, Sent] = {}
        self.count = 0
        self.pages: list[tuple[StoreRead, Page | None]] = []
        self.now = 1000.0
        self.start()
        first = self.members[0]
        self.subscribe_to(first, DURABLE, 1)
        self.settle()
        self.answer(99)

    def start(self) -> None:
        self.core = DurableBench(
            book={">": POLICY, "/queue/>": POLICY},
            memory=MemoryBudget(1 << 30),
            store=self.place.make(),
            now=self.now,
            is_prompt=False,
        )
        assert self.core.failures == []
        self.pages.clear()
        self.members = [self.newcomer() for _ in range(3)]

    def newcomer(self) -> Member:
        self.count += 1
        return Member(self.core.actor(), f"p{self.count}")

    # Actions of clients.

    @rule(
        who=st.integers(0, 2),
        name=st.sampled_from(PLACES),
        size=st.integers(1, 3),
        survives=st.sampled_from([True, True, False]),
    )
    def send(self, who: int, name: str, size: int, survives: bool) -> None:
        member = self.members[who]
        sent = [self.message(member, name, survives) for _ in range(size)]
        receipts = []
        for place, each in enumerate(sent, 1):
            receipts.append((place, self.ask(member, [each]).encode()))
        bodies = [each.body for each in sent]
        headers = {"persistent": "true"} if survives else {}
        member.actor.sends(name, *bodies, receipts=receipts, **headers)
        self.settle()

    @rule(
        who=st.integers(0, 2),
        name=st.sampled_from([*PLACES, *DEAD_LETTERS.values()]),
        prefetch=st.integers(1, 4),
    )
    def subscribe(self, who: int, name: str, prefetch: int) -> None:
        self.subscribe_to(self.members[who], name, prefetch)
        self.settle()

    def subscribe_to(self, member: Member, name: str, prefetch: int) -> None:
        if name in member.ids:
            return
        member.ids.add(name)
        headers: Pairs = (("destination", name), ("prefetch-count", f"{prefetch}"))
        if name == DURABLE:
            headers += (("durable-subscription-name", "d"),)
        receipt = self.ask(member, [], begins=name == DURABLE)
        event = Subscribed(name, name, "client-individual", headers, receipt.encode())
        member.actor.does(event)

    @precondition(lambda self: any(member.mine for member in self.members))
    @rule(
        who=st.integers(0, 9), place=st.integers(0, 9), how=st.sampled_from(["ack", "nack", "kill"])
    )
    def acknowledge(self, who: int, place: int, how: str) -> None:
        member = self.holder(who)
        frame, sent = member.of(place)
        del member.mine[frame.get("message-id") or ""]
        sent.holder = None
        event = member.actor.acked(frame, negative=how != "ack", requeue=how == "nack")
        if how == "ack":
            sent.ack = APPLIED
            receipts = [(1, self.ask(member, [], [sent]).encode())]
            event = member.actor.acked(frame, receipts=receipts)
        elif how == "kill" and frame.get("destination") in DEAD_LETTERS:
            sent.places.add(DEAD_LETTERS[frame.get("destination") or ""])
            sent.lives = 0
        elif how == "kill":
            sent.ack = APPLIED  # the dead do not die again
        member.actor.does(event)
        self.settle()

    @rule(
        who=st.integers(0, 2),
        place=st.integers(0, 9),
        names=st.lists(st.sampled_from(PLACES), min_size=1, max_size=3),
        survives=st.booleans(),
    )
    def commit(self, who: int, place: int, names: list[str], survives: bool) -> None:
        member = self.members[who]
        acked: list[Sent] = []
        events: list[object] = []
        queues = [name for name in names if name != DURABLE or survives]
        if not queues:
            return
        is_stored = survives
        if member.mine:
            frame, sent = member.of(place)
            is_stored = is_stored or sent.survives
            if sent.survives or survives:
                del member.mine[frame.get("message-id") or ""]
                sent.holder, sent.ack = member, BOUND
                acked.append(sent)
                events.append(member.actor.acked(frame))
            else:
                is_stored = False
        group: list[Sent] = []
        for name in queues:
            each = self.message(member, name, is_stored and (survives or name != DURABLE))
            group.append(each)
            headers = (("persistent", "true"),) if survives else ()
            events.append(run_of(name, [each.body], headers))
        for each in group:
            each.group = group
        receipt = self.ask(member, group, acked)
        member.actor.commits(*events, receipt=receipt.encode())  # type: ignore[arg-type]
        self.settle()

    @rule(who=st.integers(0, 2))
    def lose_connection(self, who: int) -> None:
        self.replace(self.members[who])
        self.settle()

    # Actions of the store.

    @rule(turns=st.integers(1, 5))
    def answer(self, turns: int) -> None:
        core = self.core
        taken, core.turns = core.turns[:turns], core.turns[turns:]
        if taken:
            core.commit = core.store.append(taken, core.commit)
            core.broker.committed(core.commit, core.now)
        self.settle()

    @precondition(lambda self: self.core.turns)
    @rule()
    def fail(self) -> None:
        self.core.fails("no space left")
        for member in list(self.members):
            if member.actor.outbox.closed is not None:
                self.told_of_failure(member)
        self.settle()

    @rule()
    def read(self) -> None:
        for wanted in self.core.log.take_reads():
            page = wanted.read(self.core.store, PAGE_BYTES)
            self.pages.append((wanted, page))

    @precondition(lambda self: self.pages)
    @rule(works=st.sampled_from([True, True, True, False]))
    def give_page(self, works: bool) -> None:
        wanted, page = self.pages.pop(0)
        wanted.take(page if works else None, self.core.now)
        self.settle()

    @rule(appended=st.booleans())
    def crash(self, appended: bool) -> None:
        if appended and self.core.turns:
            self.core.store.append(self.core.turns, self.core.commit)
        self.place.crash(self.core.store)
        for sent in self.messages.values():
            sent.holder = None
            sent.lives = 0
            if sent.state == SENT:
                sent.state = UNKNOWN
            if not sent.survives:
                sent.state = GONE
            if sent.ack in (APPLIED, BOUND):
                sent.ack = MAYBE
        self.start()
        self.settle()

    # Checks of the results.

    def settle(self) -> None:
        self.core.turn()
        frames: list[tuple[int, Member, Received]] = []
        for member in self.members:
            for frame in member.actor.writes():
                if frame.command == "MESSAGE":
                    number = int((frame.get("message-id") or "").rpartition("-")[2])
                    frames.append((number, member, frame))
                else:
                    assert frame.command == "RECEIPT", frame
                    self.receipted(member, frame.get("receipt-id") or "")
        for _, member, frame in sorted(frames, key=lambda each: each[0]):
            self.delivered(member, frame)

    def receipted(self, member: Member, id: str) -> None:
        asked = member.asked.pop(0)
        assert asked.id == id, "out of turn"
        for sent in asked.sent:
            assert sent.state == SENT
            sent.state = PROMISED
        for sent in asked.acked:
            if sent.ack in (APPLIED, BOUND):
                sent.ack, sent.holder = SAFE, None

    def delivered(self, member: Member, frame: Received) -> None:
        sent, name = self.messages[frame.text], frame.get("destination") or ""
        assert sent.state in (PROMISED, UNKNOWN), (sent, "was not to be seen")
        assert sent.ack in (UNTOUCHED, MAYBE), (sent, "was acknowledged")
        assert sent.holder is None, "somebody has it"
        assert name in sent.places
        if sent.ack == MAYBE:
            sent.ack = UNTOUCHED
        sent.was_seen = True
        if name in DEAD_LETTERS:
            if not sent.lives:
                key = (sent.producer, name)
                assert member.newest.get(key, 0) < sent.number, "backwards"
                member.newest[key] = sent.number
        else:
            sent.places = {name}
        sent.lives += 1
        sent.most += 1
        result = int(frame.get("delivery-count") or "1")
        assert result <= sent.most
        if name in DEAD_LETTERS:
            assert result >= sent.lives
        assert (frame.get("redelivered") == "true") == (result > 1)
        sent.holder = member
        member.mine[frame.get("message-id") or ""] = (frame, sent)

    def told_of_failure(self, member: Member) -> None:
        """Check that the ERROR is its last frame."""
        frames = member.actor.writes()
        assert [frame.command for frame in frames].count("ERROR") == 1
        error = frames.pop()
        assert (error.get("code"), error.get("message")) == ("storage", "no space left")
        for frame in frames:
            assert frame.command == "RECEIPT"
            self.receipted(member, frame.get("receipt-id") or "")
        assert any(asked.sent or asked.begins for asked in member.asked), "it has lost nothing"
        assert error.get("receipt-id") == member.asked[0].id
        for asked in member.asked:
            for sent in asked.sent:
                sent.state = WITHDRAWN
            if asked.sent:
                for sent in asked.acked:
                    sent.ack, sent.holder = UNTOUCHED, None
        self.replace(member)

    def replace(self, member: Member) -> None:
        for asked in member.asked:
            for sent in asked.sent:
                if sent.state == SENT:
                    sent.state = UNKNOWN
            for sent in asked.acked:
                if sent.ack == BOUND:
                    sent.ack, sent.holder = MAYBE, None
        for _, sent in member.mine.values():
            sent.holder = None
        member.actor.outbox.close(CloseReason.CONNECTION_LOST)
        member.actor.is_gone()
        self.core.peers.remove(member.actor)
        self.members[self.members.index(member)] = self.newcomer()

    # Book-keeping.

    def message(self, member: Member, name: str, survives: bool) -> Sent:
        self.count += 1
        sent = Sent(f"m{self.count}", name, member.name, self.count, survives, places={name})
        self.messages[sent.body] = sent
        return sent

    def ask(
        self,
        member: Member,
        sent: list[Sent],
        acked: list[Sent] | None = None,
        *,
        begins: bool = False,
    ) -> str:
        self.count += 1
        member.asked.append(Request(f"r{self.count}", sent, acked or [], begins))
        return f"r{self.count}"

    def holder(self, who: int) -> Member:
        holders = [member for member in self.members if member.mine]
        return holders[who % len(holders)]

    def quiet(self) -> None:
        """Let the store and the readers of pages come to an end."""
        self.settle()
        while self.core.turns or self.core.log.reads or self.pages:
            self.answer(99)
            self.read()
            while self.pages:
                self.give_page(True)

    def teardown(self) -> None:
        try:
            self.everything_is_found()
            self.nothing_is_left()
        finally:
            self.patch.undo()
            self.core.store.close()
            shutil.rmtree(self.directory)

    def everything_is_found(self) -> None:
        self.quiet()
        for member in list(self.members):
            self.replace(member)
        self.quiet()
        reader = self.members[0]
        for name in [*PLACES, *DEAD_LETTERS.values()]:
            self.subscribe_to(reader, name, 1000)
        self.quiet()
        while reader.mine:
            for frame, sent in list(reader.mine.values()):
                sent.ack = APPLIED
                reader.actor.acks(frame)
            reader.mine.clear()
            self.quiet()
        for sent in self.messages.values():
            if sent.state == PROMISED:
                assert sent.was_seen or sent.ack == SAFE, (sent, "is lost")
                assert sent.ack in (APPLIED, SAFE, MAYBE), (sent, "is lost")
            if sent.group and sent.state == UNKNOWN and sent.survives:
                seen = {each.was_seen for each in sent.group if each.survives}
                assert len(seen) == 1, "half a transaction"

    def nothing_is_left(self) -> None:
        core = self.core
        for queue in [
            *core.broker.queues,
            *(binding.queue for binding in core.broker.bindings.durables),
        ]:
            left = (queue.message_count, queue.size, queue.arriving, queue.spilling)
            assert left == (0, 0, 0, 0), queue.name
        log = core.log
        assert core.memory.kept_bytes == core.memory.used_bytes == log.pending_bytes == 0
        assert core.memory.stored_bytes == 0
        assert [*log.waiting, *log.leaving, *log.reads, *log.deliveries, *log._sent] == []
        assert core.store.statistics().live_messages == 0


EXAMPLES = {"memory": 60, "sqlite": 6, "postgresql": 4, "journal": 12, "replicated": 6}


@pytest.mark.parametrize("kind", KINDS)
def test_the_core_with_a_store_is_as_the_model_has_it(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    make_place(kind, tmp_path, request)  # or the test is skipped
    model = type("Model", (DurableModel,), {"kind": kind, "request": request})
    run_state_machine_as_test(
        model,
        settings=settings(
            max_examples=EXAMPLES[kind],
            stateful_step_count=40,
            deadline=None,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        ),
    )
