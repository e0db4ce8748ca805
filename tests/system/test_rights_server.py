"""Rights whose check depends on more than one request, over sockets."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.files import save
from tests.support.logins import basic
from tests.support.management import Interface
from tests.support.served import Served, served

USERS = "".join(f"{name}:{name}\n" for name in ("admin", "ann", "bob"))
ADMIN = '[[rule]]\nallow = "all"\nto = "**"\nuser = "admin"\n'


def login(name: str) -> dict[str, str]:
    return {"login": name, "passcode": name}


@asynccontextmanager
async def ruled(directory: Path, rules: str) -> AsyncIterator[Served]:
    """Run a broker with rules for ann and bob."""
    options = {
        "passwd_file": save(directory / "users", USERS),
        "acl_file": save(directory / "acl.toml", ADMIN + rules),
    }
    async with served(**options) as broker:
        yield broker


async def test_a_question_that_is_allowed_says_nothing_of_where_its_answer_may_go(
    tmp_path: Path,
) -> None:
    rules = '[[rule]]\nallow = "monitor"\nto = ["DIAG", "DIAG/**"]\nuser = "ann"\n'
    secret = "/queue/secret"
    async with ruled(tmp_path, rules) as broker:
        admin = await broker.connect(login("admin"))
        await admin.subscribe(secret)
        for _ in range(2):
            ann, other = [await broker.connect(login("ann")) for _ in range(2)]
            await ann.publish("DIAG/explain", b"1-1")
            for client in (ann, other):
                headers = {"destination": "DIAG/explain", "reply-to": secret}
                await client.send("SEND", headers, b"1-1")
                await client.expect_error("not-authorized")
        assert await admin.fence() == []


async def test_an_answer_goes_where_its_asker_may_send(tmp_path: Path) -> None:
    rules = '[[rule]]\nallow = "monitor"\nto = ["DIAG", "DIAG/**"]\nuser = "ann"\n'
    rules += '[[rule]]\nallow = "send"\nto = "**"\nuser = "ann"\n'
    rules += '[[rule]]\nallow = "create"\nto = "/temp-queue/**"\nuser = "ann"\n'
    async with ruled(tmp_path, rules) as broker:
        # A new queue needs the right create, as for a SEND of hers, and a trace needs admin.
        for reply_to in ("/queue/new", "DIAG/trace"):
            ann = await broker.connect(login("ann"))
            await ann.send("SEND", {"destination": "DIAG/explain", "reply-to": reply_to}, b"1-1")
            await ann.expect_error("not-authorized")
        ann = await broker.connect(login("ann"))
        headers = {"destination": "DIAG/explain", "reply-to": "/temp-queue/mine", "receipt": "r"}
        await ann.send("SEND", headers, b"1-1")
        await ann.receive_until_receipt("r")


async def test_browsing_makes_no_queue(tmp_path: Path) -> None:
    rules = '[[rule]]\nallow = ["send", "receive", "browse"]\nto = "/queue/**"\nuser = "ann"\n'
    rules += '[[rule]]\nallow = ["send", "browse", "create"]\nto = "/queue/**"\nuser = "bob"\n'
    async with ruled(tmp_path, rules) as broker:
        for name in ("ann", "bob"):
            browser, sender = [await broker.connect(login(name)) for _ in range(2)]
            headers = {"browser": "true", "destination": "/queue/new", "id": "b"}
            await browser.send("SUBSCRIBE", {**headers, "browser-end": "true"})
            end = await browser.receive()
            assert (end.command, end.get("browser")) == ("MESSAGE", "end")
            await sender.send("SEND", {"destination": "/queue/new", "receipt": "r"}, b"x")
            if name == "ann":
                error = await sender.expect_error("not-authorized")
                assert "may not create /queue/new" in error["message"]
            else:
                await sender.receive_until_receipt("r")


async def test_a_move_to_a_new_queue_makes_it_as_a_send_does(tmp_path: Path) -> None:
    rules = '[[rule]]\nallow = ["send", "receive"]\nto = "/queue/**"\nuser = "ann"\n'
    async with ruled(tmp_path, rules) as broker:
        admin = await broker.connect(login("admin"))
        for _ in range(2):
            await admin.publish("/queue/from", b"x")
        await admin.publish("/queue/there", b"x")
        await admin.fence()
        as_ann = basic("ann", "ann")
        api = Interface(broker)
        reply = await api.ask("POST", "move?queue=/queue/from&to=/queue/new", as_ann)
        assert (reply.status, json.loads(reply.body)["code"]) == (403, "not-authorized")
        reply = await api.ask("POST", "move?queue=/queue/from&to=/queue/there&count=1", as_ann)
        assert reply.json["moved"] == 1
        as_admin = basic("admin", "admin")
        reply = await api.ask("POST", "move?queue=/queue/from&to=/queue/new", as_admin)
        assert reply.json["moved"] == 1


async def test_a_durable_subscription_of_another_user_is_as_none(tmp_path: Path) -> None:
    rules = '[[rule]]\nallow = ["receive", "create"]\nto = "/topic/**"\nuser = ["ann", "bob"]\n'
    name = {"durable-subscription-name": "d", "client-id": "c"}
    async with ruled(tmp_path, rules) as broker:
        bob = await broker.connect({**login("bob"), "client-id": "c"})
        await bob.subscribe("/topic/confidential", "x", name)
        texts = []
        for each in ("d", "other"):
            ann = await broker.connect({**login("ann"), "client-id": "c"})
            headers = {"id": "x", **name, "durable-subscription-name": each}
            await ann.send("UNSUBSCRIBE", headers)
            error = await ann.expect_error("unknown-subscription")
            texts.append(error["message"].replace(repr(each), "NAME"))
        assert texts[0] == texts[1]
        replies = [
            await Interface(broker).ask("POST", f"end?name={each}", basic("ann", "ann"))
            for each in ("d", "other")
        ]
        assert [each.status for each in replies] == [404, 404]
        assert "confidential" not in replies[0].text
        admin = await Interface(broker).ask(
            "POST", "end?name=d&client_id=c", basic("admin", "admin")
        )
        assert admin.json["ended"] == 1
