"""Very many selectors of a work queue are evaluated in pieces for work that no client sends now."""

import pytest

from tests.support.core import Actor
from tests.support.share_fakes import MOST, Clocked
from trio_stomp.broker import DestinationPolicy

WORK = "#work"
MANY = 500
FEW = {"prefetch-count": "1"}


def _members(desk: Clocked, *, wanted: bool) -> tuple[Actor, Actor]:
    """Return members with very many selectors, one of which may match, and one without."""
    choosy, plain = desk.actor(), desk.actor()
    for number in range(MANY):
        choosy.subscribes(WORK, f"{number}", ack="client-individual", selector=f"n = {number}")
    if wanted:
        choosy.subscribes(WORK, "it", ack="client-individual", selector="n = -1")
    plain.subscribes(WORK, ack="client-individual", **FEW)
    desk.settles()
    desk.pieces.clear()
    return choosy, plain


def test_a_scheduled_message_is_given_after_all_selectors_were_evaluated_in_pieces(
    desk: Clocked,
) -> None:
    choosy, plain = _members(desk, wanted=False)
    plain.unsubscribes()
    desk.actor().sends(WORK, "x", n="7", AMQ_SCHEDULED_DELAY="1000")
    desk.passes(2)
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert [(each.get("subscription"), each.text) for each in choosy.messages()] == [("7", "x")]


@pytest.mark.parametrize("wanted", [True, False])
def test_refused_work_goes_to_a_member_that_selects_it_or_returns(wanted: bool) -> None:
    desk = Clocked(book={WORK: DestinationPolicy(max_redeliveries=5)})
    choosy, plain = _members(desk, wanted=wanted)
    sender = desk.actor()
    while not (given := plain.reads()):
        sender.sends(WORK, "x", n="-1")
        desk.settles()
        choosy.writes()
    desk.pieces.clear()
    plain.nacks(given[0])
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert [each.text for each in choosy.messages()] == ["x"] * wanted
    assert [each.text for each in plain.reads()] == ["x"] * (not wanted)


def test_work_of_a_leaving_member_goes_to_one_that_selects_it(desk: Clocked) -> None:
    choosy, plain = _members(desk, wanted=False)
    sender = desk.actor()
    for _ in range(10):
        sender.sends(WORK, "x", n="7")
    desk.settles()
    choosy.writes()
    desk.pieces.clear()
    plain.is_gone()
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert [each.text for each in choosy.messages()] == ["x"] * 5


def test_many_queries_for_remaining_messages_are_answered_in_pieces() -> None:
    desk = Clocked()
    sender, asker = desk.actor(), desk.actor()
    for _ in range(100):
        sender.sends("/queue/q", *["x"] * 100, AMQ_SCHEDULED_DELAY="100000")
    asker.subscribes("DIAG/left")
    desk.settles()
    desk.pieces.clear()
    asker.sends("DIAG/left", *["{}"] * 100)
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert len(asker.messages()) == 100
