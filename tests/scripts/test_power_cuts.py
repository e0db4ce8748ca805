"""Whole brokers, started on states after power cuts. The long run is ``crash.py --power-cuts``."""

import sys

import pytest
from _crash import power
from _oracle.power import QUEUES, State, states
from _oracle.power_sqlite import sqlite_states
from attrs import evolve

SEED = 18
STATES = 8

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs flock")


def some_state() -> State:
    """One of which much was promised, and a transaction was under way."""
    pytest.importorskip("sqlalchemy", reason="pip install 'trio-stomp[sql]'")
    found = [each for each in sqlite_states(SEED, 60) if any(each.queues.values()) and each.units]
    return found[-1]


@pytest.mark.parametrize("store", ["journal", "sqlite"])
def test_confirmed_messages_are_there_and_transactions_are_whole(store: str) -> None:
    if store == "sqlite":
        pytest.importorskip("sqlalchemy", reason="pip install 'trio-stomp[sql]'")
    made = states(SEED, STATES) if store == "journal" else sqlite_states(SEED, STATES)
    for number, state in enumerate(made):
        assert power.judge(store, state, in_process=number > 0) == [], (store, number)


def test_the_judge_finds_lost_and_invented_messages() -> None:
    state = some_state()
    assert power.judge("sqlite", state) == []
    more = evolve(state, queues={name: [*state.queues[name], b"promised"] for name in QUEUES})
    assert power.judge("sqlite", more) == [f"{name}: lost b'promised'" for name in QUEUES]
    nobody = dict.fromkeys(QUEUES, ())
    invented = evolve(state, queues=nobody, order=nobody)
    assert power.judge("sqlite", invented) != []


def test_the_judge_finds_a_broker_that_does_not_start() -> None:
    state = some_state()
    damaged = evolve(state, contents=dict.fromkeys(state.contents, b"x" * 4096))
    (line,) = power.judge("sqlite", damaged)
    assert "did not start" in line


def test_a_store_that_promises_before_it_has_synced_is_found(monkeypatch) -> None:
    """The states come from the requests to SQLite, not from our assumptions."""
    pytest.importorskip("sqlalchemy", reason="pip install 'trio-stomp[sql]'")
    from trio_stomp.store.sql import _database as _sql_database

    begin = _sql_database.Sqlite.begin

    def without_waiting(self, writer, is_urgent: bool) -> None:
        begin(self, writer, False)

    with monkeypatch.context() as patch:
        patch.setattr(_sql_database.Sqlite, "begin", without_waiting)
        careless = list(sqlite_states(SEED, 60))
    assert any(power.judge("sqlite", each) for each in careless[-20:])
