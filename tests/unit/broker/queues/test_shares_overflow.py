"""A large message that pushes out very many small ones does so in pieces."""

from collections.abc import Callable

import pytest

from tests.support.core import Actor, run_of
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


def test_message_that_never_fits_drops_no_others() -> None:
    desk = Clocked(book={Q: DestinationPolicy(max_bytes=MANY, overflow="drop-oldest")})
    sender = desk.actor()
    sender.sends(Q, *["x"] * MANY)
    sender.sends(Q, "y" * (MANY + 1))
    desk.settles()
    assert sender.error().get("code") == "queue-full"
    assert len(desk.waiting(Q)) == MANY


def _composite(desk: Clocked, sender: Actor, large: str) -> None:
    sender.sends(f"{Q},/queue/beside", large)


def _commit(desk: Clocked, sender: Actor, large: str) -> None:
    half = len(large) // 2
    sender.commits(run_of(Q, [large[:half]]), run_of(Q, [large[half:]]))


def _schedule(desk: Clocked, sender: Actor, large: str) -> None:
    for body in (large, "the next"):  # at the same time
        sender.sends(Q, body, AMQ_SCHEDULED_DELAY="1000")
    desk.passes(2)


@pytest.mark.parametrize("send", [_composite, _commit, _schedule])
def test_every_kind_of_large_message_pushes_out_in_pieces(
    send: Callable[[Clocked, Actor, str], None],
) -> None:
    desk = Clocked(book={Q: DestinationPolicy(max_bytes=MANY, overflow="drop-oldest")})
    sender, other = desk.actor(), desk.actor()
    for _ in range(MANY // 100):
        sender.sends(Q, *["x"] * 100)
    desk.settles()
    desk.pieces.clear()
    send(desk, sender, "y" * (MANY - 100))
    other.sends("/queue/b", "beside it")
    desk.turn()
    assert desk.waiting("/queue/b") == ["beside it"]
    while desk.broker.has_more or desk.broker.timers.next_due <= desk.now:
        desk.passes(0)
    assert max(desk.pieces) <= MOST
    assert len(desk.pieces) > 3
    left = desk.waiting(Q)
    assert 90 <= len([body for body in left if body == "x"]) <= 100
    rest = [body for body in left if body != "x"]
    assert "".join(rest).removesuffix("the next") == "y" * (MANY - 100)
    assert rest[-1] == "the next" or send is not _schedule


def test_a_commit_that_must_make_room_is_checked_again_after_it() -> None:
    policies = {
        Q: DestinationPolicy(max_bytes=MANY, overflow="drop-oldest"),
        "/queue/small": DestinationPolicy(max_messages=1),
    }
    desk = Clocked(book=policies)
    sender, other = desk.actor(), desk.actor()
    for _ in range(MANY // 100):
        sender.sends(Q, *["x"] * 100)
    desk.settles()
    sender.commits(run_of(Q, ["y" * MANY]), run_of("/queue/small", ["z"]))
    other.sends("/queue/small", "who came first")
    desk.settles()
    assert sender.error().get("code") == "queue-full"
    assert "y" * MANY not in desk.waiting(Q)
    assert desk.waiting("/queue/small") == ["who came first"]


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


def test_a_composite_to_topics_pushes_parked_messages_out_in_pieces() -> None:
    policies = BrokerPolicies(
        max_stale_queue_bytes=8_000_000, stale_overflow="drop-oldest", max_destinations=MANY
    )
    desk = Clocked(policies, book={"/topic/>": DestinationPolicy(ttl_ms=60_000)})
    sender = desk.actor()
    for number in range(5_000):
        sender.sends(f"/topic/{number}", "x")
    desk.settles()
    desk.pieces.clear()
    sender.sends("/topic/large,/topic/large2", "y" * 3_900_000)
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert desk.broker.stale.depth("/topic/large") == desk.broker.stale.depth("/topic/large2") == 1


def test_message_that_can_never_be_parked_drops_no_others() -> None:
    policies = BrokerPolicies(max_stale_queue_bytes=2_000_000, stale_overflow="drop-oldest")
    desk = Clocked(policies, book={"/topic/>": DestinationPolicy(ttl_ms=60_000)})
    sender = desk.actor()
    for number in range(1_000):
        sender.sends(f"/topic/{number}", "x")
    desk.settles()
    sender.sends("/topic/large", "y" * 2_000_000)
    desk.settles()
    assert desk.broker.stale.size == 1_000
