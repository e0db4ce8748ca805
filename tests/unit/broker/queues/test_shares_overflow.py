"""A large message that pushes out very many small ones does so in pieces."""

import pytest

from tests.support.share_fakes import MOST, Clocked
from trio_stomp.broker import BrokerPolicies, DestinationPolicy, MemoryBudget

Q = "/queue/q"
MANY = 20_000


def test_a_queue_drops_its_oldest_in_pieces() -> None:
    desk = Clocked(book={Q: DestinationPolicy(max_bytes=MANY, overflow="drop-oldest")})
    _fills_and_pushes_out(desk)
    assert desk.broker.overflow.dropped == MANY - 100


def test_a_queue_dead_letters_its_oldest_in_pieces() -> None:
    desk = Clocked(book={Q: DestinationPolicy(max_bytes=MANY, overflow="dead-letter")})
    _fills_and_pushes_out(desk)
    assert len(desk.waiting("/queue/DLQ.q")) == MANY - 100


def test_full_memory_drops_the_oldest_in_pieces() -> None:
    memory = MemoryBudget(10_000_000)
    desk = Clocked(memory=memory, book={Q: DestinationPolicy(overflow="drop-oldest")})
    sender = desk.actor()
    while desk.broker.overflow.dropped == 0:
        sender.sends(Q, *["x"] * 100)
        desk.settles()
    desk.pieces.clear()
    sender.sends(Q, "y" * 4_000_000, receipts=[(1, b"r")])
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert len(desk.pieces) > 3
    assert [each.command for each in sender.writes()] == ["RECEIPT"]
    assert len(desk.waiting(Q)[-1]) == 4_000_000


def test_what_never_fits_pushes_nothing_out() -> None:
    desk = Clocked(book={Q: DestinationPolicy(max_bytes=MANY, overflow="drop-oldest")})
    sender = desk.actor()
    sender.sends(Q, *["x"] * MANY)
    sender.sends(Q, "y" * (MANY + 1))
    desk.settles()
    assert sender.error().get("code") == "queue-full"
    assert len(desk.waiting(Q)) == MANY


def _fills_and_pushes_out(desk: Clocked) -> None:
    sender, other = desk.actor(), desk.actor()
    for _ in range(MANY // 100):
        sender.sends(Q, *["x"] * 100)
    desk.settles()
    desk.pieces.clear()
    sender.sends(Q, "y" * (MANY - 100), receipts=[(1, b"r")])
    other.sends("/queue/b", "beside it")
    desk.turn()
    assert desk.waiting("/queue/b") == ["beside it"]
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert len(desk.pieces) > 3
    assert [each.command for each in sender.writes()] == ["RECEIPT"]
    assert len(desk.waiting(Q)) == 101


@pytest.mark.parametrize("has_expired", [False, True])
@pytest.mark.parametrize("overflow", ["drop-oldest", "drop-newest"])
def test_parked_messages_are_pushed_out_in_pieces(overflow: str, has_expired: bool) -> None:
    policies = BrokerPolicies(
        max_stale_queue_bytes=8_000_000, stale_overflow=overflow, max_destinations=MANY
    )
    desk = Clocked(policies, book={"/topic/>": DestinationPolicy(ttl_ms=60_000)})
    sender = desk.actor()
    for number in range(5_000):
        sender.sends(f"/topic/{number}", "x")
    desk.settles()
    parked = desk.broker.stale.size
    desk.now += 70 * has_expired
    desk.pieces.clear()
    sender.sends("/topic/large", "y" * 7_900_000)
    desk.settles()
    is_kept = has_expired or overflow == "drop-oldest"
    assert (desk.broker.stale.depth("/topic/large") == 1) is is_kept
    if is_kept:
        assert max(desk.pieces) <= MOST
        assert len(desk.pieces) > (1 if has_expired else 3)
        assert desk.broker.stale.size < parked / 2


def test_what_can_never_be_parked_pushes_nothing_out() -> None:
    policies = BrokerPolicies(max_stale_queue_bytes=2_000_000, stale_overflow="drop-oldest")
    desk = Clocked(policies, book={"/topic/>": DestinationPolicy(ttl_ms=60_000)})
    sender = desk.actor()
    for number in range(1_000):
        sender.sends(f"/topic/{number}", "x")
    desk.settles()
    sender.sends("/topic/large", "y" * 2_000_000)
    desk.settles()
    assert desk.broker.stale.size == 1_000
