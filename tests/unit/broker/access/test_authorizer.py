"""Authorization: every command on every kind of destination, for every set of rights.

The needs of each command are listed here a second time, by hand. The rules grant each client one
action or a few. A client that lacks a needed one must get an ERROR, and nothing may have changed.
"""

from collections.abc import Callable, Iterator
from itertools import combinations

import pytest
from attrs import frozen

from tests.support.core import VERSIONS, Actor, Core, Peer, run_of, texts
from tests.support.durable_fakes import DurableBench
from trio_stomp.base import ANONYMOUS, CloseReason, Identity, ProtocolError
from trio_stomp.broker import AccessRules, BrokerPolicies, DestinationPolicy, built_in_rules
from trio_stomp.broker.rules import Action, Rule
from trio_stomp.protocol import NO_HEARTBEATS, Committed, Opened, Queried, Received

SEND, RECEIVE, BROWSE = Action.SEND, Action.RECEIVE, Action.BROWSE
CREATE, ADMIN, MONITOR = Action.CREATE, Action.ADMIN, Action.MONITOR

ALICE = Identity("alice", method="passcode")
DURABLE = (("durable-subscription-name", "d"),)


def rules_for(actions: frozenset[Action], *patterns: str) -> AccessRules:
    """One rule that grants alice ``actions``."""
    if not actions:
        return AccessRules()
    return AccessRules((Rule(True, actions, patterns or ("**",), ("alice",), location="r1"),))


def core_with(rules: AccessRules | None) -> Core:
    """A broker with a queue, a stream, a durable subscription of bob's and one of alice's."""
    streamed = DestinationPolicy(stream=True)
    policies = {"/topic/log": streamed, "/dsub/log": streamed}
    core = Core(book={**policies, "/queue/policy": DestinationPolicy()})
    bob = core.peer(client_id="shared", identity=Identity("bob", method="passcode"))
    bob.subscribes("/queue/there", "q", ack="client")
    bob.subscribes("/topic/of-bob", "d", headers=DURABLE)
    bob.sends("/topic/log", "one")
    bob.unsubscribes("d")
    alice = core.reader("/topic/of-alice", "d", headers=DURABLE, client_id="hers", identity=ALICE)
    alice.is_gone()
    core.broker.use_rules(rules, lambda identity: True, core.now)
    return core


@frozen
class Case:
    """One command on one destination.

    Args:
      needs: All the actions that it needs.
    """

    name: str
    does: Callable[[Peer], None]
    needs: frozenset[Action]
    client_id: str = ""


def sends(name: str, **headers: str) -> Callable[[Peer], None]:
    pairs = tuple((key.replace("_", "-"), text) for key, text in headers.items())
    return lambda peer: peer.sends(name, "x", headers=pairs)


def buffers(name: str) -> Callable[[Peer], None]:
    """SEND in a transaction: the core checks it before COMMIT."""
    return lambda peer: peer.does(Received((), run_of(name).head))


def commits(*names: str) -> Callable[[Peer], None]:
    return lambda peer: peer.does(Committed([run_of(name) for name in names], None))


def subscribes(name: str, ack: str = "auto", *pairs: tuple[str, str]) -> Callable[[Peer], None]:
    return lambda peer: peer.subscribes(name, "s", ack=ack, headers=pairs)


def ends_durable(peer: Peer) -> None:
    peer.unsubscribes("d", headers=DURABLE)


def subscribes_and_leaves(peer: Peer) -> None:
    peer.subscribes("/topic/a")
    peer.unsubscribes()


def asks(peer: Peer) -> None:
    peer.does(Queried("session"))


OFFSET = ("x-stream-offset", "first")
BROWSER = ("browser", "true")

