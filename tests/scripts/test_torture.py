"""The torture's own judge: it reports each kind of violation, and a short run finds none."""

import json
import random
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from _crash.link import Reply
from _torture.client import Client, Stage
from _torture.model import ABORTED, World
from _torture.session import Session, Wrong
from _torture.subscriptions import Sub, mark_acked, mark_sure
from _torture.wire import client_messages, cut

from tests.support.hostile import hear
from tests.support.scripts import run_script
from tests.support.tls import authority

run = partial(run_script, "torture")
PATIENCE_S = 120
QUEUE, TOPIC = "/queue/a", "/topic/a"

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


class History:
    """The frames of one connection, in short notation."""

    def __init__(self, world=None, who: str = "c1.1 tcp") -> None:
        self.world = world or World()
        self.session = Session(self.world, who)

    def send(self, to: str = QUEUE, *, receipt: str = "", in_transaction: bool = False):
        place = self.session.number(to, in_transaction=in_transaction)
        effect = None if in_transaction else partial(mark_sure, [place])
        self.session.send("SEND", 0.0, receipt, effect)
        return place

    def ask(self, command: str, receipt: str = "", effect: Callable[[], None] | None = None):
        self.session.send(command, 0.0, receipt, effect)

    def subscribe(self, to: str = QUEUE, *, answer: bool = True, **more: Any):
        sub = Sub(f"s{len(self.session.subs)}", to, **more)
        self.ask("SUBSCRIBE", sub.id, self.session.sub(sub))
        if answer:
            self.receipt(sub.id)
        return sub

    def unsubscribe(self, sub, *, answer: bool = True) -> None:
        self.ask("UNSUBSCRIBE", f"un{sub.id}", self.session.unsub(sub))
        if answer:
            self.receipt(f"un{sub.id}")

    def hear(self, command: str, body: str = "", **headers: str) -> None:
        pairs = {name.replace("_", "-"): text for name, text in headers.items()}
        with suppress(Wrong):
            self.session.hear(Reply(command, pairs, body), 1.0)

    def receipt(self, name: str) -> None:
        self.hear("RECEIPT", receipt_id=name)

    def message(self, sub, place, delivery: int = 1) -> None:
        more = {"redelivered": "true", "delivery_count": f"{delivery}"} if delivery > 1 else {}
        body = f"{place.lane.name} {place.number} xxx"
        self.hear("MESSAGE", body, subscription=sub.id, ack=f"{place.number}", **more)

    @property
    def found(self) -> str:
        return " | ".join(f"{each.kind}: {each.text}" for each in self.world.violations)


@pytest.fixture
def history() -> History:
    return History()


class TestAConnection:
    """The frames that a connection may receive."""

    def test_all_is_well(self, history: History) -> None:
        history.hear("CONNECTED")
        sub = history.subscribe(ack="client")
        first, second = history.send(), history.send(receipt="2")
        history.message(sub, first)
        history.receipt("2")
        history.message(sub, second)
        history.message(sub, first, 2)
        history.unsubscribe(sub)
        history.world.judge()
        assert history.found == ""

    @pytest.mark.parametrize(("code", "kind"), [("unknown-ack", "order"), ("storage", "error")])
    def test_an_error(self, history: History, code: str, kind: str) -> None:
        history.hear("ERROR", code=code, message="no")
        assert history.found == f"{kind}: ERROR {code}: no"

    def test_an_error_that_is_right_but_too_early(self, history: History) -> None:
        history.send(receipt="1")
        history.session.expects_error = True
        history.hear("ERROR", code="unknown-command")
        assert history.found == "order: the ERROR arrived before RECEIPT 1"

    def test_a_frame_that_nothing_called_for(self, history: History) -> None:
        history.hear("CONNECTED")
        history.hear("CONNECTED")
        assert history.found.startswith("error: an unexpected CONNECTED")

    def test_a_message_before_its_subscription(self, history: History) -> None:
        history.message(history.subscribe(answer=False), history.send())
        assert history.found.startswith("order: a MESSAGE arrived before the RECEIPT")

    def test_a_message_after_the_end_of_its_subscription(self, history: History) -> None:
        sub = history.subscribe()
        history.unsubscribe(sub)
        history.message(sub, history.send())
        assert history.found.startswith("order: a MESSAGE arrived for an unknown")

    def test_a_message_that_was_never_sent(self, history: History) -> None:
        sub = history.subscribe()
        history.hear("MESSAGE", "c9>/queue/a>p 0 x", subscription=sub.id)
        history.message(sub, history.send("/queue/b"))
        assert history.world.found == {"error": 2}

    def test_an_own_queue_is_out_of_order(self, history: History) -> None:
        sub = history.subscribe(is_own=True, ack="client")
        first, second = history.send(), history.send()
        history.message(sub, second)
        history.message(sub, first, 2)
        assert history.found == ""
        history.message(sub, first)
        assert history.found.startswith("order: c1.1>/queue/a>p 0 arrived after 1")

    def test_a_browser_must_see_all_of_an_own_queue(self, history: History) -> None:
        places = [history.send() for _ in range(3)]
        history.send("/queue/b")
        sub = history.subscribe(is_own=True, is_browser=True)
        for each in places[:2]:
            history.message(sub, each)
        history.hear("MESSAGE", subscription=sub.id, browser="end")
        assert history.found == "lost: c1.1>/queue/a>p 2 did not come to subscription s0"

    @pytest.mark.parametrize(
        ("asked", "came", "text"),
        [(["1", "", "3"], "3", "3 arrived before 1"), ([], "1", "1 arrived, but was not")],
        ids=["overtakes", "of-nothing"],
    )
    def test_wrong_receipt_is_reported_with_the_frames_before(
        self, history: History, asked: list[str], came: str, text: str
    ) -> None:
        for receipt in asked:
            history.send(receipt=receipt)
        history.receipt(came)
        (violation,) = history.world.violations
        assert ("SEND receipt 1" in str(violation)) == bool(asked)
        assert str(violation).startswith(f"order: c1.1 tcp: RECEIPT {text}")


