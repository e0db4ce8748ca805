"""Leases as seen by nodes with different clocks, and with messages that are late or lost."""

import pytest
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_stomp.cluster import Lease, LeaseOptions
from trio_stomp.cluster.leases import Claim

TIMES = LeaseOptions(ttl_s=10, renew_s=2, rank_s=1)


def lease(node: str = "a", rank: int = 0, at: float = 100.0) -> Lease:
    return Lease(node, rank, TIMES, at)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_lease_that_nobody_holds_is_taken_in_order_of_preference(rank: int) -> None:
    found = lease(rank=rank)
    assert found.due() == 100 + rank
    assert not found.is_held(100)
    found.confirm(1, Claim("a"), 101)
    assert (found.is_held(110.9), found.is_held(111)) == (True, False)
    assert found.due() == 102  # at a multiple of the interval, with the node's other leases


def test_another_nodes_lease_is_taken_when_it_was_not_renewed() -> None:
    found = lease(rank=1)
    found.note(1, Claim("b"), 105)
    assert found.due() == 116
    found.note(2, Claim("b"), 108)
    assert found.due() == 119
    found.note(1, Claim("b"), 118)  # an old message, read again
    assert found.due() == 119


def test_a_lost_lease_is_lost_though_a_confirmation_comes_late() -> None:
    found = lease()
    found.confirm(1, Claim("a"), 100)
    found.note(3, Claim("b"), 101)
    found.confirm(2, Claim("a"), 102)
    assert not found.is_held(102)
    assert found.claim.holder == "b"


def test_lease_of_an_earlier_process_of_the_node_is_taken_immediately() -> None:
    found = lease()
    found.note(7, Claim("a"), 101)
    assert not found.is_held(101)
    assert found.due() == 101
    found.confirm(8, Claim("a"), 101)
    assert found.is_held(102)


def test_a_write_without_a_confirmation_extends_nothing() -> None:
    found = lease()
    found.confirm(1, Claim("a"), 100)
    found.note(2, Claim("a"), 109)  # as far as is known, it was sent at 102
    assert not found.is_held(110)
    assert found.sequence == 2


@pytest.mark.parametrize(("heir", "due"), [("a", 105), ("b", 116), ("", 106)])
def test_a_lease_that_was_given_up(heir: str, due: float) -> None:
    found = lease(rank=1)
    found.note(1, Claim("c"), 101)
    found.note(2, Claim("", heir), 105)
    assert found.due() == due
    assert not found.is_held(105)
    found.is_candidate = False
    assert found.due() > 1e9


def test_a_node_that_is_not_up_to_date_takes_no_lease_but_renews_its_own() -> None:
    found = lease()
    found.is_candidate = False
    found.note(1, Claim("a"), 101)  # from an earlier process of this node
    assert found.due() > 1e9
    found.is_candidate = True
    found.confirm(2, Claim("a"), 102)
    found.is_candidate = False
    assert found.due() == 104


def test_the_holder_tells_who_follows_and_a_new_one_keeps_them_and_the_former_holder() -> None:
    found = lease()
    assert found.is_follower
    found.note(1, Claim("b", followers=("c",)), 101)
    assert not found.is_follower
    claim = found.taken("here")
    assert claim == Claim("a", "", "here", ("b", "c"))
    found.confirm(2, claim, 102)
    found.followers = ("d",)  # as chosen
    found.confirm(3, claim, 103)  # sent before that
    assert found.taken("here").followers == ("d",)
    assert found.given_up("d") == Claim("", "d", "", ("a", "d"))


def test_the_lease_of_an_earlier_process_tells_who_follows() -> None:
    found = lease()
    found.note(1, Claim("a", followers=("b",)), 101)
    assert found.is_follower
    assert found.taken("").followers == ("b",)


def test_an_heir_follows() -> None:
    found = lease()
    found.note(1, Claim("", "a", followers=("b",)), 101)
    assert found.is_follower


@define
class Node:
    """A node with its own clock."""

    lease: Lease
    speed: float
    offset: float
    unread: int = 0
    """The messages of the stream that it has not read yet."""

    def clock(self, now: float) -> float:
        return now * self.speed + self.offset


@define
class World:
    """Three nodes, and a stream that stores a message only after the expected one."""

    nodes: list[Node]
    now: float = 0.0
    messages: list[str] = field(factory=list)

    def write(self, node: Node, *, is_answered: bool) -> None:
        sent_at = node.clock(self.now)
        if node.lease.sequence != len(self.messages):
            return
        self.messages.append(node.lease.node)
        for each in self.nodes:
            each.unread += 1
        if is_answered:
            node.lease.confirm(len(self.messages), Claim(node.lease.node), sent_at)

    def read(self, node: Node, count: int) -> None:
        for _ in range(min(count, node.unread)):
            sequence = len(self.messages) - node.unread + 1
            node.lease.note(sequence, Claim(self.messages[sequence - 1]), node.clock(self.now))
            node.unread -= 1


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([0.05, 0.5, 3.0, 11.0]),
        st.integers(0, 3),
        st.booleans(),
        st.booleans(),
    ),
    max_size=60,
)


@given(STEPS, st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
@settings(max_examples=300)
def test_no_two_hold_a_lease_at_once_whatever_is_late(
    steps: list[tuple[int, float, int, bool, bool]], offsets: list[float]
) -> None:
    """The clocks run equally fast; reads may be late by any time."""
    world = World([])
    for rank, offset in enumerate(offsets):
        world.nodes.append(Node(Lease("abc"[rank], rank, TIMES, offset), 1.0, offset))
    for number, seconds, count, writes, is_answered in steps:
        world.now += seconds
        node = world.nodes[number]
        world.read(node, count)
        if writes and node.lease.due() <= node.clock(world.now):
            world.write(node, is_answered=is_answered)
        holders = [each for each in world.nodes if each.lease.is_held(each.clock(world.now))]
        assert len(holders) <= 1