CASES = [
    Case("send topic", sends("/topic/a"), frozenset({SEND})),
    Case("send bare topic", sends("a.b"), frozenset({SEND})),
    Case("send work queue", sends("#jobs"), frozenset({SEND})),
    Case("send queue", sends("/queue/there"), frozenset({SEND})),
    Case("send queue of a policy", sends("/queue/policy"), frozenset({SEND})),
    Case("send new queue", sends("/queue/new"), frozenset({SEND, CREATE})),
    Case("send amq queue alias", sends("queue://there"), frozenset({SEND})),
    Case("send composite", sends("/topic/a,/queue/there"), frozenset({SEND})),
    Case("send composite new", sends("/topic/a,/queue/new"), frozenset({SEND, CREATE})),
    Case("send temporary", sends("/temp-queue/t"), frozenset({SEND, CREATE})),
    Case("send reply-to", sends("/topic/a", reply_to="/temp-queue/t"), frozenset({SEND, CREATE})),
    Case("send another's reply", sends("/reply-queue/s1.t"), frozenset({SEND})),
    Case("send later", sends("/topic/a", AMQ_SCHEDULED_DELAY="50"), frozenset({SEND})),
    Case("send retained", sends("/topic/a", retain="true"), frozenset({SEND})),
    Case("send persistent", sends("/topic/a", persistent="true"), frozenset({SEND})),
    Case("send DIAG", sends("DIAG/mine"), frozenset({MONITOR})),
    Case(
        "ask stream",
        sends("/stream/topic/log", reply_to="/topic/a"),
        frozenset({RECEIVE, SEND}),
    ),
    Case("buffer topic", buffers("/topic/a"), frozenset({SEND})),
    Case("buffer DIAG", buffers("DIAG/mine"), frozenset({MONITOR})),
    Case("buffer new queue", buffers("/queue/new"), frozenset({SEND, CREATE})),
    Case("commit topic", commits("/topic/a"), frozenset({SEND})),
    Case("commit many", commits("/topic/a", "/queue/there", "#jobs"), frozenset({SEND})),
    Case("commit new queue", commits("/topic/a", "/queue/new"), frozenset({SEND, CREATE})),
    Case("commit DIAG", commits("/topic/a", "DIAG/mine"), frozenset({SEND, MONITOR})),
    Case("subscribe topic", subscribes("/topic/a"), frozenset({RECEIVE})),
    Case("subscribe topic ack", subscribes("/topic/a", "client"), frozenset({RECEIVE})),
    Case("subscribe composite", subscribes("/topic/a,/topic/b"), frozenset({RECEIVE})),
    Case("subscribe work queue", subscribes("#jobs"), frozenset({RECEIVE})),
    Case("subscribe wildcard", subscribes("/topic/>"), frozenset({RECEIVE})),
    Case("subscribe all", subscribes(">"), frozenset({RECEIVE, MONITOR})),
    Case("subscribe D*", subscribes("D*"), frozenset({RECEIVE, MONITOR})),
    Case("subscribe DIAG*", subscribes("DIAG*"), frozenset({MONITOR})),
    Case("subscribe DIAG", subscribes("DIAG/session"), frozenset({MONITOR})),
    Case("subscribe DIAG event", subscribes("DIAG/event/*"), frozenset({MONITOR})),
    Case("subscribe monitor", subscribes("/queue/monitor"), frozenset({MONITOR})),
    Case("subscribe queue", subscribes("/queue/there", "client"), frozenset({RECEIVE})),
    Case("subscribe new queue", subscribes("/queue/new"), frozenset({RECEIVE, CREATE})),
    Case("subscribe queues", subscribes("/queue/>"), frozenset({RECEIVE})),
    Case("browse queue", subscribes("/queue/there", "auto", BROWSER), frozenset({BROWSE})),
    Case("browse queues", subscribes("/queue/*", "auto", BROWSER), frozenset({BROWSE})),
    Case("subscribe temporary", subscribes("/temp-queue/t"), frozenset({CREATE})),
    Case("subscribe temporary topic", subscribes("/temp-topic/t"), frozenset({CREATE})),
    Case("read stream", subscribes("/stream/topic/log"), frozenset({RECEIVE})),
    Case("replay topic", subscribes("/topic/log", "auto", OFFSET), frozenset({RECEIVE})),
    Case("replay /dsub", subscribes("/dsub/log", "auto", OFFSET), frozenset({RECEIVE})),
    Case(
        "make durable",
        subscribes("/topic/a", "auto", ("durable-subscription-name", "new")),
        frozenset({RECEIVE, CREATE}),
    ),
    Case(
        "come back to a durable of one's own",
        subscribes("/topic/of-alice", "auto", *DURABLE),
        frozenset({RECEIVE, CREATE}),
        "hers",
    ),
    Case(
        "make a durable of the name of another's",
        subscribes("/topic/else", "auto", *DURABLE),
        frozenset({RECEIVE, CREATE}),
        "shared",
    ),
    Case("end a durable of one's own", ends_durable, frozenset(), "hers"),
    Case("end another's durable", ends_durable, frozenset({ADMIN}), "shared"),
    Case("unsubscribe", subscribes_and_leaves, frozenset({RECEIVE})),
    Case("DIAG", asks, frozenset({MONITOR})),
]


