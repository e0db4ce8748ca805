"""The core's submissions to the store: turns, atomic groups, and failures."""

import tracemalloc
from contextlib import suppress

import pytest
from attrs import define, field

from tests.support.core import OutboxFake, counted_turns
from tests.support.durable_fakes import DurableBench
from trio_stomp.broker import Client, DestinationPolicy, Log
from trio_stomp.broker.durability import Callback, Effect, FrameReply, WrittenAgain
from trio_stomp.broker.durability import _log as log_module
from trio_stomp.broker.headers import SendOutcome
from trio_stomp.store import Append, Atomic, Begin, Delivered, Done, Forget, Keep, Put, Record, Turn


@define(eq=False)
class Noted:
    """An effect that records its outcome."""

    name: str
    reported: list[str]
    client: Client | None = None

    def commit(self, now: float) -> None:
        self.reported.append(f"{self.name} holds")

    def withdraw(self, now: float) -> None:
        self.reported.append(f"{self.name} is withdrawn")


@define(eq=False)
class Shown(Noted, WrittenAgain):
    """An effect of messages of the stream that it is named after."""

    again: list[tuple[str, object]] = field(factory=list)

    def take_back(self) -> None:
        self.again.append(("take back", self))

    def write_again(self) -> None:
        self.again.append(("write", self))


@define(eq=False)
class Bench:
    """A log, and the outcomes of its effects."""

    log: Log = field(factory=lambda: Log("stored:journal", counted_turns()))
    reported: list[str] = field(factory=list)

    def notes(self, name: str, client: Client | None = None) -> None:
        self.log.when_safe(Noted(name, self.reported, client))

    def takes(self) -> list[Record]:
        turn = self.log.take()
        assert turn is not None
        return list(turn.records)


def client() -> Client:
    return Client("s1", OutboxFake("1.2"))


def staged(client: Client) -> list[bytes]:
    assert isinstance(client.outbox, OutboxFake)
    return [prefix for prefix, _ in client.outbox.staged]


def kinds(records: list[Record]) -> list[type]:
    return [type(record) for record in records]


def put(log: Log, *, must_retry: bool = False, body: bytes = b"body") -> int:
    return log.put(Put("queue:q", log.take_numbers(1), b"", [body]), must_retry=must_retry)


def test_a_turn_in_which_nothing_is_said_is_none() -> None:
    log = Log("memory", counted_turns())
    assert log.take() is None
    with log.atomically():
        pass
    assert log.take() is None


def test_a_receipt_names_the_store_once() -> None:
    assert (
        Log("stored:journal", counted_turns()).stored
        == Log("journal", counted_turns()).stored
        == SendOutcome(stored="journal")
    )


def test_records_come_in_order_with_done_ones_last() -> None:
    bench = Bench()
    bench.log.finish(7)
    bench.log.hand_out([8, 9])
    first = put(bench.log)
    bench.log.keep("key", "text")
    bench.log.forget("key")
    records = bench.takes()
    assert kinds(records) == [Put, Keep, Forget, Delivered, Done]
    assert isinstance(records[0], Put)
    assert records[0].first == first == 1
    assert put(bench.log) == 2


def test_effects_wait_for_their_own_turn_and_no_other() -> None:
    bench = Bench()
    put(bench.log)
    bench.notes("first")
    bench.takes()
    put(bench.log)
    bench.notes("second")
    bench.takes()
    bench.log.commit(1, 0.0)
    assert bench.reported == ["first holds"]
    bench.log.commit(2, 0.0)
    assert bench.reported == ["first holds", "second holds"]
    assert bench.log.pending_bytes == 0


def test_an_effect_of_a_turn_that_writes_nothing_waits_for_the_one_before() -> None:
    bench = Bench()
    put(bench.log)
    bench.takes()
    bench.notes("late")
    assert bench.log.take() is None
    bench.log.commit(1, 0.0)
    assert bench.reported == ["late holds"]


def test_an_effect_that_waits_for_nothing_is_a_turn_of_its_own() -> None:
    bench = Bench()
    bench.notes("alone")
    assert bench.takes() == []
    bench.log.commit(1, 0.0)
    assert bench.reported == ["alone holds"]


