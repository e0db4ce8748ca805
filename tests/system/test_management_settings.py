"""Settings and policies with their sources, reload, export and import of definitions."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.files import save
from tests.support.logins import basic
from tests.support.management import Interface
from tests.support.served import Served, served, served_with
from trio_stomp import serve
from trio_stomp.broker import DestinationPolicy
from trio_stomp.config import COMMAND_LINE, Given, Source, load
from trio_stomp.server import Changes

FILE = """
[broker]
ttl_ms = 5000

[store]
store_url = ""

[destinations."/topic/a"]
stream = true
backoff_s = [1, 2.5]

[destinations."/queue/*"]
max_messages = 10
"""
POLICIES = {
    "/queue/*": DestinationPolicy(max_messages=10),
    "/topic/a": DestinationPolicy(stream=True, backoff_s=(1, 2.5)),
}


async def test_settings_and_policies_have_their_sources_also_after_a_reload(
    tmp_path: Path,
) -> None:
    path = save(tmp_path / "settings.toml", FILE)
    given = {"port": Given(0, Source(COMMAND_LINE, "--port"))}
    variables = {"TRIO_STOMP__DIAG__DIAG_INTERVAL_S": "0"}

    async with trio.open_nursery() as nursery:
        settings = load(path, variables, given).settings
        handle = await nursery.start(serve, settings)
        interface = Interface(Served(handle, settings))

        async def shown(name: str) -> tuple[str, str, str]:
            listed = await interface.get(f"settings?name={name}")
            (found,) = [each for each in listed["settings"] if each["name"] == name]
            return found["value"], found["source"], found["kind"]

        assert await shown("ttl_ms") == ("5000", f"{path}:3", "file")
        assert await shown("port") == ("0", "--port", "command line")
        assert await shown("diag_interval_s") == (
            "0.0",
            "TRIO_STOMP__DIAG__DIAG_INTERVAL_S",
            "environment",
        )
        assert await shown("host") == ('"127.0.0.1"', "default", "default")
        policies = (await interface.get("policies"))["policies"]
        assert [each["pattern"] for each in policies] == ["/topic/a", "/queue/*", ""]
        assert policies[0]["source"] == f"{path}:8"
        assert policies[1]["policy"]["max_messages"] == 10
        assert (await interface.get("policies?name=topic"))["total"] == 1

        async def reread() -> Changes:
            return await handle.reload(load(path, {}, given).settings)

        handle.reread = reread
        save(tmp_path / "settings.toml", FILE.replace("ttl_ms = 5000", "\nttl_ms = 6000"))
        change = {"group": "broker", "name": "ttl_ms", "before": "5000", "after": "6000"}
        changes = (await interface.post("reload"))["changes"]
        assert changes[0] == {**change, "is_live": True}
        assert (changes[1]["name"], changes[1]["is_live"]) == ("diag_interval_s", False)
        assert await shown("ttl_ms") == ("6000", f"{path}:4", "file")
        assert (await shown("diag_interval_s"))[2] == "environment"  # it takes a restart
        save(tmp_path / "settings.toml", FILE.replace("ttl_ms = 5000", "ttl_ms = -1"))
        reply = await interface.ask("POST", "reload")
        assert (reply.status, json.loads(reply.body)["code"]) == (400, "invalid-settings")
        assert "ttl_ms" in json.loads(reply.body)["error"]
        handle.stop()


RULE = '[[rule]]\nuser = "ann"\nallow = ["admin", "monitor", "send"]\nto = "**"\n'


async def test_users_are_read_again_by_the_interface_of_an_embedded_broker(tmp_path: Path) -> None:
    users = save(tmp_path / "users", "ann:one\nbob:two\ncarol:three\n")
    rules = save(tmp_path / "acl.toml", RULE)
    async with served(passwd_file=users, acl_file=rules) as broker:
        client = await broker.connect({"login": "ann", "passcode": "one"})
        for name in ("config", "reload"):
            await client.subscribe(f"DIAG/event/{name}", name)
        await client.fence()
        save(tmp_path / "users", "ann:one\nbob:other\ndan:four\n")
        save(tmp_path / "acl.toml", RULE + RULE.replace("ann", "dan"))
        reply = await Interface(broker).ask("POST", "reload", basic("ann", "one"))
        names = ("group", "name", "before", "after")
        changes = [[each[name] for name in names] for each in reply.json["changes"]]
        assert changes == [
            ["users", "bob", "a passcode", "another passcode"],
            ["users", "carol", "a passcode", ""],
            ["users", "dan", "", "a passcode"],
            ["rules", "", "1 rules, 0 groups, 0 certificates", "2 rules, 0 groups, 0 certificates"],
        ]
        events = [json.loads((await client.receive()).body) for _ in range(2)]
        assert {each["name"]: (each["reason"], each["detail"]) for each in events} == {
            "config": ("", "[users] bob, [users] carol, [users] dan, [rules]"),
            "reload": ("operator", "4 changes"),
        }


@pytest.mark.parametrize("form", ["json", "toml"])
async def test_definitions_are_exported_and_imported(form: str) -> None:
    async with served_with(POLICIES, {}) as broker:
        interface = Interface(broker)
        client = await broker.connect({"client-id": "c"})
        durable = {"activemq.subscriptionName": "n", "selector": "a = 1", "ack": "client"}
        await client.subscribe("/topic/t", "1", durable)
        await client.publish("/queue/not-declared", b"x", receipt=True)
        for name in ('/queue/b"', "/queue/a"):
            await interface.post(f"create?queue={name}")
        exported = await interface.ask("GET", f"definitions?format={form}")
    text = exported.body.decode()
    found: Any = tomllib.loads(text) if form == "toml" else json.loads(text)
    assert found == {
        "version": 1,
        "queues": [{"name": "/queue/a"}, {"name": '/queue/b"'}],
        "policies": {
            "/queue/*": {"max_messages": 10},
            "/topic/a": {"stream": True, "backoff_s": [1.0, 2.5]},
        },
        "durables": [
            {
                "name": "n",
                "client_id": "c",
                "owner": "",
                "destination": "/topic/t",
                "no_local": False,
                "selector": "a = 1",
            }
        ],
    }
    async with served_with({"/queue/*": POLICIES["/queue/*"]}, {}) as broker:
        interface = Interface(broker)
        await interface.post("create?queue=/queue/a")
        expected = {
            "created": ['/queue/b"'],
            "existing": ["/queue/a"],
            "policies": ["/topic/a"],
            "durables": ["n"],
        }
        kind = ("Content-Type", f"application/{form}")
        dry = await interface.ask("POST", "definitions?dry_run=1", kind, body=exported.body)
        assert dry.json == {"dry_run": True, **expected}
        assert (await interface.get("queues"))["total"] == 1
        done = await interface.ask("POST", "definitions", kind, body=exported.body)
        assert done.json == {"dry_run": False, **expected}
        assert (await interface.get("queues"))["total"] == 2


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid-definitions"),
        (b"[]", "invalid-definitions"),
        (b'{"version": 2}', "invalid-definitions"),
        (b'{"version": 1, "durables": [1]}', "invalid-definitions"),
        (b'{"version": 1, "queues": ["/queue/a"]}', "invalid-definitions"),
        (b'{"version": 1, "queues": [{"name": "/topic/a"}]}', "invalid-destination"),
    ],
)
async def test_wrong_definitions_change_nothing(body: bytes, code: str) -> None:
    async with served() as broker:
        interface = Interface(broker)
        reply = await interface.ask("POST", "definitions", body=body)
        assert (reply.status, json.loads(reply.body)["code"]) == (400, code)
        assert (await interface.get("queues"))["total"] == 0