def roles() -> Iterator[frozenset[Action]]:
    """Every set of actions."""
    every = list(Action)
    for count in range(len(every) + 1):
        yield from (frozenset(each) for each in combinations(every, count))


def state_of(core: Core) -> object:
    """Return the state that must not change if a client is refused."""
    broker = core.broker
    return (
        # A route that was only looked at may stay, until there are too many.
        sorted(
            destination.name
            for destination in broker.destinations
            if not destination.is_idle or destination.queue
        ),
        len(broker.bindings.durables),
        len(broker.timers),
        broker.publisher.received,
        broker.memory.used_bytes,
        len(broker.subscriptions),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_command_needs_exactly_its_rights(case: Case) -> None:
    for granted in roles():
        core = core_with(rules_for(granted))
        peer = core.peer(identity=ALICE, client_id=case.client_id)
        before = state_of(core)
        case.does(peer)
        refused = peer.frames("ERROR")
        if case.needs <= granted:
            assert refused == [], (granted, refused)
            continue
        (error,) = refused
        assert state_of(core) == before, granted
        if case.does is ends_durable:  # of another's it does not even learn that it exists
            assert error.get("code") == "unknown-subscription", (granted, error)
            assert "of-bob" not in (error.get("message") or "")
            continue
        assert error.get("code") == "not-authorized", (granted, error)
        assert peer.outbox.closed is CloseReason.NOT_AUTHORIZED
        lacking = case.needs - granted
        result = error.get("message") or ""
        assert any(f"may not {action.value} " in result for action in lacking), result
        assert "r1" not in result, "where the rules are is nobody's business"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_without_rules_nothing_is_denied(case: Case) -> None:
    core = core_with(None)
    peer = core.peer(identity=ALICE, client_id=case.client_id)
    case.does(peer)
    assert peer.frames("ERROR") == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rule_for_everybody_does_not_apply_to_anonymous_clients(case: Case) -> None:
    """A rule that names no user applies to logged-in users."""
    core = core_with(AccessRules((Rule(True, frozenset(Action), ("**",)),)))
    peer = core.peer(identity=ANONYMOUS, client_id=case.client_id)
    case.does(peer)
    code = "unknown-subscription" if case.does is ends_durable else "not-authorized"
    assert peer.error().get("code") == code


WATCHING = frozenset({MONITOR, ADMIN})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_built_in_rules(case: Case) -> None:
    """Logged-in users may use destinations, but neither monitor others, nor end their
    subscriptions."""
    for role in ("", "monitor", "admin"):
        core = core_with(built_in_rules())
        identity = Identity("alice", frozenset({role} if role else ()), method="token")
        peer = core.peer(identity=identity, client_id=case.client_id)
        case.does(peer)
        granted = {"": frozenset(), "monitor": frozenset({MONITOR}), "admin": WATCHING}[role]
        denied = (case.needs & WATCHING) - granted
        assert bool(peer.frames("ERROR")) == bool(denied), role


# --- beyond the matrix ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [
        ("/topic/>", False),
        ("/topic/*", False),
        ("/topic/secret.x", False),
        ("/topic/other.>", True),
        ("/topic/secre", True),
    ],
)
def test_the_wildcard_of_a_subscription_must_be_allowed_as_a_whole(
    name: str, is_allowed: bool
) -> None:
    secret = Rule(False, frozenset({RECEIVE}), ("/topic/secret.>",))
    core = Core(rules=AccessRules((secret, Rule(True, frozenset(Action), ("**",)))))
    assert bool(core.reader(name, identity=ALICE).frames("ERROR")) != is_allowed


