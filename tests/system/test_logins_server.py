"""Logins over sockets that many clients send at once."""

from collections import Counter
from pathlib import Path

import trio

from tests.support.files import save
from tests.support.served import Served, served
from trio_stomp.security import hash_passcode

FLEET = 300
"""More than may wait for a hash."""


async def answers(
    broker: Served, login: str, passcode: str, found: "Counter[tuple[str, str]]"
) -> None:
    """Connect, and count the answer."""
    client = await broker.open()
    headers = {"accept-version": "1.2", "host": "x", "login": login, "passcode": passcode}
    await client.send("CONNECT", headers)
    frame = await client.receive()
    found[login, frame.get("code") or frame.command] += 1


async def test_a_fleet_that_comes_back_after_a_restart_is_let_in(tmp_path: Path) -> None:
    users = save(tmp_path / "users", f"fleet:{hash_passcode('right')}\n")
    found: Counter[tuple[str, str]] = Counter()
    async with served(passwd_file=users) as broker:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(FLEET):
                    nursery.start_soon(answers, broker, "fleet", "right", found)
    assert found == {("fleet", "CONNECTED"): FLEET}


async def test_invented_names_do_not_keep_a_user_behind_a_local_proxy_out(tmp_path: Path) -> None:
    users = save(tmp_path / "users", f"alice:{hash_passcode('right')}\n")
    found: Counter[tuple[str, str]] = Counter()
    options = {"login_threads": 1, "max_waiting_logins": 16, "connect_timeout_s": 60}
    async with served(passwd_file=users, **options) as broker, trio.open_nursery() as nursery:
        for number in range(FLEET):
            nursery.start_soon(answers, broker, f"guess-{number}", "wrong", found)
        await trio.sleep(0.3)
        await answers(broker, "alice", "right", found)
        nursery.cancel_scope.cancel()
    assert found["alice", "CONNECTED"] == 1
    assert sum(code == "authentication-failed" for _, code in found) <= 8
