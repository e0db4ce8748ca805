"""The remains of removed users in a whole broker, removed at SIGHUP or while it is down."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio

from tests.support.fakes import Client, bodies
from tests.support.files import save
from tests.support.served import Served, served
from trio_stomp.base import Identity
from trio_stomp.cli import main
from trio_stomp.security import Accounts, PasscodeChecker, UserBook

ALICE, BOB = ("alice", "wonder-land"), ("bob", "builder")
Q, T = "/queue/q", "/topic/t"
STORES = ("journal", "sqlite")


def users(directory: Path, *who: tuple[str, str]) -> None:
    save(directory / "users", "".join(f"{name}:{passcode}\n" for name, passcode in who))


def place(directory: Path, store: str) -> dict[str, str]:
    if store == "sqlite":
        pytest.importorskip("sqlalchemy")
        return {"store_url": f"sqlite:///{directory}/q.db"}
    return {"data_dir": str(directory / "data")}


def broker(directory: Path, store: str) -> AbstractAsyncContextManager[Served]:
    return served(passwd_file=str(directory / "users"), **place(directory, store))


async def enter(made: Served, who: tuple[str, str]) -> Client:
    return await made.connect({"login": who[0], "passcode": who[1]})


async def leave_things(made: Served, who: tuple[str, str], delay_ms: int) -> None:
    """Leave one scheduled message and one last value, and disconnect."""
    client = await enter(made, who)
    saved, body = {"persistent": "true"}, who[0].encode()
    later = {"AMQ_SCHEDULED_DELAY": str(delay_ms)}
    await client.publish(Q, body, headers=saved | later, receipt=True)
    await client.publish(f"{T}.{who[0]}", body, headers=saved | {"retain": "set"}, receipt=True)
    await client.disconnect()


async def found(made: Served, wait_s: float) -> tuple[list[bytes], list[bytes]]:
    """Return the scheduled messages and the last values that bob receives."""
    client = await enter(made, BOB)
    frames = []
    for name, id in ((f"{T}.alice", "t"), (f"{T}.bob", "u"), (Q, "q")):
        frames += await client.subscribe(name, id)
    await trio.sleep(wait_s)
    frames += await client.fence()
    await client.disconnect()
    due = [frame for frame in frames if frame["subscription"] == "q"]
    return bodies(due), bodies(frame for frame in frames if frame not in due)


@pytest.mark.parametrize("store", STORES)
async def test_user_removed_while_the_broker_is_down_leaves_nothing(
    tmp_path: Path, store: str
) -> None:
    users(tmp_path, ALICE, BOB)
    async with broker(tmp_path, store) as made:
        await leave_things(made, ALICE, 1)
        await leave_things(made, BOB, 1)
        assert await found(made, 0.3) == ([b"alice", b"bob"], [b"alice", b"bob"])
        await leave_things(made, ALICE, 700)
        await leave_things(made, BOB, 700)
    users(tmp_path, BOB)
    async with broker(tmp_path, store) as made:
        assert await found(made, 1.2) == ([b"bob"], [b"bob"])


async def test_user_removed_at_sighup_leaves_nothing(tmp_path: Path) -> None:
    users(tmp_path, ALICE, BOB)
    async with broker(tmp_path, "journal") as made:
        await leave_things(made, ALICE, 600)
        await leave_things(made, BOB, 600)
        users(tmp_path, BOB)
        await made.handle.reload()
        assert await found(made, 1.0) == ([b"bob"], [b"bob"])


@pytest.mark.parametrize("store", STORES)
async def test_imported_messages_keep_their_owner(tmp_path: Path, store: str) -> None:
    (tmp_path / "b").mkdir()
    users(tmp_path, ALICE, BOB)
    users(tmp_path / "b", BOB)
    async with broker(tmp_path, store) as made:
        await leave_things(made, ALICE, 1000)
        await leave_things(made, BOB, 1000)
    text = str(tmp_path / "told.jsonl")
    for verb, directory in (("export", tmp_path), ("import", tmp_path / "b")):
        (where,) = place(directory, store).values()
        code = await trio.to_thread.run_sync(main, ["store", verb, where, text])
        assert not code
    async with broker(tmp_path / "b", store) as made:
        assert await found(made, 1.5) == ([b"bob"], [b"bob"])


def test_existence_of_a_user_depends_on_the_login_method() -> None:
    book = UserBook({"alice": "wonder-land"})
    both = Accounts(book, PasscodeChecker(book), tls_login="common-name")
    mapped = Accounts(tls_login="mapped", certificates={"CN=x": "carol"})
    nobody = Accounts()
    cases = {
        ("alice", "passcode"): (True, False, False),
        ("bob", "passcode"): (False, False, False),
        ("carol", "token"): (False, False, False),
        ("carol", "certificate"): (True, True, False),
        ("alice", "certificate"): (True, False, False),
    }
    for (name, method), expected in cases.items():
        who = Identity(name, method=method)
        assert tuple(each.exists(who) for each in (both, mapped, nobody)) == expected
