"""Temporary destinations and request/reply: private to a connection, and removed with it."""

import pytest

from tests.support.core import Core, Pairs, Peer, ttl_core
from tests.support.limits import MAX_TEMPORARY
from trio_stomp.base import CloseReason
from trio_stomp.broker import DestinationPolicy

REPLY: Pairs = (("reply-to", "/temp-queue/box"),)


def request(asker: Peer, responder: Peer) -> str:
    """Send a request with a ``reply-to``."""
    asker.sends("/queue/work", "ask", headers=REPLY)
    return responder.messages()[-1].get("reply-to") or ""


def test_a_reply_comes_without_a_subscribe_under_the_queues_own_name(core: Core):
    asker, responder = core.peer(), core.peer()
    responder.subscribes("/queue/work")
    where = request(asker, responder)
    assert where == "/reply-queue/s1.box"
    responder.sends(where, "answer", receipts=[(1, b"r")])
    assert responder.frames("RECEIPT")[0].get("stored") == "memory"
    (answer,) = asker.messages()
    assert (answer.text, answer.get("subscription")) == ("answer", "/temp-queue/box")
    assert request(asker, responder) == where
    assert len(asker.client.subscriptions) == 1


@pytest.mark.parametrize(
    "composite",
    ["/temp-queue/a,/temp-topic/b,/queue/r", "/queue/r,/temp-topic/b,/temp-queue/a"],
)
def test_each_temporary_name_of_a_composite_is_the_senders_own(core: Core, composite: str):
    client = core.peer()
    client.subscribes("/temp-queue/a", "a")
    client.subscribes("/temp-topic/b", "b")
    client.subscribes("/queue/r", "r")
    client.sends(composite, "x", "y")
    assert [client.bodies(id) for id in "abr"] == [["x", "y"]] * 3
    assert client.client.temporary.keys() == {"/temp-queue/a", "/temp-topic/b"}


def test_an_explicit_subscribe_replaces_the_automatic_one(core: Core):
    asker, responder = core.peer(), core.peer()
    responder.subscribes("/queue/work")
    where = request(asker, responder)
    asker.subscribes("/temp-queue/box", "mine", ack="client", headers=(("prefetch-count", "1"),))
    assert [each.id for each in asker.client.subscriptions.values()] == ["mine"]
    request(asker, responder)
    responder.sends(where, "1", "2")
    assert asker.bodies("mine") == ["1"]
    asker.acks(asker.messages()[0])
    assert asker.bodies("mine") == ["1", "2"]


def test_an_id_that_is_in_use_makes_no_second_subscription(core: Core):
    asker, responder = core.peer(), core.peer()
    responder.subscribes("/queue/work")
    asker.subscribes("/topic/t", "/temp-queue/box")
    where = request(asker, responder)
    responder.sends(where, "answer")
    assert asker.bodies() == []
    asker.subscribes("/temp-queue/box", "1")
    assert asker.bodies("1") == ["answer"]
    asker.drains()


def test_an_explicit_subscribe_may_use_the_automatic_ones_id(core: Core):
    asker, server = core.peer(), core.peer()
    server.subscribes("/topic/q")
    asker.sends("/topic/q", "?", headers=(("reply-to", "/temp-queue/x"),))
    asker.subscribes("/temp-queue/x", "/temp-queue/x", ack="client", receipt=b"r")
    server.sends(server.messages()[0].get("reply-to") or "", "!")
    assert [frame.command for frame in asker.frames()] == ["RECEIPT", "MESSAGE"]
    assert asker.messages()[0].get("ack") is not None


def test_a_temporary_queue_is_its_clients_own(core: Core):
    one, two, thief = core.peer(), core.peer(), core.peer()
    one.subscribes("/temp-queue/x")
    two.subscribes("/temp-queue/x")
    one.sends("/temp-queue/x", "for one")
    thief.sends("/reply-queue/s2.x", "for two")  # others may send
    assert (one.bodies(), two.bodies()) == (["for one"], ["for two"])
    assert one.messages()[0].get("destination") == "/reply-queue/s1.x"
    thief.subscribes("/reply-queue/s1.x")
    assert thief.error().get("code") == "not-allowed"
    assert thief.outbox.closed is CloseReason.UNSUPPORTED
    one.subscribes("/reply-queue/s1.x", "1")
    assert one.outbox.closed is None


@pytest.mark.parametrize("name", ["/temp-queue/*", "/temp-topic/a.>", "/temp-queue/a/**"])
def test_temporary_destinations_are_subscribed_to_by_name(name: str):
    peer = Core().peer()
    peer.subscribes(name)
    assert peer.error().get("code") == "invalid-wildcard"
    assert peer.client.temporary == {}


@pytest.mark.parametrize("name", ["/reply-queue/*", "/reply-topic/s1.>"])
def test_wildcards_do_not_match_private_destinations(name: str):
    peer = Core().peer()
    peer.subscribes(name)
    assert peer.error().get("code") == "not-allowed"


def test_no_wildcard_reaches_a_temporary_topic():
    core = ttl_core()
    owner, sender, spy = (core.peer() for _ in range(3))
    for number, pattern in enumerate(["*", ">", "/*", "/>"]):
        spy.subscribes(pattern, f"{number}")
    sender.sends("/reply-topic/s1.x", "nobody is there", headers=(("retain", "set"),))
    owner.subscribes("/temp-topic/x")
    owner.subscribes("/temp-topic/x", "1")
    sender.sends("/reply-topic/s1.x", "both")
    assert owner.bodies() == ["both", "both"]
    assert spy.bodies() == []
    assert core.broker.stale.size == 0
    core.ends()