def test_records_with_a_waiting_client_are_not_delayed() -> None:
    bench = Bench()
    bench.log.hand_out([1])
    assert isinstance(bench.log.take(), Turn)
    assert bench.log.take_patience() > 0
    bench.notes("waited for", client())
    assert bench.log.take_patience() == 0


def test_records_written_together_are_one_record() -> None:
    bench = Bench()
    with bench.log.atomically():
        put(bench.log)
        bench.log.finish(3)
        with bench.log.atomically():
            bench.log.finish(4)
    (record,) = bench.takes()
    assert isinstance(record, Atomic)
    assert kinds(list(record.records)) == [Put, Done]
    done = record.records[1]
    assert isinstance(done, Done)
    assert list(done.ids) == [3, 4]


def test_a_single_record_is_bound_to_nothing() -> None:
    bench = Bench()
    with bench.log.atomically():
        bench.log.finish(3)
    with bench.log.atomically():
        put(bench.log)
    assert kinds(bench.takes()) == [Put, Done]


def test_messages_of_streams_are_part_of_the_group() -> None:
    bench = Bench()
    with bench.log.atomically():
        bench.log.write(Begin("s", "e"))
        bench.log.write(Append("s", 0, b"", [b"x"], 0))
        bench.log.finish(3)
    begin, group = bench.takes()
    assert type(begin) is Begin
    assert group == Atomic([Append("s", 0, b"", [b"x"], 0), Done([3])])


def test_messages_of_streams_keep_their_order_in_nested_groups() -> None:
    bench, appends = Bench(), [Append("s", first, b"", [b"x"], 0) for first in range(3)]
    with bench.log.atomically(must_retry=False):
        bench.log.write(appends[0])
        with bench.log.atomically():
            bench.log.write(appends[1])
            bench.log.finish(3)
        bench.log.write(appends[2])
    group, done = bench.takes()
    assert group == Atomic(appends)
    assert isinstance(done, Done)


def test_after_a_failure_a_group_is_retried_without_its_messages_of_streams() -> None:
    bench, append = Bench(), Append("s", 0, b"", [b"x"], 0)
    for kept in (1, 2):
        with bench.log.atomically():
            for number in range(kept):
                bench.log.keep(f"{kept} {number}", "")
            bench.log.write(append)
            bench.log.when_safe(Shown("s", []))
    bench.takes()
    bench.log.fail(0.0)
    keeps = [Keep(key, "") for key in ("1 0", "2 0", "2 1")]
    assert bench.takes() == [keeps[0], Atomic(keeps[1:])]


def test_an_exception_rolls_a_group_back_but_not_what_must_be_kept() -> None:
    bench, client = Bench(), Client("1", OutboxFake("1.2", 1, 1))
    bench.notes("earlier", client)
    with suppress(KeyError), bench.log.atomically(must_retry=False):
        put(bench.log)
        bench.notes("first", client)
        with bench.log.atomically():
            bench.log.keep("kept", "")
            bench.notes("kept")
        bench.log.finish(3)
        bench.notes("second", client)
        raise KeyError
    assert not bench.log.is_atomic
    assert bench.reported == ["second is withdrawn", "first is withdrawn"]
    assert bench.takes() == [Keep("kept", "")]
    bench.log.commit(1, 0.0)
    assert bench.reported[2:] == ["earlier holds", "kept holds"]
    assert not bench.log.is_awaited_by(client)


def test_an_exception_rolls_back_a_group_of_the_broker_itself() -> None:
    bench = Bench()
    with suppress(KeyError), bench.log.atomically():
        bench.log.finish(3)
        bench.notes("moved")
        bench.log.keep("kept", "")
        raise KeyError
    assert bench.reported == ["moved is withdrawn"]
    assert bench.takes() == []


