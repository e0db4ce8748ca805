"""Scheduled messages and last values of a user stay only while the user may send."""

from typing import Any

import pytest

from tests.support.durable_fakes import DurableBench, answered
from tests.support.owners import (
    ALICE,
    BOB,
    LATER,
    OPS,
    Q,
    T,
    enters,
    got,
    is_clean,
    judged,
    reads_all,
    rules,
)
from tests.support.share_fakes import MOST
from trio_stomp.base import ANONYMOUS, Identity
from trio_stomp.broker import AccessRules, DestinationPolicy
from trio_stomp.broker.headers import decode_head, owner_line, split_owner
from trio_stomp.frames import V1_2, encode_header
from trio_stomp.protocol import Subscribed
from trio_stomp.store import Put, Turn

HEADER = "x-trio-stomp-owner"
"""Stands in stored messages: another name would lose their owners."""

MANY = 3_000


@pytest.fixture
def core() -> DurableBench:
    return DurableBench(book={Q: DestinationPolicy()})


def restarted(core: DurableBench, by: AccessRules) -> DurableBench:
    """Return the core after a restart, with these rules."""
    core.turn()
    core = core.restarts()
    judged(core, by)
    return core


# --- schedules ------------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_a_schedule_of_a_user_without_the_right_to_send_is_not_sent(
    core: DurableBench, persistent: str
) -> None:
    judged(core, rules("alice"))
    enters(core, ALICE).sends(Q, "a", "b", persistent=persistent, **LATER)
    core.turn()
    judged(core, rules("bob"))
    core.passes(6)
    assert got(core, Q) == []
    assert core.broker.authorizer.revoked == 2
    assert core.broker.authorizer.denied == 1
    is_clean(core)


def test_one_that_repeats_ends_when_it_is_due_next(core: DurableBench) -> None:
    judged(core, rules("alice"))
    repeats: dict[str, Any] = {"AMQ_SCHEDULED_PERIOD": "1000", "AMQ_SCHEDULED_REPEAT": "-1"}
    enters(core, ALICE).sends(Q, "a", persistent="true", **repeats)
    core.passes(1)
    core.passes(1)
    assert got(core, Q) == ["a", "a"]
    judged(core, rules())
    core.passes(1)
    core.passes(60)
    assert got(core, Q) == []
    assert len(core.broker.timers) == 0
    assert core.broker.authorizer.revoked == 1
    is_clean(core)
    settings = core.store.recover(lambda done, total: None).settings
    assert settings.keys() == {"identity"}


@pytest.mark.parametrize(
    ("senders", "earlier", "later", "names"),
    [
        ([ALICE, BOB], rules("alice", "bob"), rules("bob"), ["bob"]),
        ([OPS], rules(groups=frozenset({"ops"})), rules(groups=frozenset({"staff"})), ["carol"]),
        ([ANONYMOUS], None, rules("alice"), []),
        ([ANONYMOUS], None, rules("anonymous"), [ANONYMOUS.name]),
    ],
    ids=["of two", "what a token granted", "nobody", "nobody who may"],
)
def test_sender_is_known_after_a_restart(
    core: DurableBench,
    senders: list[Identity],
    earlier: AccessRules | None,
    later: AccessRules,
    names: list[str],
) -> None:
    judged(core, earlier)
    for sender in senders:
        enters(core, sender).sends(Q, sender.name, persistent="true", **LATER)
    core = restarted(core, later)
    core.passes(6)
    assert got(core, Q) == names


def test_removed_user_has_no_rights(core: DurableBench) -> None:
    judged(core, rules("*"))
    enters(core, ALICE).sends(Q, "hers", persistent="true", **LATER)
    enters(core, BOB).sends(Q, "his", **LATER)
    core.turn()
    core.broker.authorizer.exists = lambda owner: owner.name != "alice"
    core.passes(6)
    assert got(core, Q) == ["his"]
    assert core.broker.authorizer.revoked == 1


