"""Records that no store can hold: their senders get an ERROR, and nobody else notices."""

import math
from collections.abc import Sequence

import pytest

from tests.support.durable_fakes import DurableBench
from trio_stomp.broker.delivery import WallTime
from trio_stomp.store import MemoryStore, Turn, flaws_of

Q = "/queue/q"
TTL = "9" * 19


class Strict(MemoryStore):
    """A store whose encoder fails, as that of a journal does."""

    def append(self, turns: Sequence[Turn], expected: int) -> int:
        if flaws := flaws_of(turns):
            raise ValueError(flaws[0][1])
        return super().append(turns, expected)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> DurableBench:
    monkeypatch.setattr(
        WallTime, "expiry_ms", lambda wall, end: 0 if end == math.inf else wall.ms(end)
    )
    return DurableBench(store=Strict(), is_prompt=False)


def test_only_the_sender_gets_an_error(desk: DurableBench) -> None:
    reader = desk.reader(Q)
    first, bad, last = desk.actor(), desk.actor(), desk.actor()
    first.sends(Q, "1", persistent="true", receipts=[(1, b"1")])
    bad.sends(Q, "2", persistent="true", receipts=[(1, b"2")])
    bad.sends(Q, "3", persistent="true", ttl=TTL, receipts=[(1, b"3")])
    last.sends(Q, "4", persistent="true", receipts=[(1, b"4")])
    used = desk.broker.memory.used_bytes
    desk.turn()
    desk.answers()
    assert reader.bodies() == ["1", "2", "4"]
    assert [actor.frames()[0].get("receipt-id") for actor in (first, last)] == ["1", "4"]
    receipt, error = bad.frames()
    assert receipt.get("receipt-id") == "2"
    assert (error.get("code"), error.get("receipt-id")) == ("unstorable", "3")
    assert error["message"].startswith("this cannot be stored: expires_ms is ")
    assert desk.broker.memory.used_bytes < used


def test_the_id_of_what_is_left_out_is_not_remembered(desk: DurableBench) -> None:
    good, bad = desk.actor(), desk.actor()
    good.sends(Q, "1", persistent="true", x_dedup_id="1")
    bad.sends(Q, "2", persistent="true", ttl=TTL, x_dedup_id="2")
    desk.turn()
    desk.answers()
    desk.appends()
    again = desk.restarts()
    for id, is_known in (("1", "true"), ("2", None)):
        actor = again.actor()
        actor.sends(Q, id, persistent="true", x_dedup_id=id, receipts=[(1, b"r")])
        again.appends()
        assert actor.frames()[-1].get("duplicate") == is_known


def test_what_nobody_waits_for_is_left_out_too(desk: DurableBench) -> None:
    """A schedule that is due: its message is lost, and those after it are delivered."""
    reader, actor = desk.reader(Q), desk.actor()
    actor.sends(Q, "bad", persistent="true", ttl=TTL, AMQ_SCHEDULED_DELAY="1000")
    actor.sends(Q, "good", persistent="true", AMQ_SCHEDULED_DELAY="1000")
    desk.appends()
    desk.passes(1)
    desk.answers()
    assert reader.bodies() == ["good"]


def test_a_record_that_is_retried_is_left_out(desk: DurableBench) -> None:
    reader, actor = desk.reader(Q), desk.actor()
    actor.sends(Q, "bad", persistent="true", ttl=TTL, AMQ_SCHEDULED_DELAY="1000")
    desk.appends()
    desk.passes(1)
    desk.fails()
    desk.answers()
    actor.sends(Q, "good", persistent="true")
    desk.appends()
    assert "good" in reader.bodies()


def test_a_setting_that_cannot_be_stored_is_left_out(desk: DurableBench) -> None:
    reader = desk.reader(Q)
    desk.log.keep("half of a pair: \ud800", "")
    desk.actor().sends(Q, "good", persistent="true")
    desk.log.keep("\ud800", "")
    desk.appends()
    assert reader.bodies() == ["good"]
