"""A queue that ends releases its messages in pieces."""

import pytest

from tests.support.share_fakes import MOST, Clocked

MANY = 20_000


@pytest.mark.parametrize("how", ["unsubscribe", "is_gone"])
def test_unacknowledged_messages_of_a_subscription_are_released_in_pieces(desk: Clocked, how: str):
    sender, reader = desk.actor(), desk.actor()
    reader.subscribes("/topic/t", ack="client-individual", **{"prefetch-count": "1"})
    sender.sends("/topic/t", *["x"] * MANY)
    desk.settles()
    desk.pieces.clear()
    reader.unsubscribes() if how == "unsubscribe" else reader.is_gone()
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert len(desk.pieces) > 3
    assert desk.memory.kept_bytes == 0


def test_messages_of_a_temporary_queue_are_released_in_pieces(desk: Clocked):
    sender, reader = desk.actor(), desk.actor()
    reader.sends("/topic/ask", "?", reply_to="/temp-queue/r")
    name = reader.client.temporary["/temp-queue/r"]
    reader.outbox.room = 0
    sender.sends(name, *["x"] * MANY)
    desk.settles()
    assert len(desk.waiting(name)) > MANY / 2
    desk.pieces.clear()
    reader.is_gone()
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert len(desk.pieces) > 3
    assert desk.memory.kept_bytes == 0