def test_returning_user_finds_the_state_unchanged(core: DurableBench) -> None:
    judged(core, rules("alice"))
    enters(core, ALICE).sends(Q, "a", persistent="true", **LATER)
    enters(core, ALICE).sends(T, "b", persistent="true", retain="set")
    core.turn()
    judged(core, rules("bob"))
    core = core.restarts()
    judged(core, rules("alice"))
    core.passes(6)
    assert got(core, Q) == ["a"]
    assert got(core, T) == ["b"]


def test_messages_of_unknown_senders_stay(core: DurableBench) -> None:
    """An older broker did not store the sender: an upgrade loses nothing."""
    lines = f"destination:{Q}\npersistent:true\nAMQ_SCHEDULED_DELAY:5000\n".encode()
    put = Put("scheduled:", 1, lines, [b"old"], received_ms=core.broker.wall.ms(core.now))
    last = Put(f"retained:{T}", 2, f"destination:{T}\nretain:set\n".encode(), [b"last"])
    core.store.append([Turn([put, last])], 0)
    core = core.restarts()
    judged(core, rules())
    core.passes(6)
    assert got(core, Q) == ["old"]
    assert got(core, T) == ["last"]


def test_owner_is_neither_shown_nor_settable(core: DurableBench) -> None:
    judged(core, rules("alice", "bob"))
    forged = owner_line(BOB).decode().rstrip().partition(":")[2]
    alice = enters(core, ALICE)
    for name in (HEADER, HEADER.upper(), f" {HEADER}"):
        mine: dict[str, Any] = {name: forged}
        alice.sends(Q, "a", persistent="true", **LATER, **mine)
        alice.sends(T, "b", persistent="true", retain="set", **mine)
    core = restarted(core, rules("alice"))
    core.passes(6)
    reader = reads_all(core)
    reader.subscribes(Q)
    reader.subscribes(T, "1")
    frames = reader.reads()
    assert len(frames) == 4
    assert not [name for each in frames for name, _ in each.headers if "owner" in name.lower()]


def test_owner_header_stored_by_an_older_broker_does_not_count() -> None:
    lines = owner_line(ALICE) + b"destination:/queue/q\n" + owner_line(BOB) + b"x:y\n"
    head, owner = split_owner(decode_head(lines))
    assert owner == ALICE
    assert head.headers == (("destination", "/queue/q"), ("x", "y"))
    no_users = ("x", "[]", '{"user":7}', '{"user":"a","method":"","roles":[7]}', '{"user":"a"}')
    for wrong in (*no_users, '{"user":"a","method":"","roles":7}'):
        _, owner = split_owner(decode_head(encode_header(HEADER, wrong, V1_2)))
        assert owner is None
    bare = decode_head(b"destination:/queue/q\n")
    assert split_owner(bare) == (bare, None)
    for who in (ANONYMOUS, OPS, Identity("a:b\nc\\ö", method="certificate")):
        assert split_owner(decode_head(owner_line(who)))[1] == who


def test_undeliverable_message_is_reported_as_undeliverable(core: DurableBench) -> None:
    lines = owner_line(ALICE) + b"destination:/topic/a*\nAMQ_SCHEDULED_DELAY:5000\n"
    put = Put("scheduled:", 1, lines, [b"old"], received_ms=core.broker.wall.ms(core.now))
    core.store.append([Turn([put])], 0)
    core = core.restarts()
    judged(core, rules())
    core.passes(6)
    assert (core.broker.scheduler.lost, core.broker.authorizer.revoked) == (1, 0)
    is_clean(core)


def test_one_that_has_ended_is_not_judged_by_the_clock_again(core: DurableBench) -> None:
    pytest.importorskip("cronsim")
    judged(core, rules("alice"))
    enters(core, ALICE).sends(Q, "a", AMQ_SCHEDULED_CRON="* * * * *")
    judged(core, rules())
    core.now += 61
    core.broker.use_wall(core.broker.wall.offset_s - 7200, core.now + 1)
    core.broker.use_wall(core.broker.wall.offset_s + 7200, core.now + 1)
    core.passes(0)
    assert core.broker.authorizer.revoked == 1
    core.passes(1)
    core.passes(100)
    assert len(core.broker.timers) == 0
    is_clean(core)