@pytest.mark.parametrize(
    ("pattern", "user", "name", "is_allowed"),
    [
        ("/topic/a", "alice", "/exchange/amq.topic/a", True),
        ("/topic/a", "alice", "/exchange/amq.topic/b", False),
        ("/topic/a", "alice", "/topic/a,/topic/b", False),
        ("/topic/{user}/**", "alice", "/topic/alice/x", True),
        ("/topic/{user}/**", "alice", "/topic/bob/x", False),
        ("/topic/{user}/**", "*", "/topic/bob/x", False),
        ("/topic/{user}/**", "a/b", "/topic/a/b/x", False),
        ("/topic/{user}/**", ">", "/topic/a", False),
    ],
)
def test_a_send_is_authorized_by_the_meaning_of_its_destination(
    pattern: str, user: str, name: str, is_allowed: bool
) -> None:
    """In another broker's spelling, in all its parts, and with the user's name to the letter."""
    core = Core(rules=AccessRules((Rule(True, frozenset({SEND}), (pattern,)),)))
    peer = core.peer(identity=Identity(user, method="passcode"))
    peer.sends(name)
    assert [each.get("code") for each in peer.frames("ERROR")] == ["not-authorized"] * (
        not is_allowed
    )
    assert core.broker.publisher.received == is_allowed


@pytest.mark.parametrize("name", ["JMSXUserID", "JMSXUSERID ", "\tjmsxuserid"])
@pytest.mark.parametrize("word", ["native", "activemq", "artemis"])
def test_a_false_sender_is_left_out_however_the_header_is_spelt(word: str, name: str) -> None:
    """F22: receivers fold case, strip blanks, or ask for the name of JMS."""
    core = Core(rules=rules_for(frozenset(Action)), dialect=word)
    reader = core.reader("/topic/a", identity=ALICE)
    peer = core.peer(identity=ALICE)
    for claimed in ("alice", "bob"):
        peer.sends("/topic/a", claimed, headers=((name, claimed), ("user-id", "7")))
    assert peer.frames("ERROR") == []
    true, false = reader.frames("MESSAGE")
    assert (true.get(name), false.get(name)) == ("alice", None)
    assert true.get("user-id") == false.get("user-id") == "7"


@pytest.mark.parametrize("name", ["user-id", "User-Id", "user-id ", "\tUSER-ID"])
def test_rabbitmq_refuses_a_false_sender(name: str) -> None:
    core = Core(rules=rules_for(frozenset(Action)), dialect="rabbitmq")
    peer = core.peer(identity=ALICE)
    peer.sends("/topic/a", "x", headers=((name, "alice"), ("JMSXUserID", "bob")))
    assert peer.frames("ERROR") == []
    peer.sends("/topic/a", "x", headers=((name, "bob"),))
    assert peer.error().get("code") == "not-authorized"


