"""Nodes whose log was rolled back: servers of the engine with an older copy of their files."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import trio

from tests.support.cluster_nodes import Cluster, Node, cluster, eventually, settings
from trio_stomp import serve
from trio_stomp.cli import main
from trio_stomp.nats import JetStream
from trio_stomp.store import StoreError

pytestmark = pytest.mark.foreign
OLDER = "older"
LEASE_S = 1.0
PATIENCE_S = 15.0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes do not wait for long until the leader of the log knows its end."""
    monkeypatch.setattr("trio_stomp.cluster._jetstream_log.LOOK_S", 0.5)


async def leave(node: Node) -> None:
    node.handle.stop()
    await node.ended.wait()


async def put(here: Cluster, node: Node, *bodies: bytes) -> None:
    await here.owner()
    for body in bodies:
        await here.put(node, body)  # each in an entry of its own


def copy(here: Cluster) -> None:
    """Copy the files of the server, as a snapshot of its machine does."""
    here.server.kill()
    shutil.copytree(here.folder / "n0", here.folder / OLDER)
    here.server.start()


async def copied_between(here: Cluster) -> None:
    """Let node "a" store a message, copy the files of the server, and let it store another."""
    node = await here.start("a", lease_s=LEASE_S)
    await put(here, node, b"1")
    await leave(node)
    copy(here)
    node = await here.start("a", lease_s=LEASE_S)
    await put(here, node, b"2")
    await leave(node)


async def restore(here: Cluster) -> None:
    """Give the server its older files, or none if there is no copy."""
    here.server.kill()
    shutil.rmtree(here.folder / "n0")
    if (here.folder / OLDER).exists():
        shutil.copytree(here.folder / OLDER, here.folder / "n0")
    here.server.start()
    await trio.sleep(0.1)
    await here.engine.wait_until_connected()


async def last(here: Cluster) -> int:
    return (await JetStream(here.engine).stream("stomp_log_00")).last


async def refusal(here: Cluster, name: str) -> str:
    """Start a node, and return the error with which it ends."""
    with trio.fail_after(PATIENCE_S), pytest.raises(StoreError) as caught:
        await serve(settings(here.folder, here.server, name, lease_s=LEASE_S))
    return str(caught.value)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(each): each.read_bytes()
        for each in folder.rglob("*")
        if each.is_file() and each.name != "lock"
    }


async def imported(
    here: Cluster, store: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["cluster", "import", str(store), "--cluster-name", name]
    words += ["--cluster", str(here.server.address), "--cluster-replicas", "1"]
    code = await trio.to_thread.run_sync(main, words)
    assert code == 0, capsys.readouterr()


async def test_a_node_that_has_more_than_the_log_writes_nothing_however_often_it_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A supervisor starts it more often than entries are missing."""
    async with cluster(tmp_path, 0, lease_s=LEASE_S) as here:
        await copied_between(here)
        await restore(here)
        before, state = await last(here), files(tmp_path / "a")
        for _ in range(6):
            error = await refusal(here, "a")
            assert re.search(r"entries up to \d+, but the log .* ends at entry \d+: ", error), error
            assert f"trio-stomp cluster import {tmp_path}/a/cluster-stomp" in error
            assert "\n" not in error
        assert await last(here) == before
        assert state.items() <= files(tmp_path / "a").items()
        await imported(here, tmp_path / "a" / "cluster-stomp", "again", capsys)
        found = await here.start("other", cluster_name="again")
        assert await here.take(found, 2) == [b"1", b"2"]


async def test_a_node_keeps_what_the_new_owner_of_an_older_log_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The owner goes on with other entries of the same numbers."""
    async with cluster(tmp_path, 0, lease_s=LEASE_S) as here:
        node, behind = await here.start("a", lease_s=LEASE_S), await here.start("b")
        await put(here, node, b"1")
        await leave(behind)
        await leave(node)
        copy(here)
        node = await here.start("a", lease_s=LEASE_S)
        await put(here, node, b"2", b"3")
        await leave(node)
        await restore(here)
        behind = await here.start("b", lease_s=LEASE_S)
        await put(here, behind, *(b"other %d" % number for number in range(8)))
        error = await refusal(here, "a")
        assert "but the log of the cluster has another entry of that number" in error
        await imported(here, tmp_path / "a" / "cluster-stomp", "again", capsys)
        found = await here.start("other", cluster_name="again")
        assert await here.take(found, 3) == [b"1", b"2", b"3"]


async def test_a_copy_that_does_not_lead_up_to_the_log_is_kept_beside_the_new_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The entries that would tell were deleted after a snapshot."""
    monkeypatch.setattr("trio_stomp.cluster._node.CHECK_S", 0.1)
    async with cluster(tmp_path, 0, lease_s=LEASE_S) as here:
        await copied_between(here)
        left_at = await last(here)
        await restore(here)
        other = await here.start("b", lease_s=LEASE_S)
        monkeypatch.setattr("trio_stomp.cluster._node.LOG_BYTES", 10)

        async def is_shortened() -> bool:
            await put(here, other, b"other")
            return (await JetStream(here.engine).stream("stomp_log_00")).first > left_at + 1

        await eventually(is_shortened)
        await here.start("a", lease_s=LEASE_S)
        await eventually(lambda: is_standby(here, "a"))
        aside = tmp_path / "a" / "aside-1.cluster-stomp"
        assert f"kept in {aside}" in caplog.text
        await imported(here, aside, "again", capsys)
        found = await here.start("other", cluster_name="again")
        assert await here.take(found, 2) == [b"1", b"2"]


async def is_standby(here: Cluster, name: str) -> bool:
    return (await here.roles()).get(name) == "standby"


async def test_an_empty_log_is_filled_again_from_the_copy_of_any_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cut of power can leave one, where the servers do not sync always."""
    async with cluster(tmp_path, 0, lease_s=LEASE_S) as here:
        node = await here.start("a", lease_s=LEASE_S)
        await put(here, node, b"1", b"2")
        await leave(node)
        await restore(here)
        error = await refusal(here, "a")
        store = tmp_path / "a" / "cluster-stomp"
        assert "the log of the cluster is empty: " in error
        assert f"trio-stomp cluster import {store}" in error
        words = ["--cluster", str(here.server.address), "--cluster-replicas", "1", "--node", "a"]
        words += ["--data-dir", str(tmp_path / "a"), "--port", "0", "--lease-s", f"{LEASE_S}"]
        command = [sys.executable, "-m", "trio_stomp", *words]
        ended = await trio.run_process(command, capture_stderr=True, check=False)
        (line,) = [each for each in ended.stderr.decode().splitlines() if "error: " in each]
        assert (ended.returncode, line) == (1, f"trio-stomp: error: {error}")
        assert b"Traceback" not in ended.stderr
        store = store.rename(tmp_path / "kept")
        await imported(here, store, "stomp", capsys)
        assert await here.take(await here.start("a", lease_s=LEASE_S), 2) == [b"1", b"2"]
