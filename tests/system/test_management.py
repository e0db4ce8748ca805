"""The management interface over real sockets: its operations, permissions, and limits."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.fakes import MEMORY, Client, Dial, open_dial, until
from tests.support.files import save
from tests.support.logins import basic
from tests.support.management import API, OPERATIONS_AT_ONCE, Interface, ask, description
from tests.support.served import Served, served
from tests.support.site import QUIET, add_all, empty_queues

Q = "/queue/q"
ALICE = basic("alice", "wonder-land")


async def does(broker: Served, method: str, target: str) -> Any:
    reply = await Interface(broker).ask(method, target)
    assert reply.status == 200, reply.text
    return reply.json


@pytest.mark.parametrize("is_stored", [False, True])
async def test_messages_are_shown_moved_and_purged(tmp_path: Path, is_stored: bool) -> None:
    options = {"data_dir": str(tmp_path)} if is_stored else {}
    headers = {"persistent": "true", "kind": "fruit"}
    async with served(**options) as broker:
        client = await broker.connect({})
        watcher = await broker.connect({})
        for number, name in enumerate(("move", "purge")):
            await watcher.subscribe(f"DIAG/event/{name}", str(number))
        await client.publish(Q, b"a", b"b", b"\xff", b"c" * 50, headers=headers, receipt=True)
        shown = await does(broker, "GET", f"messages?queue={Q}&offset=1&limit=2&bytes=20")
        assert (shown["total"], shown["seen"]) == (4, 3)
        first, second = shown["messages"]
        assert (first["body"], first["headers"]["kind"]) == ("b", "fruit")
        assert (first["stored"], first["size"], first["deliveries"]) == (is_stored, 1, 0)
        assert (second["body_base64"], second["size"]) == ("/w==", 1)
        result = await does(broker, "GET", f"explain?q={first['message_id']}")
        assert result["facts"]
        moved = await does(broker, "POST", f"move?queue={Q}&to=/queue/r&count=3")
        assert moved == {"queue": Q, "to": "/queue/r", "moved": 3}
        purged = await does(
            broker, "POST", "purge?queue=/queue/r&selector=kind=%27fruit%27&count=1"
        )
        assert purged == {"queue": "/queue/r", "purged": 1}
        events = [json.loads(frame.body) for frame in await watcher.receive_many(2)]
        assert [(each["name"], each["detail"]) for each in events] == [
            ("move", "3 messages to /queue/r"),
            ("purge", "1 message"),
        ]
        listed = await does(broker, "GET", "queues")
        assert {each["destination"] for each in listed["queues"]} == {Q, "/queue/r"}
    if is_stored:
        async with served(**options) as broker:
            client = await broker.connect({})
            await client.subscribe("/queue/r")
            assert [frame.body for frame in await client.receive_many(2)] == [b"b", b"\xff"]
            await client.subscribe(Q, "2")
            assert (await client.receive()).body == b"c" * 50


async def test_a_cut_character_is_left_out() -> None:
    async with served() as broker:
        client = await broker.connect({})
        await client.publish(Q, "zürich".encode(), receipt=True)
        shown = await does(broker, "GET", f"messages?queue={Q}&bytes=2")
        assert shown["messages"][0]["body"] == "z"


@pytest.mark.parametrize(
    ("method", "target", "status", "code", "text"),
    [
        ("POST", "purge", 400, "bad-request", "queue is missing"),
        ("POST", "purge?queue=/queue/none", 404, "no-such-queue", "there is no queue"),
        ("POST", f"purge?queue={Q}&selector=a+=", 400, "invalid-selector", ""),
        ("POST", f"purge?queue={Q}&count=0", 400, "bad-request", "from 1 to"),
        ("POST", f"purge?queue={Q}&cuont=1", 400, "bad-request", "did you mean count?"),
        ("POST", f"move?queue={Q}", 400, "bad-request", "to is missing"),
        ("POST", f"move?queue={Q}&to={Q}", 400, "invalid-destination", "is the queue itself"),
        ("POST", f"move?queue={Q}&to=/queue/*", 400, "wildcard-in-send", ""),
        ("POST", f"move?queue={Q}&to=/topic/t", 409, "no-subscriber", "nobody is subscribed"),
        ("POST", "retry?queue=/queue/none", 404, "no-such-queue", "there is no queue"),
        ("POST", "pause?queue=/queue/none", 404, "no-such-queue", "there is no queue"),
        ("GET", "queue?queue=/queue/none", 404, "no-such-queue", "there is no queue"),
        ("GET", "connection?session=12", 404, "no-such-session", "there is no session '12'"),
        ("GET", "connection", 400, "bad-request", "session is missing"),
        ("POST", "close", 400, "bad-request", "session is missing"),
        ("POST", "close?session=12", 404, "no-such-session", "there is no session '12'"),
        ("GET", f"purge?queue={Q}", 405, "method-not-allowed", "answers POST only"),
        ("DELETE", "messages", 405, "method-not-allowed", "answers GET only"),
    ],
)
async def test_errors_are_json_with_a_code_and_change_nothing(
    method: str, target: str, status: int, code: str, text: str
) -> None:
    async with served() as broker:
        client = await broker.connect({})
        await client.publish(Q, b"a", receipt=True)
        reply = await Interface(broker).ask(method, target)
        assert (reply.status, reply.headers["content-type"]) == (status, "application/json")
        answer = json.loads(reply.body)
        assert answer["code"] == code
        assert text in answer["error"]
        await client.subscribe(Q)
        assert (await client.receive()).body == b"a"


RULES = """
[[rule]]
user = "alice"
allow = ["browse", "receive", "send", "create"]
to = "/queue/**"