def test_the_answer_of_a_stream_goes_nowhere_that_the_asker_may_not_send_to() -> None:
    rules = AccessRules(
        (
            Rule(True, frozenset({RECEIVE}), ("/topic/log",)),
            Rule(True, frozenset({SEND}), ("/topic/mine",)),
        )
    )
    core = Core(rules=rules, book={"/topic/log": DestinationPolicy(stream=True)})
    for reply_to, is_allowed in (
        ("/topic/mine", True),
        ("/topic/theirs", False),
        ("/topic/mine,/topic/theirs", False),
        ("/exchange/amq.topic/theirs", False),
    ):
        peer = core.peer(identity=ALICE)
        peer.sends("/stream/topic/log", "x", headers=(("reply-to", reply_to),))
        assert bool(peer.frames("ERROR")) != is_allowed, reply_to


def test_the_log_of_a_bare_topic_is_also_that_of_its_name_with_a_slash() -> None:
    streamed = {"log": DestinationPolicy(stream=True), "/log": DestinationPolicy(stream=True)}
    for patterns, is_allowed in ((("log",), False), (("/log",), False), (("log", "/log"), True)):
        core = Core(rules=rules_for(frozenset({RECEIVE}), *patterns), book=streamed)
        peer = core.reader("/stream/log", identity=ALICE)
        assert bool(peer.frames("ERROR")) != is_allowed, patterns


def test_the_topics_that_a_client_may_send_to_are_asked_for_once_and_bounded() -> None:
    core = Core(rules=rules_for(frozenset({SEND})))
    peer = core.peer(identity=ALICE)
    rights = peer.client.rights
    assert rights is not None
    for number in range(5000):
        peer.sends(f"/topic/{number}")
        assert f"/topic/{number}" in rights.allowed_names
        assert len(rights.allowed_names) <= 4096
    assert peer.frames("ERROR") == []
    peer.sends("/queue/there")
    assert "/queue/there" not in rights.allowed_names


def test_permissions_shared_by_connections_are_cached_once_and_by_size() -> None:
    """F11: 60 connections that sent to 4,090 names of 1 KB each took 324 uncounted MiB."""
    core = Core(rules=rules_for(frozenset({SEND})))
    peers = [core.peer(identity=ALICE) for _ in range(9)]
    for number, peer in enumerate(peers):
        for each in range(100):
            peer.sends(f"/topic/{number}.{each}." + "x" * 900)
        assert peer.frames("ERROR") == []
    (rights,) = {id(peer.client.rights): peer.client.rights for peer in peers}.values()
    assert rights is not None
    assert 0 < sum(map(len, rights.allowed_names)) <= 256 * 1024


def test_before_connect_the_command_diag_is_answered_only_where_there_are_no_rules() -> None:
    peer = Core(rules=AccessRules()).peer(opens=False)
    asks(peer)
    assert peer.error().get("code") == "not-connected"
    free = Core().peer(opens=False)
    asks(free)
    assert free.frames("ERROR") == []


def test_denial_is_counted_and_reported() -> None:
    core = Core(rules=AccessRules())
    core.broker.events.are_stored = True  # as the DIAG stream does
    peer = core.peer(identity=ALICE)
    core.events()
    peer.sends("/topic/a")
    assert core.broker.authorizer.denied == 1
    assert ("auth", peer.client.session_id, "/topic/a") in core.events()


# --- other rules, while clients are there ---------------------------------------------------------


