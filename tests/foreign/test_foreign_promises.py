"""RECEIPTs and ACKs hold for stomp.py: through restarts, full queues and deep backlogs."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.support.foreign import NOTHING, Headers, Peer, PythonPeer, running_broker

pytestmark = pytest.mark.foreign

SAVED = {"persistent": "true"}
BACKLOG = 5000
POLICIES = """
["/queue/few"]
max_messages = 1
overflow = "{overflow}"
dedup_window = 100

["/queue/retry"]
ttl_ms = 500
dead_letter = "/queue/work"
dead_letter_expired = true
"""

Connect = Callable[..., Peer]
Broker = Callable[..., AbstractContextManager[Connect]]


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """Return a function that runs a broker with a journal; each run continues it."""

    @contextmanager
    def run(overflow: str = "reject") -> Iterator[Connect]:
        policies = tmp_path / "policies.toml"
        policies.write_text(POLICIES.format(overflow=overflow))
        peers: list[Peer] = []

        def connect(headers: Headers = NOTHING) -> Peer:
            peers.append(PythonPeer(port, "1.2", headers))
            return peers[-1]

        options = ("--data-dir", str(tmp_path / "data"), "--policies", str(policies))
        with running_broker(*options) as port:
            yield connect
            for peer in peers:
                peer.leave()

    return run


def fill(peer: Peer, destination: str, number: int, headers: Headers = NOTHING) -> None:
    for index in range(number - 1):
        peer.try_send(destination, f"{index}", SAVED | dict(headers))
    peer.send(destination, f"{number - 1}", SAVED | dict(headers))


def test_an_id_of_a_dropped_message_is_free(broker: Broker) -> None:
    with broker("drop-newest") as connect:
        peer = connect()
        assert "duplicate" not in peer.send("/queue/few", "0", SAVED)
        dropped = peer.send("/queue/few", "1", SAVED | {"x-dedup-id": "a"})
        assert "dropped:queue-full" in [f"{name}:{text}" for name, text in dropped.items()]
        peer.subscribe("/queue/few")
        assert peer.get().body == "0"
        assert "duplicate" not in peer.send("/queue/few", "1", SAVED | {"x-dedup-id": "a"})
        assert peer.get().body == "1"
        assert peer.send("/queue/few", "1", SAVED | {"x-dedup-id": "a"})["duplicate"] == "true"
        assert peer.is_quiet()


def test_a_queue_that_drops_its_oldest_keeps_the_newest_of_a_transaction(broker: Broker) -> None:
    with broker("drop-oldest") as connect:
        peer = connect()
        peer.begin("t")
        for index in range(5):
            peer.try_send("/queue/few", f"{index}", SAVED | {"transaction": "t"})
        peer.commit("t")
    with broker("drop-oldest") as connect:
        peer = connect()
        peer.subscribe("/queue/few")
        assert peer.get().body == "4"
        assert peer.is_quiet()


def test_a_refused_transaction_leaves_nothing_and_names_its_receipt(broker: Broker) -> None:
    with broker() as connect:
        other, peer = connect(), connect()
        other.send("/queue/few", "first", SAVED)
        peer.begin("t")
        for name in ("/queue/q", "/queue/few"):
            peer.try_send(name, "lost", SAVED | {"transaction": "t"})
        peer._transact("COMMIT", "t", {"receipt": "committed"})
        error = peer.refused().headers
        assert (error["code"], error["receipt-id"]) == ("queue-full", "committed")
        other.subscribe("/queue/q")
        other.subscribe("/queue/few", id="2")
        assert other.get().body == "first"
        assert other.is_quiet()


def test_a_retry_queue_gives_its_messages_back_though_nobody_reads_it(broker: Broker) -> None:
    with broker() as connect:
        fill(connect(), "/queue/retry", 10)
    with broker() as connect:
        peer = connect()
        peer.subscribe("/queue/work")
        assert peer.bodies(10) == [f"{index}" for index in range(10)]


def test_a_selector_finds_its_message_behind_a_stored_backlog(broker: Broker) -> None:
    with broker() as connect:
        peer = connect()
        fill(peer, "/queue/q", BACKLOG, {"sort": "a"})
        peer.send("/queue/q", "behind", SAVED | {"sort": "b"})
    with broker() as connect:
        peer = connect()
        peer.subscribe("/queue/q", ack="client", headers={"selector": "sort = 'b'"})
        message = peer.get()
        assert message.body == "behind"
        peer.ack(message)
        peer.settle()
        rest = connect()
        rest.subscribe("/queue/q")
        assert rest.bodies(BACKLOG) == [f"{index}" for index in range(BACKLOG)]
        assert rest.is_quiet()


def test_a_wildcard_serves_a_quiet_queue_beside_a_busy_one(broker: Broker) -> None:
    with broker() as connect:
        peer = connect()
        fill(peer, "/queue/w.busy", BACKLOG)
        peer.send("/queue/w.quiet", "quiet", SAVED)
        reader = connect()
        reader.subscribe("/queue/w.*", ack="client-individual", headers={"prefetch-count": "10"})
        bodies: list[str] = []
        for _ in range(30):  # the first window may be of one queue
            message = reader.get()
            reader.ack(message)
            bodies.append(message.body)
        assert "quiet" in bodies


def test_a_restart_repeats_only_what_was_not_acknowledged(broker: Broker) -> None:
    with broker() as connect:
        peer = connect()
        fill(peer, "/queue/q", 20)
        peer.subscribe("/queue/q", ack="client-individual")
        messages = [peer.get() for _ in range(20)]
        for message in messages[::2]:
            peer.ack(message)
        peer.settle()
        peer.vanish()
    with broker() as connect:
        peer = connect()
        peer.subscribe("/queue/q")
        left = [peer.get() for _ in range(10)]
        assert [each.body for each in left] == [each.body for each in messages[1::2]]
        assert all(each.headers["redelivered"] == "true" for each in left)
        assert peer.is_quiet()
