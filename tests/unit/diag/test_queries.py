"""The seed's questions (SEEDS A8): SENDs to DIAG destinations, and the DIAG command."""

import pytest

from tests.support.core import Core, Peer, ttl_core
from trio_stomp.broker import Census
from trio_stomp.protocol import Queried

CENSUS = Census(
    clients=5,
    websockets=2,
    input_queue_size=7,
    output_queue_size=8,
    ws_allocated=20,
    ws_hits=30,
    ws_misses=40,
)

SESSION = {"clients": "5", "websockets": "2", "stomp_connected": "3", "subscriptions": "4"}
BUFFER = {"allocated": "20", "hits": "30", "misses": "40"}
STALE = {"input-queue-size": "7", "output-queue-size": "8", "stale-queue-size": "2"}


@pytest.fixture
def core() -> Core:
    """Three sessions, four subscriptions, two parked messages."""
    core = ttl_core()
    core.server.figures = CENSUS
    asker, reader, third = core.peer(), core.peer(), core.peer()
    asker.sends("parked", "0", "1")
    for number, destination in enumerate(["DIAG/mine", "DIAG*"]):
        reader.subscribes(destination, str(number))
        third.subscribes(["b", "é,x"][number], str(number))
    return core


def ask(core: Core, *bodies: str, headers=(("ts", "17"),), destination="DIAG/mine") -> Peer:
    asker, reader = core.peers[:2]
    asker.sends(destination, *bodies, headers=headers)
    return reader


@pytest.mark.parametrize(
    ("body", "figures"),
    [
        ("session", SESSION),
        ("session whatever", SESSION),
        ("sessions\n", SESSION),
        ("session-size", {"session-size": "5"}),
        ("session-encoded-size", {"session-encoded-size": "2"}),
        ("session-connected-size", {"session-connected-size": "3"}),
        ("pubsub-size", {"pubsub-size": "4"}),
        ("pubsub-size and more", {"pubsub-size": "4"}),
        ("ws_buffer", BUFFER),
        ("stale", STALE),
        ("subs", {}),
        ("", {}),
        ("Session", {}),
        (" session", {}),
        ("é" * 100, {}),
    ],
)
def test_a_send_to_a_diag_topic_is_answered_with_headers(core: Core, body: str, figures):
    reader = ask(core, body)
    frames = reader.messages()
    assert [frame.get("subscription") for frame in frames] == ["0", "1"]
    for frame in frames:
        assert frame.text == body
        assert frame.get("destination") == "DIAG/mine"
        assert frame.get("ts") == "17"  # the client computes the latency with it
        fields = dict(frame.headers[frame.names.index("ts") + 1 :])
        fields.pop("content-length", None)
        assert fields == figures


def test_each_body_of_a_run_is_answered_for_itself(core: Core):
    reader = ask(core, "session", "x", "stale", headers=())
    frames = [frame for frame in reader.messages() if frame.get("subscription") == "0"]
    assert [frame.get("clients") for frame in frames] == ["5", None, None]
    assert [frame.get("stale-queue-size") for frame in frames] == [None, None, "2"]
    destination = core.broker.destinations.open("DIAG/mine")
    assert (destination.enqueued, destination.delivered) == (3, 6)


def test_figures_cannot_be_forged(core: Core):
    reader = ask(core, "session", headers=(("clients", "99"), ("ts", "1"), ("hits", "own")))
    frame = reader.messages()[0]
    assert frame.get("clients") == "5"
    assert frame.get("hits") == "own"  # no figure of this answer


def test_a_body_that_is_no_text_passes(core: Core):
    asker, reader = core.peers[:2]
    asker.sends("DIAG/mine", b"\xff\xfe session")
    assert [frame.body for frame in reader.messages()] == [b"\xff\xfe session"] * 2


def test_without_subscribers_a_question_is_dropped_and_never_parked(core: Core):
    core.peers[1].is_gone()
    ask(core, "session", destination="DIAG/mine")
    assert core.broker.stale.size == 2
    assert core.broker.fan_out.drops.no_subscriber == 1
    late = core.peer()
    late.subscribes("DIAG/mine")
    assert late.messages() == []


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("session-size", "session-size:5"),
        ("session-encoded-size", "session-encoded-size:2"),
        ("session-connected-size", "session-connected-size:3"),
        ("pubsub-size\r\n", "pubsub-size:4"),
        ("session", 'session:{"clients":5,"websockets":2,"stomp_connected":3,"subscriptions":4}'),
        ("ws_buffer\n", 'ws_buffer:{"allocated":20,"hits":30,"misses":40}'),
        ("stale", 'stale:{"in":7,"out":8,"stale":2}'),
        ("subs", "subs:DIAG/mine,b,DIAG*,é,x"),
    ],
)
@pytest.mark.parametrize("opens", [True, False])
def test_the_diag_command_is_answered_before_connect_too(
    core: Core, query: str, answer: str, opens: bool
):
    stranger = core.peer("1.1" if opens else "1.0", opens=opens)
    if opens:
        answer = answer.replace('connected":3', 'connected":4').replace(
            "connected-size:3", "connected-size:4"
        )
    stranger.does(Queried(query))
    (frame,) = stranger.frames()
    assert frame.command == "DIAG"
    assert frame.get("content-type") == "text/plain"
    assert frame.text == answer
    assert stranger.outbox.closed is None


@pytest.mark.parametrize("query", ["", "weather", "Session", "session x", "subs "])
def test_another_query_is_an_error(core: Core, query: str):
    stranger = core.peer(opens=False)
    stranger.outbox.version = "1.0"
    stranger.does(Queried(query))
    assert stranger.error().get("code") == "unknown-query"
    assert (stranger.error().get("message") or "").startswith("Invalid message!")
    assert repr(query) in (stranger.error().get("message") or "")


@pytest.mark.parametrize(
    "name",
    [
        "session", "ws_buffer", "stale", "queues", "destinations", "latency", "process",
        "connections", "event/drop",
    ],
)  # fmt: skip
def test_nothing_of_a_client_enters_the_brokers_own_stream(core: Core, name: str):
    reader = core.peer()
    reader.subscribes(f"DIAG/{name}")
    ask(core, "session", destination=f"DIAG/{name}")
    asker = core.peers[0]
    assert asker.error().get("code") == "reserved-destination"
    assert reader.messages() == []


def test_subs_lists_at_most_4000_bytes_in_order():
    core = Core()
    peer = core.peer()
    for number, length in enumerate([999, 999, 999, 1000]):
        peer.subscribes(str(number) * length, str(number))
    asker = core.peer()
    asker.does(Queried("subs"))
    listed = asker.frames()[0].text.removeprefix("subs:")
    assert len(listed) == 4000
    assert listed.count(",") == 3
    peer.subscribes("x", "4")
    asker.does(Queried("subs"))
    assert asker.frames()[1].text == asker.frames()[0].text


def test_the_list_counts_bytes_not_characters():
    core = Core()
    peer, asker = core.peer(), core.peer()
    for number in range(5):
        peer.subscribes(f"{number}" + "é" * 500, str(number))
    asker.does(Queried("subs"))
    assert asker.frames()[0].text.count("é") == 1500


def test_subs_of_an_unknown_client():
    asker = Core().peer()
    asker.does(Queried("subs"))
    assert asker.frames()[0].text == "subs:"
