"""What takes messages that are not sent at once: in a core that has only some destinations."""

from collections.abc import Callable, Iterable
from typing import Any

from attrs import define, evolve, field

from tests.support.core import run_of
from tests.support.durable_fakes import DurableBench
from tests.support.owners import ALICE, Q, enters, rules
from trio_stomp.broker import Broker, Client, Setup, assemble
from trio_stomp.broker.delivery import NotYet, Stop, Work
from trio_stomp.broker.headers import IN_MEMORY, SendOutcome, SendPlan, make_plan
from trio_stomp.broker.sending import Later, Planned, SendContext, SendLater
from trio_stomp.frames import Head
from trio_stomp.store import MemoryStore, Put, Stored

FAR, PLACE = "/queue/far", "elsewhere:"
STORED = (("persistent", "true"),)


@define(eq=False)
class Taker:
    """Takes what is for names that end with ``far``. Implements ``Later``."""

    own: SendLater
    taken: list[bytes] = field(factory=list)
    restored: list[bytes] = field(factory=list)
    busy: bool = False
    turns: Any = None

    def lacks(self, name: str) -> bool:
        return name.endswith("far")

    def plan(self, head: Head) -> SendPlan:
        if not isinstance(head.plan, SendPlan):
            plan = make_plan(head, self.own.dialect)
            here = tuple(name for name in plan.names if not self.lacks(name))
            head.plan = plan if here == plan.names else evolve(plan, later=self, here=here)
        assert isinstance(head.plan, SendPlan)
        return head.plan

    def honest(self, client: Client, head: Head, honest: Head) -> tuple[Head, SendPlan]:
        return self.own.honest(client, head, honest)

    def check(self, planned: Planned, head: Head, plan: SendPlan, bodies: list[bytes]) -> None:
        planned.keep(plan.names[0], head, bodies)

    def take(
        self, context: SendContext, head: Head, plan: SendPlan, bodies: list[bytes]
    ) -> SendOutcome:
        assert plan.later is self
        self.taken += bodies
        return IN_MEMORY

    def is_done(self, client: Client, now: float) -> bool:
        if not self.busy:
            return True
        if client.is_gone:
            return False
        raise NotYet(self._work(client))

    def _work(self, client: Client) -> Work:
        while self.busy and not client.is_gone:
            self.turns.stop(Stop.BLOCKED)
            yield

    def restore(self, place: str, read: Callable[[], Iterable[Stored]]) -> None:
        if place != PLACE:
            self.own.restore(place, read)
        self.restored += [body for run in read() for body in run.bodies]


@define(eq=False, repr=False)
class TakerBench(DurableBench):
    """A core that is given something to take what is for others."""

    taker: Taker = field(init=False)

    def assemble(self, setup: Setup) -> Broker:
        def later(own: SendLater) -> Later:
            self.taker = Taker(own)
            return self.taker

        broker = assemble(
            evolve(setup, later=later, counts=lambda names, _: "/topic/*" not in names)
        )
        self.taker.turns = broker.turns
        return broker


def test_messages_for_others_make_no_destination_and_are_in_one_group_with_the_rest() -> None:
    core = TakerBench()
    sender, reader = core.actor(), core.reader(Q)
    sender.sends(FAR, "a", receipts=[(1, b"1")])
    core.is_prompt = False
    sender.commits(run_of(FAR, ["b"]), run_of(Q, ["c"]))
    assert core.taker.taken == [b"a", b"b"]
    assert reader.bodies() == []  # all is stored, since what is for others is
    core.answers()
    core.is_prompt = True
    core.turn()
    assert reader.bodies() == ["c"]
    assert [frame.get("receipt-id") for frame in sender.frames()] == ["1", "done"]
    assert core.broker.destinations.find(FAR) is None


def test_messages_for_others_count_as_stored() -> None:
    core = TakerBench()
    publisher = core.broker.publisher
    for name, expected in (
        (FAR, [True]),
        (f"{Q},{FAR}", [False, True]),
        (f"{FAR},/temp-queue/x", [False, True]),
        ("/temp-queue/x", [False]),
    ):
        assert publisher.storing(run_of(name).head, None) == expected
    assert publisher.storing(run_of(f"{Q},{FAR}", headers=STORED).head, None) == [True, True]
    core.broker.refuse_durable("no answer", "in doubt", core.now)
    sender = core.actor()
    sender.sends(FAR, "a")
    assert sender.error().get("code") == "storage"
    assert core.taker.taken == []


def test_an_empty_commit_waits_until_all_has_left() -> None:
    core = TakerBench()
    sender, gone = core.actor(), core.actor()
    core.taker.busy = True
    sender.commits(receipt=b"left")
    gone.commits(receipt=b"never")
    core.turn()
    assert sender.frames() == []
    gone.is_gone()
    core.turn()
    core.taker.busy = False
    core.broker.turns.resume(sender.client)
    core.turn()
    (receipt,) = sender.frames()
    assert receipt.get("receipt-id") == "left"
    assert gone.outbox.written == []


def test_the_right_to_create_is_checked_by_those_who_have_the_queue() -> None:
    core = TakerBench(rules=rules("alice"))
    alice = enters(core, ALICE)
    alice.sends(FAR, "a")
    assert core.taker.taken == [b"a"]
    assert core.broker.lacks(FAR)


def test_messages_of_a_place_that_only_others_know_are_restored_by_them() -> None:
    store = MemoryStore()
    core = TakerBench(store=store)
    core.log.put(Put(PLACE, core.log.take_numbers(1), b"x", [b"a"]), must_retry=True)
    core.turn()
    assert TakerBench(store=store).taker.restored == [b"a"]
    assert DurableBench(store=store).failures == [
        f"{PLACE!r} cannot be restored: its parent record is missing"
    ]


def test_a_subscription_that_does_not_count_costs_as_others() -> None:
    core = TakerBench()
    core.reader("/topic/*")
    core.reader("/topic/*", durable_subscription_name="d")
    core.reader("/topic/>")
    core.turn()
    figures = core.broker.statistics()
    assert (figures.subscriptions, figures.copies, figures.wildcards) == (1, 2, 1)
    for each in (core, TakerBench(store=core.store)):
        (durable,) = each.broker.bindings.durables
        assert not durable.is_counted
    lone = TakerBench()
    lone.reader("/topic/*")
    assert lone.broker.publisher.cost_of(lone.actor().client, run_of("/topic/new").head) > 0


def test_a_lower_limit_of_schedules_refuses_no_transaction_without_them() -> None:
    core = DurableBench(rules=rules("alice"))
    alice = enters(core, ALICE)
    for _ in range(3):
        alice.sends("/topic/t", "later", AMQ_SCHEDULED_DELAY="5000")
    object.__setattr__(core.policies, "max_schedules_per_user", 2)  # as a reload does
    alice.commits(run_of("/topic/t", ["now"]))
    assert [frame.command for frame in alice.frames()] == ["RECEIPT"]
    later = (("AMQ_SCHEDULED_DELAY", "5000"),)
    alice.commits(run_of("/topic/t", ["later"], later))
    assert alice.error().get("code") == "too-many-schedules"


def test_one_broker_has_all_destinations() -> None:
    assert not DurableBench().broker.lacks("/queue/x")


def test_a_transaction_without_actions_is_committed() -> None:
    actor = DurableBench().actor()
    actor.commits()
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]