class TestATopic:
    """All messages from a SUBSCRIBE's RECEIPT on arrive, in order."""

    def test_messages_sent_before_the_subscription_are_optional(self, history: History) -> None:
        places = [history.send(TOPIC) for _ in range(4)]
        sub = history.subscribe(TOPIC)
        history.message(sub, places[2])
        history.message(sub, places[3])
        history.message(sub, history.send(TOPIC))
        assert history.found == ""

    @pytest.mark.parametrize(("came", "text"), [((1,), "0 is missing"), ((0, 2), "1 is missing")])
    def test_a_hole(self, history: History, came: tuple[int, ...], text: str) -> None:
        sub = history.subscribe(TOPIC)
        places = [history.send(TOPIC) for _ in range(3)]
        for number in came:
            history.message(sub, places[number])
        assert history.found.startswith(f"lost: c1.1>{TOPIC}>p {text}")

    def test_aborted_messages_leave_no_gap(self, history: History) -> None:
        sub = history.subscribe(TOPIC)
        first, second = (history.send(TOPIC, in_transaction=True) for _ in range(2))
        first.lane.state[0] = ABORTED
        history.message(sub, second)
        assert history.found == ""
        history.message(history.subscribe(TOPIC), first)
        assert history.found.startswith("transaction: ")

    def test_a_message_delivered_twice(self, history: History) -> None:
        sub, place = history.subscribe(TOPIC), history.send(TOPIC)
        history.message(sub, place)
        history.message(sub, place)
        assert history.found.startswith("order: ")

    def test_messages_accepted_before_unsubscribe_must_arrive(self, history: History) -> None:
        other = History(history.world, "c2.1 ws")
        sub = history.subscribe(TOPIC)
        place = other.send(TOPIC, receipt="1")
        other.send(TOPIC)  # it may or may not have been accepted
        other.receipt("1")
        history.unsubscribe(sub, answer=False)
        assert history.found == ""
        history.receipt("uns0")
        assert history.found.startswith(f"lost: {place.lane.name} 0 did not come")

    def test_closed_connection_owes_nothing(self, history: History) -> None:
        other = History(history.world, "c2.1 ws")
        sub = history.subscribe(TOPIC)
        other.send(TOPIC, receipt="1")
        other.receipt("1")
        other.session.end()
        history.unsubscribe(sub)
        assert history.found == ""


class TestAQueue:
    """Queues with many consumers."""

    def test_the_same_delivery_comes_twice(self, history: History) -> None:
        place = history.send()
        history.message(history.subscribe(ack="client"), place)
        history.message(history.subscribe(ack="client"), place)
        assert history.found.endswith("delivery 1, arrived twice, without redelivered:true")

    def test_late_reader_may_get_an_earlier_delivery(self, history: History) -> None:
        place = history.send()
        history.message(history.subscribe(ack="client"), place, 2)
        mark_acked([place._replace(delivery=2)])
        history.message(history.subscribe(ack="client"), place)
        assert history.found == ""

    @pytest.mark.parametrize("ack", ["auto", "client"])
    def test_one_comes_after_it_was_acknowledged(self, history: History, ack: str) -> None:
        place = history.send()
        history.message(history.subscribe(ack=ack), place)
        if ack == "client":
            history.ask("ACK", "a", partial(mark_acked, [place]))
            history.receipt("a")
        history.message(history.subscribe(ack=ack), place, 2)
        assert history.found.startswith("double: ")
        assert history.found.endswith("but delivery 1 was acknowledged")

    def test_one_is_lost(self, history: History) -> None:
        history.send(receipt="1")
        history.send()
        history.receipt("1")
        history.world.judge()
        assert history.found == "lost: c1.1>/queue/a>p 0 had its RECEIPT"


# --- behaviour visible on a socket---------------------------------------------------------------

CONNECTED = b"CONNECTED\nversion:1.2\n\n\0"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"


def _read(link: socket.socket, end: bytes) -> None:
    data = b""
    while end not in data and (more := link.recv(65536)):
        data += more


def mute(link: socket.socket) -> None:
    _read(link, b"nothing that comes")


