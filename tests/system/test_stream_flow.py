"""Readers of a stream, each at its own speed, from the store or memory, with or without ACKs."""

import pytest

from tests.support.core import Bench, texts
from tests.support.durable_fakes import DurableBench
from tests.support.replay_fakes import (
    BOOK,
    STREAM,
    TOPIC,
    VERSIONS,
    filled,
    offsets,
    reads,
    stream_of,
    trim,
    writes,
)
from tests.support.replay_fakes import stored as stored
from trio_stomp.broker.streams import StreamRun


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("negative", [False, True])
def test_no_more_than_the_prefetch_is_on_its_way(stored, version, negative):
    bench = filled(9, stored=stored, window=3 if stored else 0)
    reader = reads(bench, version, "client-individual", from_seq="0", prefetch_count="3")
    say = reader.nacks if negative else reader.acks
    first, second, third = reader.reads()
    say(second)
    (fourth,) = reader.reads()
    say(first, third, fourth)
    assert offsets(reader.reads()) == [4, 5, 6]
    assert bench.broker.acknowledger.counters.redelivered == 0
    assert bench.broker.acknowledger.counters.nacked == (4 if negative else 0)


def test_an_acknowledgement_is_cumulative_where_its_mode_says_so(stored):
    bench = filled(9, stored=stored)
    reader = reads(bench, ack="client", from_seq="0", prefetch_count="4")
    frames = reader.reads()
    reader.nacks(frames[2], requeue=False)
    assert offsets(reader.reads()) == [4, 5, 6]
    assert bench.broker.acknowledger.counters.redelivered == 0


def test_the_consumer_window_bounds_messages_on_their_way(stored):
    bench = filled(9, stored=stored)
    reader = reads(bench, ack="client", from_seq="0", consumer_window_size="2")
    frames = reader.reads()
    assert offsets(frames) == [0, 1]
    reader.acks(frames[1])
    assert offsets(reader.reads()) == [2, 3]


def test_a_run_is_cut_where_the_credit_ends():
    bench = Bench(book=BOOK)
    bench.actor().sends(TOPIC, *"abcdef")
    for version in VERSIONS:
        reader = reads(bench, version, "client", from_seq="1", prefetch_count="2")
        given = ""
        while frames := reader.reads():
            given += "".join(texts(frames))
            reader.acks(frames[-1])
        assert given == "bcdef"


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("ack", ["auto", "client"])
def test_leaving_reader_leaves_nothing(stored, ack, lost):
    bench = filled(6, stored=stored, window=2)
    readers = [
        reads(bench, ack=ack, from_seq="0"),
        reads(bench, ack=ack, from_seq="0", prefetch_count="1"),
        reads(bench, ack=ack, replay_delay="100000"),
        reads(bench, ack=ack),
    ]
    bench.turn()
    for reader in readers:
        if lost:
            reader.is_gone()
        else:
            reader.unsubscribes()
    bench.turn()
    stream = stream_of(bench)
    assert stream._waiting == {}
    assert len(bench.broker.timers) == 0
    assert bench.broker.acknowledger.counters.redelivered == 0
    stream.clear()
    assert bench.memory.used_bytes == 0


def test_a_slow_reader_keeps_its_offset_and_delays_no_writer(stored):
    bench = filled(0, stored=stored)
    slow = reads(bench, from_seq="0")
    slow.outbox.room = 0
    writes(bench, 5)
    assert stream_of(bench).next == 5
    assert slow.reads() == []
    slow.opens_up()
    assert offsets(slow.reads()) == [0, 1, 2, 3, 4]


def test_from_disk_into_memory_nothing_is_missed_or_repeated():
    bench = filled(40, stored=True, window=3)
    reader = reads(bench, ack="client", from_seq="0", prefetch_count="7")
    given = []
    while frames := reader.reads():
        given += offsets(frames)
        reader.acks(frames[-1])
        if len(given) < 100:
            writes(bench, 2)
    assert given == list(range(stream_of(bench).next))


def test_read_ahead_is_dropped_when_memory_is_short():
    bench = filled(9, stored=True, window=1)
    reader = reads(bench, ack="client", from_seq="0", prefetch_count="2")
    frames = reader.reads()
    (source,) = reader.consumer().queues
    assert source._own  # type: ignore[attr-defined]
    bench.memory.limit_bytes = 1
    bench.broker.queues.mark(source)
    bench.turn()
    assert not source._own  # type: ignore[attr-defined]
    reader.acks(frames[-1])
    assert offsets(reader.reads()) == [2, 3]


def test_gap_in_the_store_is_reported_like_a_trimmed_start():
    bench = filled(9, stored=True, window=1)
    assert isinstance(bench, DurableBench)
    bench.is_prompt = False
    reader = reads(bench, from_seq="0")
    short = reads(bench, from_seq="0", x_stream_until="4")
    bench.turn()
    found = bench.store.read_stream(STREAM, 5, 2)
    for wanted in bench.log.take_reads():
        wanted.take(found, bench.now)
    frames = reader.reads()
    assert offsets(frames) == [5, 6]
    assert [frame.get("x-stream-first") for frame in frames] == ["5", None]
    (end,) = short.reads()
    assert end.get("x-stream-offset") == "4"
    for wanted in bench.log.take_reads():
        wanted.take([], bench.now)
    (frame,) = reader.reads()
    assert (frame.text, frame.get("x-stream-first")) == ("8", "8")
    assert stream_of(bench).lost == 5 + 4 + 1


