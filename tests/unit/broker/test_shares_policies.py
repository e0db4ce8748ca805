"""New policies apply to many existing destinations in pieces."""

from attrs import field, frozen

from tests.support.share_fakes import MOST, Clocked
from trio_stomp.broker import Binding, DestinationPolicy, PolicyBook
from trio_stomp.broker.routing import DestinationPolicy as Policy
from trio_stomp.protocol import Subscribed

MANY = 2_000


@frozen(eq=False, repr=False)
class Counting(PolicyBook):
    """Records the names that it is called with."""

    asked: list[str] = field(factory=list)

    def policy_for(self, name: str) -> Policy:
        """Answer as it does."""
        self.asked.append(name)
        return super().policy_for(name)


def bounds(desk: Clocked) -> set[int]:
    return {queue.policy.max_messages for queue in desk.broker.queues}


def book(bound: int) -> Counting:
    return Counting([(">", DestinationPolicy(max_messages=bound))])


def test_policies_are_given_out_in_pieces(desk: Clocked):
    sender = desk.queues(MANY)
    durable, lasting = desk.actor(), (("durable-subscription-name", "d"),)
    for number in range(9):
        durable.does(Subscribed(f"{number}", f"/topic/{number}", "client", lasting, None))
    durable.subscribes("/topic/t", "t", ack="client")
    durable.subscribes("/topic/t", "plain")
    desk.pieces.clear()
    new = book(7)
    desk.broker.use_policies(new)
    first = len(new.asked)
    assert 0 < first < MANY
    sender.sends("/queue/new", "x")
    assert desk.queue("/queue/new").policy.max_messages == 7
    desk.turn()
    assert len(new.asked) < 2 * first + MANY / 2, "others come between"
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert bounds(desk) == {7}
    bindings = [each.binding for each in durable.client.subscriptions.values()]
    assert {
        binding.queue.policy.max_messages for binding in bindings if isinstance(binding, Binding)
    } == {7}


def test_the_last_policies_apply_and_forgotten_destinations_are_not_configured():
    desk = Clocked()
    desk.queues(MANY)
    desk.broker.use_policies(book(7))
    desk.broker.use_policies(book(8))
    last = f"/queue/z{MANY - 1:05}"
    gone = desk.queue(last)
    destination = desk.broker.destinations.find_current(last)
    assert destination is not None
    desk.broker.queues.end(last, desk.now)
    del desk.broker.destinations._destinations[last]
    desk.settles()
    assert bounds(desk) == {8}
    assert gone.policy.max_messages == 0
