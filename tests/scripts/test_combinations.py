"""The judge of the combinations: it finds each kind of fault, and a short run finds none."""

import sys
import time
from functools import partial

import pytest
from _combinations.model import DELAYED, Copy, Model, Queue, Sub
from _combinations.policy import Policy

from tests.support.scripts import run_script

run = partial(run_script, "combinations")
NAME = "/queue/a"

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


class Case:
    """A queue, its model, and deliveries in short notation."""

    def __init__(self, **policy: object) -> None:
        self.model = Model()
        self.queue = Queue(NAME, Policy(**policy))  # type: ignore[arg-type]
        self.model.queues[NAME] = self.queue

    def send(self, body: str, level: int = 4, *, durable: bool = False, **headers: str) -> Copy:
        copy = Copy(body, headers, level, (self.model.tick(),) * 2, durable)
        self.model.admit(self.queue, copy)
        self.model.quiet = self.model.now = self.model.tick()
        return copy

    def sub(self, id: str = "1", prefetch: int = 9, **more: object) -> Sub:
        sub = Sub(id, 0, NAME, "client-individual", prefetch, **more)  # type: ignore[arg-type]
        self.queue.attach(sub)
        return sub

    def give(self, sub: Sub, body: str, name: str = NAME, count: int = 1, **headers: str) -> str:
        more = {"delivery-count": f"{count}", "redelivered": "true"} if count > 1 else {}
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.model.deliver(sub, self.model.queue(name), body, {"ack": body} | more | headers)


def test_messages_in_order_are_right_and_others_are_not() -> None:
    case = Case()
    sub = case.sub()
    case.send("1")
    case.send("2")
    case.send("3", level=9)
    assert case.queue.owed(case.model.now) == "1 of /queue/a is due to 1"
    assert case.give(sub, "1") == "3 comes before"
    assert case.give(sub, "3") == ""
    assert case.give(sub, "2") == "1 comes before"
    assert case.give(sub, "1") == ""
    assert case.give(sub, "1") == "it is held"
    assert case.give(sub, "4").startswith("it was never there")
    assert case.give(sub, "2") == ""
    assert case.queue.owed(case.model.now) == ""


def test_selectors_credit_groups_priority_and_exclusive_consumers() -> None:
    case = Case()
    case.send("1", JMSXGroupID="g", sort="a")
    case.send("2", JMSXGroupID="g", sort="a")
    first, other = case.sub("1", 1, sort="a"), case.sub("2", sort="b")
    assert case.give(other, "1") == "its selector is sort = 'b'"
    assert case.give(first, "1", JMSXGroupID="g", sort="a") == ""
    assert case.give(first, "2") == "it has no credit: it holds 1 of 1"
    third = case.sub("3", priority=1)
    assert case.give(third, "2") == "the group g belongs to 1"
    case.send("3")
    assert case.give(other, "3") == "its selector is sort = 'b'"
    fourth = case.sub("4")
    assert case.give(fourth, "3") == "3 has a higher priority"
    case.sub("5", exclusive=True)
    assert case.give(third, "3") == "5 is the exclusive consumer"


def test_refused_message_waits_holds_its_group_and_becomes_a_dead_letter() -> None:
    case = Case(max_redeliveries=1, backoff_s=(60.0,))
    sub = case.sub()
    copy = case.send("1", JMSXGroupID="g")
    case.send("2", JMSXGroupID="g")
    assert case.give(sub, "1", JMSXGroupID="g") == ""
    case.model.settle(sub, "1", "nack")
    assert copy.state == DELAYED
    assert case.give(sub, "1") == f"it is {DELAYED}"
    assert case.give(sub, "2") == "a message of the group g is in back-off"
    copy.due = (0.0, 0.0)
    assert case.give(sub, "1", JMSXGroupID="g") == "its delivery-count is 1, not 2 to 2"
    assert case.give(sub, "1", JMSXGroupID="g", count=2) == ""
    case.model.settle(sub, "1", "nack")
    dead = case.model.queues["/queue/DLQ.a"]
    assert [(each.body, each.headers["x-death-reason"]) for each in dead.copies] == [
        ("1", "delivery-limit")
    ]


def test_expired_message_may_move_and_then_must() -> None:
    case = Case(dead_letter_expired=True)
    now = time.monotonic()
    case.send("1").ends = now - 0.1, now - 0.1
    sub = case.sub()
    case.model.queue("/queue/DLQ.a").attach(sub)
    assert case.queue.owed(now) == ""
    given = case.give(sub, "1", "/queue/DLQ.a", original_destination=NAME, x_death_reason="expired")
    assert given == ""
    case.send("2").ends = now - 9, now - 9
    case.model.quiet = now
    assert case.give(sub, "2").startswith("it expired 9.0 s before")
    case.model.pass_time()
    assert case.queue.copies == []
    assert case.model.queues["/queue/DLQ.a"].owed(case.model.now) == "2 of /queue/DLQ.a is due to 1"


@pytest.mark.parametrize(
    ("overflow", "refused", "left"),
    [
        ("reject", "reject", ["1", "2"]),
        ("drop-newest", "drop-newest", ["1", "2"]),
        ("drop-oldest", "", ["2", "3"]),
        ("dead-letter", "", ["2", "3"]),
    ],
)
def test_full_queue(overflow: str, refused: str, left: list[str]) -> None:
    case = Case(max_messages=2, overflow=overflow)
    case.send("1")
    case.send("2")
    third = Copy("3", {}, 4, (case.model.tick(),) * 2, False)
    assert case.model.admit(case.queue, third) == refused
    assert [copy.body for copy in case.queue.waiting()] == left
    assert ("/queue/DLQ.a" in case.model.queues) == (overflow == "dead-letter")


def test_restart_leaves_durable_messages() -> None:
    case = Case()
    sub = case.sub()
    case.send("1")
    case.send("2", durable=True)
    assert case.give(sub, "1") == ""
    assert case.give(sub, "2") == ""
    case.model.restart(has_store=True)
    sub = case.sub("2")
    assert case.give(sub, "1") == "it was never there; not durable, before a restart"
    assert case.give(sub, "2", count=2) == ""


@pytest.mark.full
def test_a_short_run_finds_nothing() -> None:
    done = run("--minutes", "0.1", "--seed", "5", "--scenarios", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("0 findings: ")


def test_fault_is_reported_with_its_steps(tmp_path) -> None:
    (tmp_path / "trio_stomp").mkdir()
    (tmp_path / "trio_stomp" / "__init__.py").touch()
    (tmp_path / "trio_stomp" / "__main__.py").write_text(UNFAITHFUL)
    few = ("--scenarios", "1", "--shrink-s", "0", "--minutes", "0.01")
    done = run("--seed", "3", *few, "--tree", str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "found in " in done.stdout
    assert "FINDING: " in done.stdout


UNFAITHFUL = """
import socket
import sys
port = int(sys.argv[len(sys.argv) - 1 - sys.argv[::-1].index("--port") + 1])
with socket.create_server(("127.0.0.1", port)) as server:
    print(f"listening on 127.0.0.1:{port}", flush=True)
    while True:
        link, _ = server.accept()
        link.recv(65536)
        link.sendall(b"CONNECTED\\nversion:1.2\\n\\n\\0")
        link.recv(65536)
        link.close()
"""
"""A broker that opens a session and leaves."""
