"""A copy of a delivery, and a broker without an explicit dialect."""

from tests.support.core import AMPLE, Core, ServerFake, counted_turns, run_of
from trio_stomp.base import MemoryBudget
from trio_stomp.broker import BrokerPolicies, Delivery, Setup, assemble
from trio_stomp.broker.delivery import NEVER, Destination, Publication
from trio_stomp.broker.names import Kind


def test_a_copy_with_other_tails_differs_in_them_and_their_size_alone() -> None:
    publication = Publication(Destination("/t", Kind.TOPIC), run_of("/t").head, [], 0.0, NEVER)
    copy = Delivery([b"", b"x\0"], 1, 2, publication, True, True).with_tails([b"abc"])
    assert copy.tails == [b"abc"]
    assert copy.size == 3
    assert (copy.count, copy.publication) == (1, publication)
    assert copy.is_paced
    assert copy.returns


def test_a_broker_speaks_the_native_dialect_unless_another_is_wanted() -> None:
    policies, memory = BrokerPolicies(), MemoryBudget(AMPLE)
    broker = assemble(
        Setup(
            policies=policies, memory=memory, server=ServerFake(), turns=counted_turns(), boot="b"
        )
    )
    assert broker.dialect == Core().broker.dialect