def test_new_rules_end_subscriptions_that_they_do_not_allow() -> None:
    core = Core(rules=rules_for(frozenset(Action)))
    stays = core.reader("/topic/a", identity=ALICE)
    goes = core.reader("/topic/b", identity=ALICE)
    durable = core.reader("/topic/b", headers=DURABLE, identity=ALICE, client_id="c")
    browser = core.reader("/queue/q", headers=(BROWSER,), identity=ALICE)
    temporary = core.reader("/temp-queue/t", identity=ALICE)
    new = AccessRules((Rule(True, frozenset({RECEIVE, SEND}), ("/topic/a",), ("alice",)),))
    core.broker.use_rules(new, lambda identity: True, core.now)
    for peer in (goes, durable, browser):
        assert peer.error().get("code") == "not-authorized"
        assert peer.outbox.closed is CloseReason.NOT_AUTHORIZED
    for peer in (stays, temporary):
        assert peer.frames("ERROR") == []
    assert len(core.broker.subscriptions) == 2
    stays.sends("/topic/a", "still")
    assert stays.bodies() == ["still"]
    stays.sends("/topic/b")
    assert stays.error().get("code") == "not-authorized"


def test_cleared_permissions_are_looked_up_again() -> None:
    core = Core(rules=rules_for(frozenset({SEND})))
    peer = core.peer(identity=ALICE)
    peer.sends("/topic/a")
    core.broker.use_rules(AccessRules(), lambda identity: True, core.now)
    peer.sends("/topic/a")
    assert peer.error().get("code") == "not-authorized"


def test_a_second_session_on_a_connection_has_nothing_of_the_first() -> None:
    """stompica's clients may log out and in again as another user."""
    rules = AccessRules((Rule(True, frozenset(Action), ("**",), ("alice",)),))
    core = Core(rules=rules, dialect="stompica")
    peer = core.peer(identity=ALICE)
    peer.sends("/topic/a")
    peer.leaves()
    asks(peer)
    assert peer.error().get("code") == "not-connected"
    again = core.peer(identity=ALICE)
    again.sends("/topic/a")
    again.leaves()
    again.opens(identity=Identity("bob", method="passcode"))
    again.sends("/topic/a")
    assert again.error().get("code") == "not-authorized"


def test_state_from_before_logins_belongs_to_the_first_user(core: Core) -> None:
    nobody = core.reader("/topic/a", headers=DURABLE, client_id="c")
    nobody.is_gone()
    core.broker.use_rules(rules_for(frozenset(Action)), lambda identity: True, core.now)
    alice = core.reader("/topic/a", headers=DURABLE, client_id="c", identity=ALICE)
    assert alice.frames("ERROR") == []
    (binding,) = core.broker.bindings.durables
    assert binding.owner == "alice"


def test_the_owner_of_a_durable_subscription_is_kept_over_a_restart() -> None:
    core = DurableBench()
    joins(core, ANONYMOUS)
    core = core.restarts()
    assert owners(core) == [""]
    joins(core, ALICE)
    core = core.restarts()
    assert owners(core) == ["alice"]
    core.broker.use_rules(rules_for(frozenset({CREATE, RECEIVE})), lambda _: True, core.now)
    joins(core, ALICE)
    rules = AccessRules((Rule(True, frozenset({CREATE, RECEIVE}), ("**",)),))
    core.broker.use_rules(rules, lambda _: True, core.now)
    joins(core, Identity("bob", method="passcode"))
    assert owners(core) == ["alice", "bob"]


def test_each_user_has_names_of_his_own() -> None:
    """F21: a user cannot take another's name. Each gets the missed messages, restarts or not."""
    core = DurableBench()
    rules = AccessRules((Rule(True, frozenset(Action), ("**",)),))
    users = [Identity(name, method="passcode") for name in ("mallory", "bob", "a%01", "a")]
    for missed in ([], ["missed"], ["missed"]):
        core.broker.use_rules(rules, lambda _: True, core.now)
        for user in users:
            actor = joins(core, user)
            assert texts(actor.frames()) == missed
            actor.leaves()
        core.broker.use_rules(None, lambda _: True, core.now)
        core.actor().sends("/topic/a", "missed", persistent="true")
        core.turn()
        core = core.restarts()
        assert owners(core) == [user.name for user in users]