def test_a_reply_to_a_temporary_topic_is_rewritten_and_not_subscribed_to(core: Core):
    asker, responder = core.peer(), core.peer()
    responder.subscribes("/queue/work")
    asker.sends("/queue/work", "ask", headers=(("reply-to", "/temp-topic/x"),))
    assert responder.messages()[0].get("reply-to") == "/reply-topic/s1.x"
    assert asker.client.subscriptions == {}
    asker.sends("/queue/work", "ask", headers=(("reply-to", "/queue/plain"),))
    assert responder.messages()[1].get("reply-to") == "/queue/plain"


def test_a_client_may_send_to_its_temporary_queue_before_it_subscribes(core: Core):
    peer = core.peer()
    peer.sends("/temp-queue/x", "early")
    peer.subscribes("/temp-queue/x")
    assert peer.bodies() == ["early"]
    peer.drains()


def test_all_of_it_is_gone_with_the_connection():
    core = Core(book={"/reply-queue/>": DestinationPolicy(backoff_s=(5.0,))})
    asker, responder = core.peer(), core.peer()
    responder.subscribes("/queue/work")
    where = request(asker, responder)
    asker.subscribes("/temp-queue/box", ack="client-individual", headers=(("prefetch-count", "2"),))
    responder.sends(where, "delayed", "unacked", "waiting")
    asker.nacks(asker.messages()[0])
    asker.sends("/temp-queue/other", "never read")
    asker.is_gone()
    assert asker.client.temporary == {}
    core.passes(6)
    assert core.memory.used_bytes == 0
    responder.sends(where, "too late", receipts=[(1, b"r")])
    assert responder.frames("RECEIPT")[-1].get("matched") == "0"
    destination = core.broker.destinations.open(where)
    assert (destination.queue, destination.dropped) == (None, 4)
    assert core.memory.used_bytes == 0
    responder.sends("/reply-queue/never.was", "x", headers=(("AMQ_SCHEDULED_DELAY", "1"),))
    core.passes(1)
    assert core.memory.used_bytes == 0
    core.ends()


def test_a_composite_reply_reaches_whoever_is_still_there(core: Core):
    asker, responder, other = (core.peer() for _ in range(3))
    responder.subscribes("/queue/work")
    where = request(asker, responder)
    other.subscribes("/queue/log")
    responder.sends(f"{where},/queue/log,/reply-queue/gone.x", "answer")
    assert asker.bodies() == other.bodies() == ["answer"]


def test_temporary_destinations_of_a_connection_are_bounded(core: Core):
    peer, other = core.peer(), core.peer()
    for number in (*range(MAX_TEMPORARY), 0, 1):
        peer.sends(f"/temp-queue/{number}", "x")
    assert peer.outbox.closed is None
    peer.sends(f"/temp-queue/{MAX_TEMPORARY}", "x")
    assert peer.error().get("code") == "too-many-temporary-destinations"
    other.sends("/temp-queue/2", "x")
    assert other.outbox.closed is None
    core.ends()


# --- stompica -------------------------------------------------------------------------------------


def test_the_seeds_clients_keep_their_socket():
    core = Core(dialect="stompica")
    peer, other = core.peer(), core.peer()
    peer.subscribes("a")
    peer.sends("a*", "refused")
    peer.sends("a", "1")
    assert [frame.command for frame in peer.frames()] == ["ERROR", "MESSAGE"]
    assert peer.outbox.closed is None
    peer.leaves(b"bye")
    assert peer.outbox.closed is None
    assert list(core.broker.clients) == [other.client]
    other.sends("a", "2")
    peer.opens()
    peer.subscribes("a")
    other.sends("a", "3")
    assert peer.bodies() == ["1", "3"]
    assert len(core.broker.clients) == 2
    core.ends()


def test_the_seeds_clients_may_use_an_id_again_and_end_each_use_of_it():
    core = Core(dialect="stompica")
    publisher, peer = core.peer(), core.peer()
    for name in ("a", "b", "c"):
        peer.subscribes(name, "same")

    def get() -> list[str]:
        before = len(peer.messages())
        for name in ("a", "b", "c"):
            publisher.sends(name, name)
        assert {frame.get("subscription") for frame in peer.messages()} <= {"same"}
        return peer.bodies()[before:]

    assert get() == ["a", "b", "c"]
    peer.unsubscribes("same", "b")
    assert get() == ["a", "c"]
    peer.unsubscribes("same")
    assert get() == ["c"]
    peer.unsubscribes("same")
    assert get() == []
    peer.unsubscribes("same", receipt=b"r")
    assert peer.frames("RECEIPT")[-1].get("ignored") == "id"
    core.ends()


def test_the_seeds_wildcards_and_names_are_taken_as_they_are():
    core = Core(dialect="stompica")
    publisher, peer = core.peer(), core.peer()
    peer.subscribes("a*", "0")
    publisher.sends("ab/c.d", "1")
    publisher.sends("a,b", "2")
    publisher.sends("a.>", "3")
    assert peer.bodies() == ["1", "2", "3"]
    core.ends()


def test_each_public_name_begins_with_its_session_and_ends_unguessably():
    core = Core()
    core.broker = core.make()  # those of a Core can be guessed
    one, other, responder = (core.peer() for _ in range(3))
    responder.subscribes("/queue/work")
    secrets = set[str]()
    for asker in (one, other):
        name = request(asker, responder).removeprefix("/reply-queue/").removesuffix(".box")
        session, _, secret = name.partition("-")
        assert session == asker.client.session_id
        assert len(bytes.fromhex(secret)) * 8 == 96
        secrets.add(secret)
    assert len(secrets) == 2
