"""A stream's files against a list, over random lives."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.stream_fakes import (
    DIRECTORY,
    EPOCH,
    EVERYTHING,
    HEAD,
    NAME,
    DiskFake,
    StreamLog,
    by_offset,
    fails_on,
    keep_extents_small,
    open_log,
    read_all,
)
from trio_stomp.store import Append

SEGMENT_BYTES = 300
READ_COST_BYTES = 256
"""What a message counts besides its body: a limit of bytes bounds messages too."""
BODIES = st.lists(st.binary(max_size=40), max_size=6)


@pytest.fixture(autouse=True)
def _small_extents(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_extents_small(monkeypatch, 80)


class StreamMachine(RuleBasedStateMachine):
    """The list knows all that was ever committed, and when; the log may forget what was trimmed."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = DiskFake()
        self.log = StreamLog.create(DIRECTORY, self.disk, NAME, EPOCH, SEGMENT_BYTES)
        self.log.mark()
        self.bodies: list[bytes] = []
        self.times: list[int] = []
        self.now = 0
        self.trimmed = 0

    def append(self, runs: list[list[bytes]]) -> None:
        first = len(self.bodies)
        records = []
        for bodies in runs:
            records.append(Append(NAME, first, HEAD, bodies, self.now))
            first += len(bodies)
        self.log.append(records)

    @rule(runs=st.lists(BODIES, min_size=1, max_size=3), passed=st.integers(0, 2))
    def commits(self, runs: list[list[bytes]], passed: int) -> None:
        self.now += passed
        self.append(runs)
        self.log.sync()
        self.log.mark()
        for bodies in runs:
            self.bodies += bodies
            self.times += [self.now] * len(bodies)

    @rule(
        runs=st.lists(BODIES, min_size=1, max_size=2),
        step=st.sampled_from(["create", "write", "sync", "sync_directory", "truncate"]),
    )
    def fails_to_commit(self, runs: list[list[bytes]], step: str) -> None:
        self.disk.fails = fails_on(step)
        try:
            self.append(runs)
            self.log.sync()
        except OSError:
            pass
        self.disk.fails = fails_on()
        self.log.rollback()

    @rule(share=st.floats(0, 1))
    def trims(self, share: float) -> None:
        before = int(share * (len(self.bodies) + 1))
        self.log.trim(before)
        self.trimmed = max(self.trimmed, before)

    @rule()
    def compresses(self) -> None:
        before = self.log.state()
        self.log.compress_one()
        assert (self.log.state().first, self.log.state().next) == (before.first, before.next)

    @rule(crashes=st.booleans(), keeps_names=st.booleans(), keeps_data=st.booleans())
    def reopens(self, crashes: bool, keeps_names: bool, keeps_data: bool) -> None:
        if crashes:
            self.disk = self.disk.crashed(keeps_names=keeps_names, keeps_data=keeps_data)
        else:
            self.log.close()
        self.log = open_log(self.disk, SEGMENT_BYTES)

    @rule(share=st.floats(0, 1), limit_bytes=st.integers(0, 2000))
    def reads(self, share: float, limit_bytes: int) -> None:
        first = int(share * (len(self.bodies) + 1))
        runs = self.log.read(first, limit_bytes)
        found = by_offset(runs)
        start = max(first, self.log.state().first)
        assert found == dict(enumerate(self.bodies[start : start + len(found)], start))
        assert found or start >= len(self.bodies)
        before_last = [body for run in runs[:-1] for body in run.bodies]
        assert sum(len(body) + READ_COST_BYTES for body in before_last) < max(limit_bytes, 1)

    @rule(back=st.integers(-1, 8))
    def finds(self, back: int) -> None:
        first = self.log.state().first
        wanted = self.now - back
        late = (n for n in range(first, len(self.times)) if self.times[n] >= wanted)
        assert self.log.find_offset(wanted) == next(late, len(self.times))

    @invariant()
    def holds_what_was_committed(self) -> None:
        state = self.log.state()
        assert state.next == len(self.bodies)
        assert state.first <= min(self.trimmed, state.next)
        wanted = dict(enumerate(self.bodies))
        for offset in range(state.first):
            del wanted[offset]
        assert read_all(self.log) == read_all(self.log, 0, EVERYTHING) == wanted

    def teardown(self) -> None:
        assert self.log.take_damage() == []
        self.log.close()


StreamMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestStreamMachine = StreamMachine.TestCase
