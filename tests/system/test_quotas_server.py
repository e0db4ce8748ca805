"""Quotas of users in a whole broker, over sockets (F9)."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.support.fakes import Client
from tests.support.files import save
from tests.support.logins import proxy_line
from tests.support.served import Served, served
from trio_stomp.store import SqlStore

LIMIT = {"max_memory_bytes": 4 * 1024 * 1024}
MUCH = b"x" * 100_000


def broker(**options: object) -> AbstractAsyncContextManager[Served]:
    return served(**{**LIMIT, **options})


async def enter(made: Served, name: str = "", proxied: bytes = b"") -> Client:
    client = await made.open()
    await client.send_bytes(proxied)
    await client.connect("1.2", {"login": name, "passcode": "secret"} if name else {})
    return client


@pytest.fixture
def users(tmp_path: Path) -> str:
    return save(tmp_path / "users", "mallory:secret\nvictim:secret\n")


async def fills(client: Client, name: str) -> str:
    """Send to a queue until an ERROR arrives, after some RECEIPTs. Return its code."""
    for number in range(100):
        headers = {"destination": name, "receipt": f"{number}"}
        await client.send("SEND", headers, MUCH)
        frame = await client.receive()
        if frame.command == "ERROR":
            await client.aclose()
            assert number > 10
            assert frame["code"] == "queue-full"
            return frame["message"]
    raise AssertionError("nothing was refused")


async def test_a_user_who_fills_the_memory_leaves_room_for_others(users: str) -> None:
    async with broker(passwd_file=users) as handle:
        result = await fills(await enter(handle, "mallory"), "/queue/m")
        assert "mallory" in result
        victim = await enter(handle, "victim")
        for _ in range(5):
            await victim.publish("/queue/v", MUCH, receipt=True)
        await victim.subscribe("/queue/m", "m")  # he takes them away
        await victim.fence()
        mallory = await enter(handle, "mallory")
        await mallory.publish("/queue/m", MUCH, receipt=True)
        await mallory.disconnect()
        await victim.disconnect()


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
async def test_a_user_who_fills_the_disk_leaves_room_for_others_after_a_restart_too(
    users: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: mallory, and all others, received "storage" only when no space was left."""
    most, memory = 16 * 1024 * 1024, {"max_memory_bytes": 256 * 1024 * 1024}
    if kind == "journal":
        store = {"data_dir": str(tmp_path / "data"), "max_store_bytes": most}
    else:
        store = {"store_url": f"sqlite:///{tmp_path}/queues.db"}
        monkeypatch.setattr(SqlStore, "capacity", lambda self: most, raising=False)
    async with broker(passwd_file=users, **memory, **store) as handle:
        code, count = await stores(await enter(handle, "mallory"), "/queue/m")
        assert (code, count > 50) == ("quota-exceeded", True)
    async with broker(passwd_file=users, **memory, **store) as handle:
        victim = await enter(handle, "victim")
        saved = {"persistent": "true"}
        for _ in range(20):
            await victim.publish("/queue/v", MUCH, headers=saved, receipt=True)
        code, count = await stores(await enter(handle, "mallory"), "/queue/m2")
        assert (code, count) == ("quota-exceeded", 0)
        await victim.subscribe("/queue/m", "m")
        for _ in range(10):
            await victim.receive()  # he takes them away
        await victim.disconnect()


async def stores(client: Client, name: str) -> tuple[str, int]:
    """Send durable messages until an ERROR arrives. Return its code, and the number of RECEIPTs."""
    for number in range(200):
        headers = {"destination": name, "receipt": f"{number}", "persistent": "true"}
        await client.send("SEND", headers, MUCH)
        frame = await client.receive()
        if frame.command == "ERROR":
            await client.aclose()
            return frame["code"] or "", number
    return "nothing was refused", 200


async def test_an_address_that_fills_the_memory_leaves_room_for_others() -> None:
    async with broker(proxy_addresses="127.0.0.1", anonymous="always", insecure=True) as handle:
        result = await fills(await enter(handle, proxied=proxy_line("203.0.113.7")), "/queue/m")
        assert "203.0.113.7" in result
        victim = await enter(handle, proxied=proxy_line("203.0.113.8"))
        for _ in range(5):
            await victim.publish("/queue/v", MUCH, receipt=True)
        await victim.disconnect()


async def test_all_networks_of_an_ipv6_site_share_a_quota() -> None:
    options = {"proxy_addresses": "127.0.0.1", "anonymous": "always", "insecure": True}
    async with broker(**options) as handle:
        for network in range(3):
            header = proxy_line(f"2001:db8:1:{network}::1")
            client = await enter(handle, proxied=header)
            if network == 0:
                assert "/48 that wait" in await fills(client, "/queue/m")
            else:
                await client.send("SEND", {"destination": "/queue/m", "receipt": "r"}, MUCH)
                await client.expect_error("queue-full")
        other = await enter(handle, proxied=proxy_line("2001:db8:2:1::1"))
        await other.publish("/queue/v", MUCH, receipt=True)


async def test_an_ipv6_site_does_not_take_all_connections() -> None:
    options = {"proxy_addresses": "127.0.0.1", "anonymous": "always", "insecure": True}
    limits = {"max_connections": 60, "max_connections_per_address": 20}
    async with broker(**options, **limits) as handle:
        codes = []
        for network in range(60):
            client = await handle.open()
            await client.send_bytes(proxy_line(f"2001:db8:1:{network}::1"))
            await client.send("CONNECT", {"accept-version": "1.2", "host": "x"})
            frame = await client.receive()
            codes.append(frame.get("code") or frame.command)
        assert codes == ["CONNECTED"] * 30 + ["too-many-from-address"] * 30
        await enter(handle, proxied=proxy_line("203.0.113.7"))