[[rule]]
user = "bob"
allow = ["send", "create"]
to = "/queue/**"

[[rule]]
user = "carol"
allow = ["admin"]
to = "DIAG"
"""


async def test_each_operation_requires_its_right(tmp_path: Path) -> None:
    users = save(tmp_path / "users", "alice:wonder-land\nbob:builder\ncarol:singer\n")
    rules = save(tmp_path / "acl.toml", RULES)
    async with served(passwd_file=users, acl_file=rules) as broker:
        alice = await broker.connect({"login": "alice", "passcode": "wonder-land"})
        await alice.publish(Q, b"a", b"b", receipt=True)
        bob, carol = basic("bob", "builder"), basic("carol", "singer")

        async def status(method: str, target: str, *headers: tuple[str, str]) -> tuple[int, str]:
            reply = await Interface(broker).ask(method, target, *headers)
            return reply.status, json.loads(reply.body).get("code", "")

        for method, target in (
            ("GET", f"messages?queue={Q}"),
            ("POST", f"purge?queue={Q}&count=1"),
            ("POST", f"move?queue={Q}&to=/queue/r&count=1"),
            ("POST", f"retry?queue={Q}"),
        ):
            assert await status(method, target) == (401, "authentication-failed")
            assert await status(method, target, bob) == (403, "not-authorized")
            assert await status(method, target, ALICE) == (200, "")
        target = "move?queue=/queue/r&to=/topic/t"
        assert await status("POST", target, ALICE) == (403, "not-authorized")
        assert await status("POST", "close?session=1", ALICE) == (403, "not-authorized")
        assert await status("POST", "close?session=1", carol) == (404, "no-such-session")
        assert await status("POST", f"pause?queue={Q}", ALICE) == (403, "not-authorized")
        assert await status("POST", f"pause?queue={Q}", carol) == (200, "")
        assert await status("GET", f"queue?queue={Q}", ALICE) == (403, "not-authorized")
        described = {
            (method.upper(), path.removeprefix(API)): each["description"]
            for path, methods in description()["paths"].items()
            for method, each in methods.items()
        }
        for (method, name), text in described.items():
            if text == "Required right: admin at DIAG.":
                needed = {
                    "queue": Q,
                    "session": "1",
                    "id": "1",
                    "name": "n",
                    "stream": "/stream/DIAG",
                    "offset": "0",
                }
                names = [each["name"] for each in parameters(method, name)]
                query = "&".join(f"{each}={needed[each]}" for each in names if each in needed)
                target = f"{name}?{query}"
                assert await status(method, target, ALICE) == (403, "not-authorized"), target
                # An import without a body is refused, but not her right to it.
                assert (await status(method, target, carol))[0] in (200, 400, 404), target


def parameters(method: str, name: str) -> Any:
    return description()["paths"][API + name][method.lower()]["parameters"]


async def test_user_can_list_their_rights(tmp_path: Path) -> None:
    users = save(tmp_path / "users", "alice:wonder-land\ncarol:singer\n")
    rules = save(tmp_path / "acl.toml", RULES + '[groups]\nops = ["carol"]\n')
    async with served(passwd_file=users, acl_file=rules) as broker:
        interface = Interface(broker)
        carol = basic("carol", "singer")
        reply = await interface.ask("GET", f"whoami?destination={Q}", ALICE)
        assert reply.json == {
            "user": "alice",
            "login": "passcode",
            "roles": [],
            "destination": Q,
            "rights": ["send", "receive", "browse", "create"],
            "operations": ["purge", "move", "retry", "create", "send", "clear"],
            "rules": "own",
        }
        reply = await interface.ask("GET", f"whoami?destination={Q}", carol)
        assert reply.json["operations"] == ["redeliver", "delete", "pause", "resume"]
        reply = await interface.ask("GET", "whoami", carol)
        assert reply.json["rights"] == ["admin"]
        assert reply.json["operations"] == [
            "trim",
            "cancel",
            "end",
            "reload",
            "definitions",
            "close",
        ]
        reply = await interface.ask("GET", "whoami", ALICE)
        assert reply.json["operations"] == ["cancel", "end"]  # of those that are hers
        assert (await interface.ask("GET", "whoami")).status == 401
        assert (await interface.ask("GET", "whoami?destination=/queue/*", carol)).status == 400
        await broker.connect({"login": "alice", "passcode": "wonder-land"})
        listed = (await interface.ask("GET", "users?limit=1", carol)).json
        assert listed["total"] == 2
        assert listed["users"] == [{"name": "alice", "groups": [], "connections": 1}]
        (carols,) = (await interface.ask("GET", "users?name=car", carol)).json["users"]
        assert carols["groups"] == ["ops"]
        shown = (await interface.ask("GET", "rules?offset=1", carol)).json
        assert (shown["total"], shown["source"], shown["groups"]) == (3, "own", {"ops": ["carol"]})
        bob, _ = shown["rules"]
        assert bob["location"].startswith(str(tmp_path))
        del bob["location"]
        assert bob == {
            "allow": True,
            "actions": ["create", "send"],
            "to": ["/queue/**"],
            "users": ["bob"],
            "groups": [],
        }


OWN = """
[[rule]]
user = ["alice", "bob"]
allow = ["receive", "send", "create"]
to = "/topic/**"