def test_must_hold_records_are_separate_from_withdrawable_ones() -> None:
    bench = Bench()
    with bench.log.atomically(must_retry=False):
        put(bench.log)
        with bench.log.atomically():
            bench.log.finish(3)
        bench.log.finish(4)
    assert kinds(bench.takes()) == [Atomic, Done]
    bench.log.fail(0.0)
    (record,) = bench.takes()
    assert isinstance(record, Done)
    assert list(record.ids) == [3]


def test_a_failure_keeps_records_that_must_be_retried_and_withdraws_the_rest() -> None:
    bench = Bench()
    someone = client()
    put(bench.log)
    bench.notes("theirs", someone)
    bench.takes()
    put(bench.log, must_retry=True)
    bench.log.finish(9)
    bench.log.hand_out([5])
    bench.notes("ours")
    bench.takes()
    bench.log.fail(0.0)
    assert bench.reported == ["theirs is withdrawn"]
    records = bench.takes()
    assert kinds(records) == [Put, Delivered, Done]
    assert isinstance(records[0], Put)
    assert records[0].first == 2
    bench.log.commit(1, 0.0)
    assert bench.reported == ["theirs is withdrawn", "ours holds"]
    assert bench.log.pending_bytes == 0


def test_steps_are_taken_back_in_reverse() -> None:
    bench = Bench()
    someone = client()
    put(bench.log)
    bench.notes("first", someone)
    bench.notes("second", someone)
    bench.log.fail(0.0)
    assert bench.reported == ["second is withdrawn", "first is withdrawn"]


def test_client_is_answered_immediately_if_all_its_records_are_safe() -> None:
    bench = Bench()
    someone, other = client(), client()
    put(bench.log)
    bench.notes("other's", other)
    bench.log.stage_when_safe(someone, b"now", b"1")
    bench.log.stage_when_safe(other, b"later", b"2")
    assert staged(someone) == [b"now"]
    assert staged(other) == []
    bench.takes()
    bench.log.stage_when_safe(other, b"last", b"3")
    bench.log.commit(1, 0.0)
    assert staged(other) == [b"later", b"last"]


def test_client_with_only_pending_answers_is_answered_after_a_failure() -> None:
    bench = Bench()
    someone = client()
    bench.log.finish(1)
    someone.acked = bench.log.turn
    bench.log.stage_when_safe(someone, b"acknowledged", b"r")
    assert bench.log.fail(0.0) == []
    bench.takes()
    bench.log.commit(1, 0.0)
    assert staged(someone) == [b"acknowledged"]


def test_client_with_lost_records_gets_no_receipt() -> None:
    bench = Bench()
    someone = client()
    put(bench.log)
    bench.log.when_safe(Callback(someone, lambda now: None, b"r"))
    bench.log.stage_when_safe(someone, b"taken", b"r")
    withdrawn: list[Effect] = bench.log.fail(0.0)
    assert {type(effect) for effect in withdrawn} == {Callback, FrameReply}
    assert bench.log.take() is None
    assert staged(someone) == []


def test_the_turn_is_that_of_the_last_record() -> None:
    log = Log("memory", counted_turns(), 5)
    assert log.turn == 5
    log.hand_out([1])
    assert log.turn == 5
    log.finish(1)
    assert log.turn == 6
    log.take()
    assert log.turn == 6


def test_it_is_full_when_too_much_has_not_been_answered() -> None:
    log = Log("memory", counted_turns())
    put(log, body=bytes(log_module.MAX_PENDING_BYTES))
    assert log.is_full
    log.take()
    log.commit(1, 0.0)
    assert not log.is_full


def test_nothing_of_it_grows() -> None:
    bench = DurableBench()
    sender, reader = bench.actor(), bench.actor()
    reader.subscribes("/queue/q", ack="client")
    for number in range(50):
        sender.sends("/queue/q", f"{number}", persistent="true", receipts=[(1, b"r")])
        (got,) = reader.reads()
        reader.acks(got)
    bench.turn()
    log = bench.log
    assert [*log.waiting, *log.leaving, *log.reads, *log.deliveries, *log._sent] == []
    assert log.pending_bytes == 0
    assert log.take() is None
    bench.ends()