def test_state_stored_by_an_older_broker_is_found() -> None:
    """Its place names no owner, though it has one."""
    core = DurableBench()
    joins(core, ANONYMOUS).leaves()
    for place in range(3):
        core.actor().sends("/topic/a", f"{place}", persistent="true")
        core.turn()
        core = core.restarts()
        actor = joins(core, ALICE)
        assert texts(actor.frames()) == [f"{place}"]
        actor.leaves()
        (binding,) = core.broker.bindings.durables
        assert (binding.owner, binding.queue.place) == ("alice", "durable:c%00d")


def test_one_user_leaves_others_room_for_durable_subscriptions() -> None:
    """F9: of the broker's number one user has a share, which is his again when he ends some."""
    core = DurableBench(policies=BrokerPolicies(max_durables_per_user=1))
    rules = AccessRules((Rule(True, frozenset(Action), ("**",), ("*", "anonymous")),))
    core.broker.use_rules(rules, lambda _: True, core.now)
    for user in (ALICE, ANONYMOUS):
        actor = joins(core, user)
        joins(core, user)  # comes back to it
        actor = joins(core, user, "/topic/b", "e")
        error = actor.error()
        assert error.get("code") == "too-many-durable-subscriptions"
        assert "max_durables_per_user" in (error.get("message") or "")
    joins(core, Identity("bob", method="passcode"), "/topic/a", "his")
    assert owners(core) == ["alice", "", "bob"]
    core.broker.bindings.end_durable(next(iter(core.broker.bindings.durables)), core.now)
    joins(core, ALICE, "/topic/b", "e")
    assert sorted(owners(core)) == ["", "alice", "bob"]
    core.broker.use_rules(None, lambda _: True, core.now)
    joins(core, ALICE, "/topic/c", "f")  # no login is required: users are not distinguished
    assert sorted(owners(core)) == ["", "alice", "alice", "bob"]


def test_a_durable_name_is_free_for_all_if_nothing_is_denied() -> None:
    core = DurableBench()
    joins(core, ALICE).leaves()
    joins(core, Identity("bob", method="passcode")).leaves()
    joins(core, ANONYMOUS)
    assert owners(core) == ["alice"]


def owners(core: DurableBench) -> list[str]:
    """Return the owners of the durable subscriptions."""
    return [binding.owner for binding in core.broker.bindings.durables]


def joins(core: DurableBench, identity: Identity, to: str = "/topic/a", name: str = "d") -> Actor:
    """Subscribe to a durable subscription of the client id ``c``."""
    actor = core.actor()
    headers = (("client-id", "c"),)
    actor.does(Opened(VERSIONS["1.2"], NO_HEARTBEATS, headers, identity))
    actor.outbox.staged.clear()
    actor.subscribes(to, durable_subscription_name=name)
    core.turn()
    return actor


def test_client_of_a_removed_user_is_disconnected() -> None:
    core = Core(rules=rules_for(frozenset(Action)))
    alice, bob = core.peer(identity=ALICE), core.peer(identity=Identity("bob", method="passcode"))
    core.broker.use_rules(core.rules, lambda identity: identity.name == "bob", core.now)
    assert alice.error().get("code") == "authentication-failed"
    assert alice.outbox.closed is CloseReason.AUTHENTICATION_FAILED
    assert bob.frames("ERROR") == []


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("generation", [0, 1])
def test_who_was_authenticated_before_a_change_is_judged_again(
    generation: int, is_known: bool
) -> None:
    core = DurableBench()
    rules = rules_for(frozenset(Action))
    core.broker.use_rules(rules, lambda each: is_known or each.name != "alice", core.now)
    actor = core.actor()
    actor.does(Opened(VERSIONS["1.2"], NO_HEARTBEATS, (), ALICE, generation))
    actor.sends("/topic/a", "x")
    is_in = is_known or generation == core.broker.authorizer.changes
    assert core.broker.publisher.received == is_in
    codes = [frame.get("code") for frame in actor.writes() if frame.command == "ERROR"]
    assert codes == [] if is_in else ["authentication-failed"]