# --- last values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_a_last_value_of_a_user_without_the_right_to_send_is_not_delivered(
    core: DurableBench, persistent: str
) -> None:
    judged(core, rules("alice"))
    enters(core, ALICE).sends(T, "a", persistent=persistent, retain="set")
    core.turn()
    assert got(core, T) == ["a"]
    judged(core, rules("bob"))
    assert got(core, T) == []
    assert core.broker.authorizer.revoked == core.broker.authorizer.denied == 1
    is_clean(core)
    assert not core.broker.last_values.owners


def test_the_owner_of_a_last_value_is_kept_over_a_restart(core: DurableBench) -> None:
    judged(core, rules("alice", "bob"))
    enters(core, ALICE).sends(T, "hers", persistent="true", retain="set")
    enters(core, BOB).sends("/topic/u", "his", persistent="true", retain="set")
    core = restarted(core, rules("bob"))
    assert got(core, "/topic/>") == ["his"]
    assert core.store.statistics().live_messages == 1
    assert core.broker.authorizer.revoked == 1


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_a_schedule_does_not_launder_a_last_value(core: DurableBench, persistent: str) -> None:
    judged(core, rules("alice"))
    enters(core, ALICE).sends(T, "a", persistent=persistent, retain="set", **LATER)
    core.turn()
    core.passes(6)
    assert got(core, T) == ["a"]
    if persistent == "true":
        core = core.restarts()
    judged(core, rules("bob"))
    assert got(core, T) == []


def test_the_last_value_of_another_takes_its_place(core: DurableBench) -> None:
    judged(core, rules("alice", "bob"))
    enters(core, ALICE).sends(T, "hers", persistent="true", retain="set")
    core.turn()
    enters(core, BOB).sends(T, "his", persistent="true", retain="set")
    core.turn()
    judged(core, rules("bob"))
    assert got(core, T) == ["his"]
    core = core.restarts()
    judged(core, rules("alice"))
    assert got(core, T) == []


def test_one_that_ends_takes_nothing_of_the_next_with_it(core: DurableBench) -> None:
    judged(core, rules("alice", "bob"))
    enters(core, ALICE).sends(T, "hers", persistent="true", retain="set")
    core.turn()
    bob = enters(core, BOB)
    judged(core, rules("bob"))
    core.is_prompt = False
    bob.sends(T, "his", persistent="true", retain="set")
    reader = reads_all(core)
    reader.subscribes(T)  # is not given hers; his is not there yet
    assert reader.bodies() == []
    core.answers()
    core.answers()
    assert reader.bodies() == ["his"]
    core = core.restarts()
    judged(core, rules("bob"))
    assert got(core, T) == ["his"]


# Many last values, checked in pieces.


def test_very_many_last_values_are_judged_in_pieces():
    """All were judged in the turn of the first wildcard SUBSCRIBE after the rules had changed."""
    core = DurableBench()
    judged(core, rules("alice", "carol"))
    sender, reader = enters(core, ALICE), enters(core, OPS)
    for number in range(MANY):
        sender.sends(f"/topic/{number % 2}.{number}", "hers", retain="set")
    answered(core)
    assert len(core.broker.last_values.owners) == MANY
    judged(core, rules("carol"))
    reader.does(Subscribed("0", "/topic/none", "auto", (), b"one"))
    assert core.broker.authorizer.revoked == 0, "it reaches none of them"
    reader.does(Subscribed("1", "/topic/0.*", "auto", (), b"half"))
    most, before = 0, 0
    settled_in = 0
    while core.broker.has_more:
        core.turn()
        now = core.broker.authorizer.revoked
        most, before = max(most, now - before), now
        settled_in += 1
    assert 0 < most <= MOST < MANY / 2
    assert before == MANY / 2
    assert [each.get("receipt-id") for each in reader.writes()] == ["one", "half"]
    reader.does(Subscribed("2", "/topic/*.*", "auto", (), b"all"))
    answered(core)
    assert not core.broker.last_values.owners