[[rule]]
user = "carol"
allow = ["admin", "monitor"]
to = "DIAG"
"""


async def test_users_list_and_end_only_their_own_subscriptions_schedules_and_last_values(
    tmp_path: Path,
) -> None:
    users = save(tmp_path / "users", "alice:wonder-land\nbob:builder\ncarol:singer\n")
    async with served(passwd_file=users, acl_file=save(tmp_path / "acl.toml", OWN)) as broker:
        interface = Interface(broker)
        bob, carol = basic("bob", "builder"), basic("carol", "singer")
        for name, passcode in (("alice", "wonder-land"), ("bob", "builder")):
            client = await broker.connect({"login": name, "passcode": passcode})
            durable = {"activemq.subscriptionName": "d", "durable": "true", "ack": "client"}
            await client.subscribe("/topic/t", "1", durable)
            retained = {"retain": "set"}
            await client.publish(f"/topic/{name}", b"x", headers=retained, receipt=True)
            later = {"AMQ_SCHEDULED_DELAY": "900000"}
            await client.publish("/topic/t", b"x", headers=later, receipt=True)

        async def ask(method: str, target: str, user: tuple[str, str]) -> Any:
            reply = await interface.ask(method, target, user)
            return reply.json if reply.status == 200 else json.loads(reply.body)["code"]

        for user, seen in ((ALICE, ["alice"]), (bob, ["bob"]), (carol, ["alice", "bob"])):
            durables = (await ask("GET", "durables", user))["durables"]
            schedules = (await ask("GET", "schedules", user))["schedules"]
            values = (await ask("GET", "last-values", user))["last_values"]
            assert [each["owner"] for each in durables] == seen
            assert [each["user"] for each in schedules] == seen
            assert [each["user"] for each in values] == seen
            assert all(each["operations"] == ["end"] for each in durables)
            assert all(each["operations"] == ["cancel"] for each in schedules)
            clears = ["clear"] * (user != carol)
            assert all(each["operations"] == clears for each in values)
        assert (await interface.ask("GET", "durables")).status == 401

        alices, bobs = (each["id"] for each in schedules)
        assert await ask("POST", f"cancel?id={bobs}", ALICE) == {"cancelled": 0}
        assert await ask("POST", f"cancel?id={alices}&id={bobs}", ALICE) == {"cancelled": 1}
        assert await ask("POST", f"cancel?id={bobs}", carol) == {"cancelled": 1}

        assert await ask("POST", "end?name=d&owner=bob", ALICE) == "no-such-subscription"
        assert await ask("POST", "end?name=d", ALICE) == {"name": "d", "ended": 1}
        assert await ask("POST", "end?name=d", ALICE) == "no-such-subscription"
        assert await ask("POST", "end?name=d", carol) == {"name": "d", "ended": 1}
        assert await ask("POST", "end?name=d", ALICE) == "no-such-subscription"

        cleared = {"destination": "/topic/bob", "cleared": 1}
        assert await ask("POST", "clear?destination=/topic/bob", carol) == "not-authorized"
        assert await ask("POST", "clear?destination=/topic/bob", ALICE) == cleared
        (left,) = (await ask("GET", "last-values", carol))["last_values"]
        assert (left["destination"], left["bytes"], left["stored"]) == ("/topic/alice", 1, False)
        assert left["set_ms"] > 10**12


async def test_without_users_everybody_on_the_machine_has_all_rights() -> None:
    async with served() as broker:
        interface = Interface(broker)
        shown = await interface.get("whoami")
        assert (shown["user"], shown["login"], shown["rules"]) == ("", "none", "none")
        assert "admin" in shown["rights"]
        assert (await interface.get("users"))["users"] == []
        assert (await interface.get("rules"))["rules"] == []


async def test_built_in_rules_are_named(tmp_path: Path) -> None:
    users = save(tmp_path / "users", "alice:wonder-land\n")
    async with served(passwd_file=users) as broker:
        shown = (await Interface(broker).ask("GET", "whoami", ALICE)).json
        assert (shown["rules"], shown["rights"]) == ("built-in", [])


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}]
)
async def test_pages_of_others_can_do_nothing(headers: dict[str, str]) -> None:
    """Without users, any local client may use it; a page in a local browser may not."""
    async with served() as broker:
        client = await broker.connect({})
        await client.publish(Q, b"a", receipt=True)
        reply = await ask(await broker.stream(), "POST", f"purge?queue={Q}", *headers.items())
        assert (reply.status, json.loads(reply.body)["code"]) == (403, "not-authorized")
        await client.subscribe(Q)
        assert (await client.receive()).body == b"a"


async def test_closed_client_gets_the_reason_and_others_its_messages() -> None:
    async with served() as broker:
        sender, reader = await broker.connect({}), await broker.connect({})
        await reader.subscribe(Q, headers={"ack": "client"})
        await sender.publish(Q, b"a", receipt=True)
        assert (await reader.receive()).body == b"a"
        listed = await does(broker, "GET", "connections?sort=subscriptions&limit=1")
        (record,) = listed["connections"]
        closed = await does(broker, "POST", f"close?session={record['session_id']}")
        assert closed == {"session": record["session_id"], "closed": True}
        await reader.expect_error("closed-by-operator")
        other = await broker.connect({})
        await other.subscribe(Q)
        assert (await other.receive()).body == b"a"


async def test_a_paused_queue_and_its_consumers_connection_are_shown() -> None:
    async with served(heartbeat_send_ms=1000, heartbeat_expect_ms=1000) as broker:
        reader = await broker.connect({"heart-beat": "70000,30000"})
        sender = await broker.connect({})
        await reader.subscribe(Q, headers={"ack": "client-individual", "prefetch-count": "2"})
        await sender.publish(Q, b"a", b"b", b"c", receipt=True)
        received = await reader.receive_many(2)
        paused = await does(broker, "POST", f"pause?queue={Q}")
        assert paused == {"queue": Q, "paused": True}
        queue = await does(broker, "GET", f"queue?queue={Q}")
        assert (queue["paused"], queue["input_depth"], queue["ack_depth"]) == (True, 1, 2)
        assert queue["policy"]["max_redeliveries"] == 4
        (consumer,) = queue["consumers"]
        assert consumer["unacked_messages"] == [each["message-id"] for each in received]
        connection = await does(broker, "GET", f"connection?session={consumer['session_id']}")
        assert connection["outbox_limit_bytes"] > 0
        assert connection["heartbeat_expect_ms"] == 70_000
        assert connection["heartbeat_send_ms"] == 30_000
        assert [each["destination"] for each in connection["subscriptions"]] == [Q]
        for each in received:
            await reader.send("ACK", [("id", each["ack"])])
        await reader.fence()
        assert (await does(broker, "GET", f"queue?queue={Q}"))["input_depth"] == 1
        assert not (await does(broker, "POST", f"resume?queue={Q}"))["paused"]
        assert (await reader.receive()).body == b"c"


async def test_a_client_that_hangs_up_ends_its_operation_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trio_stomp.web.management.requests._stepwise.PROGRESS_S", 0.0)
    total = 40_000
    async with served() as broker:
        client = await broker.connect({})
        for first in range(0, total, 1000):
            bodies = [b"%06d" % number for number in range(first, first + 1000)]
            await client.publish(Q, *bodies, receipt=True)
        stream = await broker.stream()
        await stream.send_all(
            f"POST /api/v1/move?queue={Q}&to=/queue/r HTTP/1.1\r\nHost: localhost\r\n"
            "Accept: application/x-ndjson\r\n\r\n".encode()
        )
        with trio.fail_after(60):
            head = bytes(await stream.receive_some(65536))
        await stream.aclose()
        assert b"application/x-ndjson" in head
        line = json.loads(head.partition(b"\r\n\r\n")[2].splitlines()[0])
        assert 0 < line["moved"] <= line["seen"] < line["total"] == total
        await client.fence()
        before = await depths(broker)
        await client.fence()
        assert await depths(broker) == before
        assert sum(before.values()) == total
        assert before[Q] > 0


async def depths(broker: Served) -> dict[str, int]:
    listed = await does(broker, "GET", "queues")
    return {each["destination"]: each["input_depth"] for each in listed["queues"]}


@pytest.fixture
async def managed() -> AsyncIterator[tuple[Dial, Client]]:
    """Yield a broker with a message that it cannot deliver because of an endless COMMIT."""
    async with open_dial(MEMORY, connect_timeout_s=5.0, **QUIET) as dial:
        await dial.start()
        add_all(dial)
        client = await dial.connect()
        await client.publish(Q, b"a", receipt=True)
        queue = dial.server.broker.queues.find(Q)
        assert queue is not None
        dial.server.broker.queues.freeze([queue])
        yield dial, client
        empty_queues(dial)


PURGE = f"POST /api/v1/purge?queue={Q} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def test_operations_wait_beyond_the_connect_timeout_and_are_bounded(
    managed: tuple[Dial, Client], autojump_clock: trio.testing.MockClock
) -> None:
    dial, _ = managed
    streams = [await dial.stream() for _ in range(OPERATIONS_AT_ONCE)]
    for stream in streams:
        await stream.send_all(PURGE)
    await trio.sleep(6)
    reply = await ask(await dial.stream(), "POST", f"purge?queue={Q}")
    assert (reply.status, json.loads(reply.body)["code"]) == (503, "busy")
    await streams[0].aclose()
    await trio.sleep(1)
    free = await dial.stream()
    await free.send_all(PURGE)
    queue = dial.server.broker.queues.find(Q)
    assert queue is not None
    dial.server.broker.queues.thaw([queue])
    with trio.fail_after(60):
        answer = bytes(await free.receive_some(65536))
    assert b" 200 " in answer
    for stream in streams[1:]:
        assert b" 200 " in bytes(await stream.receive_some(65536))
        await stream.aclose()
    await until(lambda: dial.server._shared.web.running == 0)