def leave(link: socket.socket) -> None:
    _read(link, b"\0")
    link.sendall(CONNECTED)


def stay(link: socket.socket) -> None:
    leave(link)
    _read(link, b"nothing that comes")


def overhear_the_end(link: socket.socket) -> None:
    stay(link)
    time.sleep(1)


def close_never(link: socket.socket) -> None:
    _read(link, b"\r\n\r\n")
    link.sendall(SWITCHED)
    link.recv(65536)  # CONNECT, masked
    link.sendall(bytes([0x81, len(CONNECTED)]) + CONNECTED)
    _read(link, b"nothing that comes")


def break_tls(link: socket.socket) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority().certificate)
    with context.wrap_socket(link, server_side=True, suppress_ragged_eofs=True) as secret:
        leave(secret)
        raw = socket.socket(fileno=secret.detach())
    with raw:
        raw.sendall(b"\x17\x03\x03\x00\x10" + bytes(16))
        _read(raw, b"nothing that comes")


@contextmanager
def fake_broker(part: Callable[[socket.socket], None]) -> Iterator[int]:
    """A broker that plays ``part`` with each client, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    link, _ = server.accept()
                    with link, suppress(OSError):
                        link.settimeout(2)
                        part(link)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_S)


@pytest.mark.parametrize(
    ("part", "transport", "end", "kind", "text"),
    [
        (mute, "tcp", "disconnect", "silence", "no CONNECTED"),
        (mute, "tls", "disconnect", "tls", "no connection"),
        (leave, "tcp", "listen", "ended", "the broker left"),
        (stay, "tcp", "disconnect", "silence", "no RECEIPT"),
        (overhear_the_end, "tcp", "_half_close", "close", "no end behind a half close"),
        (stay, "tcp", "_break_rules", "close", "no ERROR"),
        (close_never, "ws", "_close", "close", "no Close"),
        (close_never, "ws", "_break_websocket", "close", "no Close 100"),
        (break_tls, "tls", "listen", "tls", "SSLError"),
    ],
)
def test_each_wrong_end_of_a_connection_is_a_violation(
    part: Callable[[socket.socket], None], transport: str, end: str, kind: str, text: str
) -> None:
    class OneEnd(Client):
        def play(self) -> None:
            pass

        def _end(self, *, is_polite: bool) -> None:
            getattr(self, end)(*((0.2,) if end == "listen" else ()))

    world = World()
    with fake_broker(part) as port:
        stage = Stage(world, port, authority().client_context(), 0.3, threading.Event())
        OneEnd(stage, "c1", transport, "1").live()
    (violation,) = world.violations
    assert violation.kind == kind, violation
    assert text in violation.text


def test_restart_excuses_the_end_of_a_connection_but_no_delivery() -> None:
    world = World()
    before, after = History(world), History(world, "c2.1 tcp")
    plain, saved = before.send(), before.session.number(QUEUE, is_saved=True)
    mark_sure([plain, saved])
    world.begin_down()
    before.hear("ERROR", code="shutting-down")
    assert before.found == ""
    world.judge()  # only the durable one had to survive
    assert before.found == "lost: c1.1>/queue/a>p 1 had its RECEIPT"
    after.session.boot = world.boot
    sub = after.subscribe(ack="client")
    after.message(sub, saved)
    mark_acked([saved])
    after.message(sub, saved)
    assert "delivery 1001, arrived" in after.found


def test_what_an_ending_broker_accepts_may_end_with_it(history: History) -> None:
    history.world.begin_down()
    history.send(receipt="1")
    history.receipt("1")
    history.world.judge()
    assert history.found == ""


def test_little_memory_excuses_refusals(history: History) -> None:
    history.world.refusals = ("queue-full",)
    history.send(receipt="1")
    history.hear("ERROR", code="queue-full")
    with suppress(Wrong):
        history.session.expect_nothing("the Close")
    assert history.found == ""
    history.hear("ERROR", code="unknown-ack")
    assert history.found.startswith("order: ERROR unknown-ack")


@pytest.mark.parametrize("seed", range(20))
def test_pieces_join_to_the_original(seed: int) -> None:
    dice = random.Random(seed)
    data = bytes(dice.randrange(128) for _ in range(dice.choice((1, 2, 130, 70_000))))
    pieces = cut(data, dice)
    assert b"".join(pieces) == data
    assert hear(client_messages(pieces, dice)).data == data


def test_a_short_run_finds_nothing() -> None:
    done = run("--plain", "--minutes", "0.05", "--clients", "10", "--seed", "5")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["violations"] == {}
    assert record["RECEIPTs"] > 0
    assert record["connections"] > 10


def test_violation_is_reported_with_its_seed() -> None:
    with fake_broker(leave) as port:
        url = f"stomp://127.0.0.1:{port}"
        few = ("--minutes", "0.01", "--clients", "1", "--transports", "tcp", "--patience", "1")
        done = run("--url", url, "--seed", "77", *few)
    assert done.returncode == 1
    assert "ended: c0.1 tcp: the broker left" in done.stderr
    assert "seed 77" in done.stderr