def test_gap_within_a_read_is_reported():
    bench = filled(9, stored=True, window=1)
    assert isinstance(bench, DurableBench)
    bench.is_prompt = False
    reader = reads(bench, from_seq="0")
    bench.turn()
    found = [*bench.store.read_stream(STREAM, 0, 2), *bench.store.read_stream(STREAM, 5, 99)]
    for wanted in bench.log.take_reads():
        wanted.take(found, bench.now)
    frames = reader.reads()
    assert offsets(frames) == [0, 1, 5, 6, 7, 8]
    assert [frame.get("x-stream-first") for frame in frames] == [None, None, "5", None, None, None]
    assert stream_of(bench).lost == 3


def test_a_late_page_is_dropped_for_trimmed_offsets_and_departed_readers():
    bench = filled(9, stored=True, window=1)
    assert isinstance(bench, DurableBench)
    bench.is_prompt = False
    reader, gone = reads(bench, from_seq="0"), reads(bench, from_seq="0")
    bench.turn()
    wanted = bench.log.take_reads()
    found = [bench.store.read_stream(STREAM, 0, 2), bench.store.read_stream(STREAM, 0, 99)]
    gone.is_gone()
    trim(bench, 5)
    bench.answers()
    assert bench.log.reads == []  # it waits for the first answer
    for each, runs in zip(wanted, found, strict=True):
        each.take(runs, bench.now)
    bench.turn()
    bench.is_prompt = True
    frames = reader.reads()
    assert offsets(frames) == [5, 6, 7, 8]
    assert gone.reads() == []


def test_unconfirmed_messages_of_the_store_are_not_delivered():
    bench = filled(3, stored=True, window=1)
    assert isinstance(bench, DurableBench)
    bench = bench.restarts()
    bench.is_prompt = False
    bench.actor().sends(TOPIC, "3", kind="n")
    reader = reads(bench, from_seq="0")
    bench.turn()
    bench.commit = bench.store.append(bench.turns, bench.commit)
    bench.turns = []
    bench.loads()
    assert offsets(reader.reads()) == [0, 1, 2]
    bench.broker.committed(bench.commit, bench.now)
    assert offsets(reader.reads()) == [3]


def test_failed_read_is_repeated():
    bench = filled(9, stored=True, window=1)
    assert isinstance(bench, DurableBench)
    bench.is_prompt = False
    reader = reads(bench, from_seq="0")
    bench.turn()
    for _ in range(3):
        (wanted,) = bench.log.take_reads()
        reader.opens_up()
        bench.turn()
        assert bench.log.reads == []  # one question at a time
        wanted.take(None, bench.now)
        assert reader.reads() == []
    bench.is_prompt = True
    assert offsets(reader.reads()) == list(range(9))


def test_messages_written_one_by_one_are_read_in_one_piece():
    bench = filled(0, stored=True, window=1)
    for _ in range(9):
        bench.now += 1
        writes(bench, 1)
    reader = reads(bench, from_seq="0")
    assert offsets(reader.reads()) == list(range(9))
    assert len(reader.outbox.log) == 1
    found = bench.store.read_stream(STREAM, 0, 99) if isinstance(bench, DurableBench) else []
    assert [len(run.bodies) for run in found] == [1] * 9  # the store's own are left as they were


def test_a_delivery_has_a_bound():
    bench = Bench(book=BOOK)
    sender = bench.actor()
    for _ in range(5):
        sender.sends(TOPIC, "x" * 100_000)
    reader = reads(bench, from_seq="0")
    reader.outbox.asks_left = 1
    assert len(reader.reads()) == 3
    reader.outbox.asks_left = 9
    reader.opens_up()
    assert len(reader.reads()) == 2


def test_reading_does_not_change_a_run():
    bench = filled(2)
    run = stream_of(bench).run_at(0)
    assert isinstance(run, StreamRun)
    tails = list(run.tails(2, b"e"))
    reads(bench, from_seq="0").reads()
    assert run.tails(2, b"e") == tails


@pytest.mark.parametrize("ack", ["auto", "client"])
def test_small_messages_of_a_large_run_are_given_piece_by_piece(stored, ack):
    """A page of the store was one delivery, of megabytes that nobody had asked the memory for."""
    bench = filled(0, stored=stored, window=1 if stored else 0)
    bench.actor().sends(TOPIC, *map(str, range(3000)), kind="n")
    bench.turn()
    writes(bench, 1)
    reader = reads(bench, ack=ack, from_seq="0", prefetch_count="5000")
    assert offsets(reader.reads()) == list(range(3001))
    counts = [data.count(b"\nx-stream-offset:") for data in reader.outbox.log]
    assert max(counts) <= 1025
    assert len(counts) == 3


def test_unacknowledged_messages_and_those_read_ahead_are_charged():
    bench = filled(0, stored=True, window=1)
    writes(bench, 100)
    before = bench.memory.used_bytes
    reader = reads(bench, ack="client", from_seq="0", prefetch_count="10")
    frames = reader.reads()
    assert len(frames) == 10
    body = len(frames[0].text)
    held = bench.memory.used_bytes - before
    assert 10 * (body + 256) + 90 * 48 <= held <= 10 * (body + 256) + 100 * (2 + 48)
    reader.unsubscribes()
    assert bench.memory.used_bytes == before