def test_operators_are_judged_in_each_step() -> None:
    core = Core(rules=rules_for(frozenset({SEND, RECEIVE}), "/queue/*"))
    authorizer = core.broker.authorizer
    authorizer.check_operator(ALICE, [(RECEIVE, "/queue/a")])
    for rights in ([(RECEIVE, "/topic/a")], [(RECEIVE, "/queue/a"), (ADMIN, "DIAG")]):
        with pytest.raises(ProtocolError, match="alice may not") as caught:
            authorizer.check_operator(ALICE, rights)
        assert caught.value.code == "not-authorized"
    with pytest.raises(ProtocolError, match="may not create /queue/new"):
        authorizer.check_operator(ALICE, [(SEND, "/queue/new")])
    core.reader("/queue/new", identity=Identity("bob"))
    core.broker.use_rules(core.rules, lambda identity: False, core.now)
    with pytest.raises(ProtocolError, match="log in again"):
        authorizer.check_operator(ALICE, [])
    core.broker.use_rules(None, lambda identity: True, core.now)
    authorizer.check_operator(ALICE, [(ADMIN, "DIAG")])


def test_rules_that_are_taken_away_free_everybody() -> None:
    core = Core(rules=AccessRules())
    peer = core.peer(identity=ALICE)
    core.broker.use_rules(None, lambda identity: True, core.now)
    peer.sends("/topic/a")
    peer.does(Queried("session"))
    assert peer.frames("ERROR") == []


# --- durable subscriptions of one name ------------------------------------------------------------


def shared(*owners: str) -> Core:
    """A broker with shared durable subscriptions ``d``, to a topic of each of these users."""
    core = Core()
    for number, name in enumerate(owners):
        peer = core.peer(identity=Identity(name, method="passcode"))
        peer.subscribes(f"/topic/{name}{number}", headers=DURABLE)
        peer.is_gone()
    core.broker.use_rules(built_in_rules(), lambda identity: True, core.now)
    return core


def left(core: Core) -> list[str]:
    return [each.targets[0][0] for each in core.broker.bindings.durables]


def test_own_subscription_is_meant_among_several_of_one_name() -> None:
    core = shared("bob", "alice", "carol")
    core.peer(identity=ALICE).unsubscribes("7", headers=DURABLE)
    assert left(core) == ["/topic/bob0", "/topic/carol2"]
    core.ends_with_durables()


def test_only_ones_own_are_named() -> None:
    core = shared("bob", "alice", "alice")
    alice = core.peer(identity=ALICE)
    alice.unsubscribes("7", headers=DURABLE)
    error = alice.error()
    assert error.get("code") == "ambiguous-subscription"
    assert "to /topic/alice1, /topic/alice2;" in (error.get("message") or "")
    assert len(left(core)) == 3
    core.ends_with_durables()


@pytest.mark.parametrize("expected", [None, "/topic/bob0"])
def test_others_of_that_name_are_neither_ended_nor_named(expected: str | None) -> None:
    core = shared("bob", "bob")
    alice = core.peer(identity=ALICE)
    alice.unsubscribes("7", expected, headers=DURABLE)
    error = alice.error()
    assert error.get("code") == "unknown-subscription"
    assert "/topic/bob1" not in (error.get("message") or "")
    assert len(left(core)) == 2
    core.ends_with_durables()


def test_administrator_must_name_an_ambiguous_subscription() -> None:
    core = shared("bob", "carol")
    core.broker.use_rules(rules_for(frozenset({ADMIN})), lambda identity: True, core.now)
    alice = core.peer(identity=ALICE)
    alice.unsubscribes("7", headers=DURABLE)
    assert alice.error().get("code") == "ambiguous-subscription"
    core.peer(identity=ALICE).unsubscribes("7", "/topic/carol1", headers=DURABLE)
    assert left(core) == ["/topic/bob0"]
    core.ends_with_durables()
