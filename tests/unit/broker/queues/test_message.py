"""A waiting message, and the order in which messages wait."""

from tests.support.core import HEAD, OVERHEAD, run_of
from trio_stomp.base import Quota
from trio_stomp.broker import MemoryBudget
from trio_stomp.broker.delivery import NEVER, Destination, Publication
from trio_stomp.broker.headers import SendOptions
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import MESSAGE_OVERHEAD_BYTES, Message, charge, cost_alone, cost_of
from trio_stomp.broker.queues._message import force, refund

ROUTE = Destination("/queue/q", Kind.QUEUE)


def message(number: int, options: SendOptions | None = None) -> Message:
    """Return a message of two bytes."""
    head = run_of("/queue/q").head
    publication = Publication(ROUTE, head, [], 0.0, NEVER, None, options)
    return Message(number, publication, b"xy", 4)


def test_messages_cost_their_bodies_the_overhead_and_their_header_blocks_once():
    assert MESSAGE_OVERHEAD_BYTES == OVERHEAD
    one, other = message(1), message(2)
    assert cost_of([one]) == OVERHEAD + 2 + HEAD
    assert cost_of([one, other]) == 2 * (OVERHEAD + 2) + 2 * HEAD
    assert cost_of([one, one]) == 2 * (OVERHEAD + 2) + HEAD


def test_a_header_block_is_charged_until_the_last_of_its_messages_has_gone():
    memory, head = MemoryBudget(3 * OVERHEAD + HEAD + 5), run_of("/queue/q").head
    assert charge(memory, head, 2, 3)
    assert memory.kept_bytes == memory.used_bytes == 2 * OVERHEAD + HEAD + 3
    assert not charge(memory, head, 1, 3)
    assert charge(memory, head, 1, 2)
    assert not charge(memory, run_of("/queue/q").head, 1, 0)
    refund(memory, head, 2, 3)
    assert memory.kept_bytes == OVERHEAD + HEAD + 2
    refund(memory, head, 1, 2)
    assert memory.kept_bytes == memory.used_bytes == head.waiting_count == 0
    force(memory, head, 1, 1000)
    assert memory.kept_bytes == OVERHEAD + HEAD + 1000 > memory.limit_bytes
    refund(memory, head, 1, 1000)
    assert memory.kept_bytes == memory.used_bytes == 0
    assert cost_alone(head, 2, 3) == 2 * OVERHEAD + HEAD + 3


def test_a_header_block_is_charged_to_its_first_user_while_messages_have_it() -> None:
    memory, one, two = MemoryBudget(1 << 20), Quota("one"), Quota("two")
    head = run_of("/queue/q").head
    assert charge(memory, head, 2, 20, one)
    assert charge(memory, head, 1, 5, two)
    assert (one.kept_bytes, two.kept_bytes) == (head.cost + 20 + 2 * 256, 5 + 256)
    refund(memory, head, 2, 20, one)
    assert (one.kept_bytes, head.payer) == (head.cost, one)
    refund(memory, head, 1, 5, two)
    assert (one.kept_bytes, two.kept_bytes, memory.kept_bytes) == (0, 0, 0)
    assert charge(memory, head, 1, 5, two)
    assert (one.kept_bytes, head.payer) == (0, two)


def test_group_is_the_one_set_by_the_sender():
    assert message(1).group == ""
    assert message(1, options=SendOptions(group="g")).group == "g"