def test_records_without_a_waiter_are_delayed() -> None:
    bench = Bench()
    bench.log.write(Keep("key", "text"), is_urgent=False)
    bench.takes()
    assert bench.log.take_patience() > 0


def test_after_a_failed_append_a_stream_has_no_gap() -> None:
    policy = DestinationPolicy(stream=True)
    core = DurableBench(book={"/topic/s": policy}, is_prompt=False)
    sender, other = core.actor(), core.actor()
    sender.sends("/topic/s", "lost", persistent="true")
    other.sends("/topic/s", "kept")
    core.turn()
    core.fails()
    assert sender.error().get("code") == "storage"
    core.turn()
    core.answers()
    runs = core.store.read_stream("/stream/topic/s", 0, 1000)
    assert [(run.first, list(run.bodies)) for run in runs] == [(0, [b"kept"])]


def test_millions_that_are_done_while_the_store_fails_cost_eight_bytes_each() -> None:
    log = Log("memory", counted_turns())
    tracemalloc.start()
    try:
        for id in range(1, 2_000_001, 2):
            log.finish(id)
            if not id % 100_000:
                log.take()
        log.take()
        log.fail(0.0)
        log.take()
        used, _ = tracemalloc.get_traced_memory()
        assert used < 20_000_000
        for id in range(1, 11):
            # A little is added each time, and nothing existing is touched.
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            log.finish(2_000_000 + id)
            log.fail(0.0)
            log.take()
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 10_000
    finally:
        tracemalloc.stop()
    log.finish(5_000_000)
    log.fail(0.0)
    turn = log.take()
    assert turn is not None
    (done,) = turn.records
    assert isinstance(done, Done)
    assert len(done.ids) == 1_000_011
    assert log.pending_bytes == 8 * 1_000_011
    log.commit(1, 0.0)
    assert log.pending_bytes == 0


def test_retried_records_count_as_in_progress_with_their_bodies() -> None:
    log = Log("memory", counted_turns())
    for _ in range(2):
        put(log, must_retry=True, body=bytes(1000))
        with log.atomically():
            put(log)
            log.finish(7)
        put(log)
        log.fail(0.0)
        log.hand_out([8])
        log.fail(0.0)
    assert log.pending_bytes == 2 * (1000 + 4 + 2 * log_module.RECORD_BYTES + 8)
    log.take()
    log.commit(1, 0.0)
    assert log.pending_bytes == 0


def test_records_after_a_failure_are_withdrawn_by_the_next_one() -> None:
    bench = Bench()
    someone, other = client(), client()
    put(bench.log, must_retry=True)
    bench.notes("ours")
    bench.log.finish(1)
    for each in (someone, other):
        each.acked = bench.log.turn
        bench.log.stage_when_safe(each, b"acknowledged", b"r")
    bench.log.fail(0.0)
    put(bench.log)
    bench.notes("theirs", someone)
    withdrawn = bench.log.fail(0.0)
    assert [type(effect) for effect in withdrawn] == [FrameReply, Noted]
    assert kinds(bench.takes()) == [Put, Done]
    bench.log.commit(1, 0.0)
    assert bench.reported == ["theirs is withdrawn", "ours holds"]
    assert (staged(someone), staged(other)) == ([], [b"acknowledged"])


def test_only_the_newest_deliveries_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MAX_DELIVERED", 3)
    bench = Bench()
    bench.log.hand_out([1, 2, 3, 4])
    bench.log.fail(0.0)
    bench.log.hand_out([5])
    bench.log.fail(0.0)
    (record,) = bench.takes()
    assert isinstance(record, Delivered)
    assert list(record.ids) == [3, 4, 5]


def test_effects_go_on_later_where_there_is_no_time() -> None:
    bench = Bench()
    put(bench.log)
    for name in ("first", "second"):
        bench.notes(name)
    bench.takes()
    bench.log.commit(1, 0.0, lambda: True)
    assert bench.reported == ["first holds"]
    assert bench.log.has_more
    bench.log.go_on(0.0)
    assert bench.reported == ["first holds", "second holds"]
    assert not bench.log.has_more
